package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
)

// serveWire serves on the listener, over TLS if certificate is not nil. If net/http cannot read the
// bytes as a request, it responds with plain text and calls no handler. serveWire adds the error
// body and the given header to such a response.
func serveWire(server *http.Server, listener net.Listener, certificate *Certificate, header http.Header) error {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(wireKey{}).(*wireConn); ok && conn != nil {
			conn.handlerRunning.Store(true)
		}
		handler.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, wireKey{}, wireConnOf(conn))
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		// the response is complete, so later bytes can be an error response of net/http
		if conn := wireConnOf(conn); conn != nil && state == http.StateIdle {
			conn.handlerRunning.Store(false)
		}
	}
	var accepted net.Listener = wireListener{listener, header}
	if certificate != nil {
		accepted = newTLSListener(listener, certificate, header)
	}
	return server.Serve(accepted) //nolint:wrapcheck // the caller compares this error
}

// wireConnOf returns the wireConn of a connection, or nil if the connection uses HTTP/2.
func wireConnOf(conn net.Conn) *wireConn {
	switch conn := conn.(type) {
	case *wireConn:
		return conn
	case *wireTLSConn:
		return &conn.wireConn
	}
	return nil
}

type wireKey struct{}

// wireListener is a listener whose connections replace the error responses of net/http.
type wireListener struct {
	net.Listener
	header http.Header
}

// Accept waits for the next connection.
func (l wireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http compares this error, so return it unwrapped
	}
	return &wireConn{Conn: conn, header: l.header}, nil
}

type wireConn struct {
	net.Conn
	header http.Header
	// handlerRunning is true from the start of a handler until its response is complete. Bytes that
	// are written during this time are the handler's response and must not be changed.
	handlerRunning atomic.Bool
}

// Write replaces an error response of net/http with an error response of the API.
func (c *wireConn) Write(answer []byte) (int, error) {
	if c.handlerRunning.Load() {
		return c.Conn.Write(answer) //nolint:wrapcheck // net/http compares this error, so return it unwrapped
	}
	status := bareStatus(answer)
	if status == 0 {
		return c.Conn.Write(answer) //nolint:wrapcheck // net/http compares this error, so return it unwrapped
	}
	if _, err := c.Conn.Write(bareAnswer(status, c.header)); err != nil {
		return 0, err //nolint:wrapcheck // net/http compares this error, so return it unwrapped
	}
	return len(answer), nil
}

// CloseWrite lets net/http close only the server's side of the connection, so that the client can
// still read the error response.
func (c *wireConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // net/http compares this error, so return it unwrapped
	}
	return nil
}

// bareStatus returns the status of an error response that net/http has written itself. For other
// bytes it returns 0.
func bareStatus(answer []byte) int {
	status, rest, ok := bytes.Cut(answer, []byte(" "))
	if !ok || !bytes.HasPrefix(status, []byte("HTTP/1.")) || len(rest) < 3 {
		return 0
	}
	code, err := strconv.Atoi(string(rest[:3]))
	if err != nil || code < http.StatusBadRequest {
		return 0
	}
	return code
}

func bareAnswer(status int, extra http.Header) []byte {
	code, message := "bad_request", "This cannot be read as an HTTP request. Check the percent-encoding of the path and the headers."
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		code, message = "headers_too_large", "The request line and headers are too large. Send less."
	case http.StatusExpectationFailed:
		code, message = "expectation_failed", "Only Expect: 100-continue is known. Leave the header out."
	}
	return errorAnswer(status, code, message, extra)
}

// errorAnswer returns the bytes of an HTTP/1.1 response with the error body.
func errorAnswer(status int, code, message string, extra http.Header) []byte {
	body, err := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message}})
	if err != nil {
		body = nil
	}
	header := http.Header{}
	maps.Copy(header, extra)
	header.Set("Service-Version", Version)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Connection", "close")
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = header.Write(&answer) // writing to memory cannot fail
	answer.WriteString("\r\n")
	answer.Write(body)
	return answer.Bytes()
}
