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

// net/http lets a dial go on after its request has ended, so the handshake needs a bound of its own.
func TestSend_AnEndpointThatNeverShakesHandsKeepsNoConnection(t *testing.T) {
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
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		for err == nil { // the hello, then the end
			_, err = conn.Read(make([]byte, 4096))
		}
		closed <- err
	}()
	answer := client(t, time.Second).Send(t.Context(), work("https://"+silent.Addr().String()))
	if answer.Failure != delivery.Timeout {
		t.Errorf("Send = %+v, want a timeout", answer)
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("10 s after the attempt its connection is still open")
	}
}

// After a 101 net/http hands the bare connection over as the body, and no deadline of the request ends a read from it.
func TestSend_AnEndpointThatSwitchesProtocolsIsLetGo(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Read(make([]byte, 1))
		closed <- err
	})
	answer := client(t, 3*time.Second).Send(t.Context(), work(server.URL)) // time enough for the 101, on a busy machine
	if answer.Failure != delivery.NotOK || answer.Code != http.StatusSwitchingProtocols || answer.Took > 5*time.Second {
		t.Errorf("Send = %+v, want a failed attempt in bounded time", answer)
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("10 s after the attempt its connection is still open")
	}
}
