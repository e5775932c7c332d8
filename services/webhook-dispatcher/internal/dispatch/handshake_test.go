package dispatch_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

const closeTimeout = time.Minute

// net/http can continue a TLS handshake after the request has ended, so the handshake needs its own
// timeout.
func TestSend_ClosesAConnectionWithoutATLSHandshake(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	closed := make(chan error, 1)
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
		for err == nil {
			_, err = conn.Read(make([]byte, 4096))
		}
		closed <- err
	}()
	response := client(t, 2*time.Second).Send(t.Context(), work("https://"+silent.Addr().String()))
	requireEqual(t, "failure", response.Failure, deliveries.Timeout)
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open %s after it was accepted, want it to be closed after the attempt", closeTimeout)
	}
}

// After status 101, the response body is the connection itself, and the deadline of the request
// does not interrupt reads from the body.
func TestSend_ClosesAConnectionThatSwitchedProtocols(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 8)
	server := testReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
		_, err = conn.Read(make([]byte, 1))
		closed <- err
	})
	response := client(t, longTimeout).Send(t.Context(), work(server.URL))
	requireEqual(t, "failure", response.Failure, deliveries.BadStatus)
	requireEqual(t, "code", response.Code, http.StatusSwitchingProtocols)
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open %s after the response, want it to be closed", closeTimeout)
	}
}
