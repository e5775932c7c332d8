package httpserver

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestServer_UnreadableRequestsGetTheErrorBody(t *testing.T) {
	t.Parallel()
	router := NewRouter(nil)
	router.Get("/v1/calls/{id}", Handle(func(w http.ResponseWriter, _ *http.Request) error {
		return WriteJSON(w, http.StatusOK, map[string]string{"said": strings.Repeat("HTTP/1.1 400 Bad Request\r\n\r\n", 1000)})
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: router, MaxHeaderBytes: 4 << 10}
	go func() { _ = serveWire(server, listener, nil, http.Header{"X-Extra": {"1"}}) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, row := range []struct {
		name, request string
		status        int
		code          string
	}{
		{"the response of a handler is unchanged", "GET /v1/calls/1 HTTP/1.1\r\nHost: x\r\n\r\n", 200, ""},
		{"the error response of a handler is unchanged", "GET /v1/calls HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"},
		{"an invalid percent-encoding", "GET /v1/calls/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"},
		{"a NUL in the path", "GET /v1/calls/\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"},
		{"no Host header", "GET /v1/calls HTTP/1.1\r\n\r\n", 400, "bad_request"},
		{
			"an unknown transfer encoding", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
			"bad_request",
		},
		{"an unknown Expect header", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417, "expectation_failed"},
		{
			"headers above the limit", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 10<<10) + "\r\n\r\n",
			431, "headers_too_large",
		},
	} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, row.request); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		var body struct {
			Error struct{ Code, Message string }
		}
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		own := row.code != "" && row.status != http.StatusNotFound
		if answer.StatusCode != row.status {
			t.Errorf("%s: answer.StatusCode = %v, want %v", row.name, answer.StatusCode, row.status)
		}
		if body.Error.Code != row.code {
			t.Errorf("%s: body.Error.Code = %v, want %v", row.name, body.Error.Code, row.code)
		}
		if (body.Error.Message == "") != (row.code == "") {
			t.Errorf("%s: error message is empty = %v, want %v", row.name, (body.Error.Message == ""), (row.code == ""))
		}
		if answer.Header.Get("Service-Version") != Version {
			t.Errorf("%s: Service-Version = %v, want %v", row.name, answer.Header.Get("Service-Version"), Version)
		}
		if (answer.Header.Get("X-Extra") != "") != own {
			t.Errorf("%s: X-Extra is present = %v, want %v", row.name, (answer.Header.Get("X-Extra") != ""), own)
		}
		_ = answer.Body.Close()
		_ = conn.Close()
	}
}

// A stored file can contain bytes that look like an error response of net/http.
func TestServer_BodyThatLooksLikeAnErrorIsNotChanged(t *testing.T) {
	t.Parallel()
	parts := []string{"a part of a file, ", "HTTP/1.1 400 Bad Request\r\n\r\n and the rest"}
	router := NewRouter(nil)
	router.Get("/recordings/1", func(w http.ResponseWriter, _ *http.Request) {
		// with a Content-Length the body is not chunked, so its bytes are sent unchanged
		w.Header().Set("Content-Length", strconv.Itoa(len(parts[0])+len(parts[1])))
		for _, part := range parts {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: router}
	go func() { _ = serveWire(server, listener, nil, nil) }()
	t.Cleanup(func() { _ = server.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for range 2 { // both responses of the connection must have the headers
		if _, err := io.WriteString(conn, "GET /recordings/1 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatalf("read body: %v", err)
		}
		if want := parts[0] + parts[1]; string(got) != want {
			t.Errorf("body = %q, want %q", got, want)
		}
	}
	// After a complete response, an unreadable request on the connection still gets the error body.
	if _, err := io.WriteString(conn, "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(body), `"code":"bad_request"`) {
		t.Errorf("body of an unreadable request = %q, want the error body", body)
	}
}
