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

// closeTimeout ends a wait for a connection that is never closed.
const closeTimeout = time.Minute

// net/http lets a dial go on after its request has ended, so the handshake needs a bound of its
// own.
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
		for err == nil { // the hello, then the end
			_, err = conn.Read(make([]byte, 4096))
		}
		closed <- err
	}()
	answer := client(t, 2*time.Second).Send(t.Context(), work("https://"+silent.Addr().String()))
	requireEqual(t, "failure", answer.Failure, deliveries.Timeout)
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open %s after it was accepted, want it closed after the attempt", closeTimeout)
	}
}

// After a 101 net/http hands the bare connection over as the body, and no deadline of the request
// ends a read from it.
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
	answer := client(t, longTimeout).Send(t.Context(), work(server.URL))
	requireEqual(t, "failure", answer.Failure, deliveries.BadStatus)
	requireEqual(t, "code", answer.Code, http.StatusSwitchingProtocols)
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open %s after the response, want it closed", closeTimeout)
	}
}
