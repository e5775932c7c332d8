package httpserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a listener for connections in memory. Unlike TCP connections, they work under
// synctest.
type pipeListener struct {
	conns chan net.Conn
	ended chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

func serve(t *testing.T, handler http.Handler) pipeListener {
	t.Helper()
	l := pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
	server := (&Server{Handler: handler}).settings()
	go func() { _ = serveWire(server, l, nil, nil) }()
	t.Cleanup(func() { close(l.ended); _ = server.Close() })
	return l
}

// sendSlowly sends text. If drip is not empty, it then sends drip once a second until the server
// closes the connection.
func sendSlowly(conn net.Conn, text, drip string) (ends chan struct{}) {
	ends = make(chan struct{})
	go func() {
		defer close(ends)
		_, err := io.WriteString(conn, text)
		for err == nil && drip != "" {
			time.Sleep(time.Second)
			_, err = io.WriteString(conn, drip)
		}
	}()
	return ends
}

func taking() http.Handler {
	router := NewRouter(nil)
	router.Post("/v1/calls", Handle(func(w http.ResponseWriter, r *http.Request) error {
		var body order
		if err := DecodeJSON(r, &body); err != nil {
			return err
		}
		return WriteJSON(w, http.StatusAccepted, map[string]string{"to": body.To})
	}))
	router.Post("/v1/refused", func(w http.ResponseWriter, r *http.Request) {
		Hurry(w, r, time.Second)
		WriteError(w, r, NoRoute())
	})
	return router
}

func TestServer_SlowBodyGetsAnErrorResponse(t *testing.T) {
	for _, row := range []struct {
		name, request, drop string
		within              time.Duration
		status              int
		code                string
	}{
		{
			"one byte per second", "POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", "x",
			31 * time.Second, 408, "request_timeout",
		},
		{
			"one chunk per second", "POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n",
			31 * time.Second, 408, "request_timeout",
		},
		{
			"one byte per second to an unknown route",
			"POST /v1/refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", "x", 2 * time.Second, 404, "not_found",
		},
		{"a body above the limit that stops", "POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n", 2*MaxBody) + strings.Repeat("x", MaxBody+10), "", 2 * time.Second, 413, "request_too_large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := serve(t, taking())
				begun, conn := time.Now(), l.dial()
				ends := sendSlowly(conn, row.request, row.drop)
				quick := l.dial()
				go func() {
					_, _ = io.WriteString(quick, "POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{\"to\":\"x\"}")
				}()
				answer, err := http.ReadResponse(bufio.NewReader(quick), nil)
				if err != nil {
					t.Fatalf("another client: %v", err)
				}
				if answer.StatusCode != http.StatusAccepted {
					t.Errorf("another client: answer.StatusCode = %v, want %v", answer.StatusCode, http.StatusAccepted)
				}
				if time.Since(begun) > time.Second {
					t.Errorf("another client: time.Since(begun) = %v, want at most %v", time.Since(begun), time.Second)
				}
				answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				var body struct {
					Error struct{ Code, Message string }
				}
				if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
					t.Fatalf("read error body: %v", err)
				}
				if answer.StatusCode != row.status {
					t.Errorf("answer.StatusCode = %v, want %v", answer.StatusCode, row.status)
				}
				if body.Error.Code != row.code {
					t.Errorf("body.Error.Code = %v, want %v", body.Error.Code, row.code)
				}
				if body.Error.Message == "" {
					t.Errorf("body.Error.Message is empty")
				}
				if took := time.Since(begun); took > row.within {
					t.Errorf("answered after %s, want %s at most", took, row.within)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the connection was not closed: %v", err)
				}
				_ = conn.Close()
				_ = quick.Close()
				<-ends
			})
		})
	}
}

func TestServer_ClosesConnectionsWithSlowHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, taking())
		begun, conn := time.Now(), l.dial()
		ends := sendSlowly(conn, "POST /v1/calls HTTP/1.1\r\n", "X")
		response, err := io.ReadAll(conn)
		took := time.Since(begun)
		if err != nil {
			t.Fatal(err)
		}
		if took > 11*time.Second {
			t.Errorf("took = %v, want at most %v", took, 11*time.Second)
		}
		if len(response) > 0 && !strings.Contains(string(response), `{"error":{"code":"bad_request"`) {
			t.Errorf("response = %q, want none or the error body", response)
		}
		_ = conn.Close()
		<-ends
	})
}

func TestServer_ClosesIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, taking())
		begun, conn := time.Now(), l.dial()
		response, err := io.ReadAll(conn)
		if len(response) > 0 {
			t.Fatalf("length of response = %v, want at most 0", len(response))
		}
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > 2*time.Minute {
			t.Errorf("time.Since(begun) = %v, want at most %v", time.Since(begun), 2*time.Minute)
		}
		_ = conn.Close()
	})
}
