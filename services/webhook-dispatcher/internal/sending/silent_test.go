package sending_test

import (
	"errors"
	"net"
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
	answer := client(t, 200*time.Millisecond).Send(t.Context(), work("https://"+silent.Addr().String()))
	if answer.Failure != delivery.Timeout {
		t.Errorf("Send = %+v, want a timeout", answer)
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("10 s after the attempt its connection is still open")
	}
}
