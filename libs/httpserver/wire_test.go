package httpserver

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestWire_EveryRefusalHasTheErrorBody: also what net/http answers by itself.
func TestWire_EveryRefusalHasTheErrorBody(t *testing.T) {
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
	go func() { _ = server.Serve(wire{listener, http.Header{"X-Extra": {"1"}}}) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, row := range []struct {
		name, request string
		status        int
		code          string
	}{
		{"a handler's answer stays", "GET /v1/calls/1 HTTP/1.1\r\nHost: x\r\n\r\n", 200, ""},
		{"a handler's refusal stays", "GET /v1/calls HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"},
		{"a broken escape", "GET /v1/calls/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"},
		{"a NUL in the path", "GET /v1/calls/\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"},
		{"no host", "GET /v1/calls HTTP/1.1\r\n\r\n", 400, "bad_request"},
		{"an unknown encoding", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "bad_request"},
		{"an unknown expectation", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417, "expectation_failed"},
		{"large headers", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 10<<10) + "\r\n\r\n", 431, "headers_too_large"},
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
		if answer.StatusCode != row.status || body.Error.Code != row.code || (body.Error.Message == "") != (row.code == "") ||
			answer.Header.Get("Service-Version") != Version || (answer.Header.Get("X-Extra") != "") != own {
			t.Errorf("%s = %d %+v %v, want %d %s", row.name, answer.StatusCode, body, answer.Header, row.status, row.code)
		}
		_ = answer.Body.Close()
		_ = conn.Close()
	}
}
