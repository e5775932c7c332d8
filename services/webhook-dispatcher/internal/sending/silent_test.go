package sending_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// patience is how long a connection may stay open behind its attempt.
const patience = 10 * time.Second

// net/http lets a dial go on after its request has ended, so the handshake needs a bound of its own.
func TestSend_AnEndpointThatNeverShakesHandsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	accepted, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		close(accepted)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		for err == nil { // the hello, then the end
			_, err = conn.Read(make([]byte, 4096))
		}
		closed <- err
	}()
	for connected := false; !connected; { // an attempt that was over before it had begun is made again
		answer := client(t, time.Second).Send(t.Context(), work("https://"+silent.Addr().String()))
		if answer.Failure != delivery.Timeout {
			t.Fatalf("Send = %+v, want a timeout", answer)
		}
		select {
		case <-accepted:
			connected = true
		default:
		}
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s after the attempt its connection is still open", patience)
	}
}

// After a 101 net/http hands the bare connection over as the body, and no deadline of the request ends a read from it.
func TestSend_AnEndpointThatSwitchesProtocolsIsLetGo(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 8)
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		closed <- err
	})
	answer, took, limit := sendInTime(t, work(server.URL))
	if answer.Failure != delivery.NotOK || answer.Code != http.StatusSwitchingProtocols || took > limit+2*time.Second {
		t.Errorf("Send = %+v after %s of %s, want a failed attempt in bounded time", answer, took, limit)
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s after the attempt its connection is still open", patience)
	}
}
