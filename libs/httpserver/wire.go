package httpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
)

// wire lets the answers that net/http gives by itself, before any handler, carry the error body too: it answers what it cannot read
// as a request in text/plain, or with nothing.
type wire struct {
	net.Listener
	header http.Header
}

// Accept waits for the next connection.
func (l wire) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	return &wireConn{Conn: conn, header: l.header}, nil
}

type wireConn struct {
	net.Conn
	header http.Header
}

// Write replaces an answer of net/http's own. Those of handlers have Service-Version.
func (c *wireConn) Write(answer []byte) (int, error) {
	status := bareStatus(answer)
	if status == 0 {
		return c.Conn.Write(answer) //nolint:wrapcheck // net/http looks at it
	}
	if _, err := c.Conn.Write(bareAnswer(status, c.header)); err != nil {
		return 0, err //nolint:wrapcheck // as above
	}
	return len(answer), nil
}

// CloseWrite lets net/http end its side first, so that the client can still read a refusal.
func (c *wireConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return nil
}

// bareStatus is the status of a refusal that no handler wrote; 0 for everything else.
func bareStatus(answer []byte) int {
	status, rest, ok := bytes.Cut(answer, []byte(" "))
	if !ok || !bytes.HasPrefix(status, []byte("HTTP/1.")) || len(rest) < 3 {
		return 0
	}
	head, _, whole := bytes.Cut(rest, []byte("\r\n\r\n"))
	code, err := strconv.Atoi(string(rest[:3]))
	if err != nil || code < http.StatusBadRequest || !whole || bytes.Contains(head, []byte("\r\nService-Version: ")) {
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
	_ = header.Write(&answer) // into memory
	answer.WriteString("\r\n")
	answer.Write(body)
	return answer.Bytes()
}
