package httpserver

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
)

// TestServer_LeavingServesAndSendsAway: a process that was told to stop still answers, asks to close, and is not ready; then nobody can come any more.
func TestServer_LeavingServesAndSendsAway(t *testing.T) {
	public, private := free(t), free(t)
	tel, err := telemetry.Start(t.Context(), telemetry.Config{PrivateAddr: private, LogFormat: "text"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	told, hold, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- service.Run(ctx,
			service.Part{Name: "private", Run: tel.Private},
			service.Part{Name: "http", Run: (&Server{Addr: public, Handler: taking()}).Run},
			service.Part{Name: "hold", Run: func(ctx context.Context) error { <-ctx.Done(); close(told); <-hold; return nil }},
		)
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if answer, err := http.Get("http://" + private + "/readyz"); err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK {
			if conn, err := net.Dial("tcp", public); err == nil && conn.Close() == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not come up")
		}
	}
	post := func() (status int, closes bool) {
		t.Helper()
		answer, err := http.Post("http://"+public+"/v1/calls", "application/json", strings.NewReader(`{"to":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, answer.Close
	}
	if status, closes := post(); status != http.StatusAccepted || closes {
		t.Errorf("before: %d, close %v, want 202 on a connection that is kept", status, closes)
	}
	cancel()
	<-told
	for range 2 {
		if status, closes := post(); status != http.StatusAccepted || !closes {
			t.Errorf("leaving: %d, close %v, want 202 and a close", status, closes)
		}
	}
	answer, err := http.Get("http://" + private + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d while it leaves, want 503", answer.StatusCode)
	}
	close(hold)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", public); err == nil {
		t.Error("somebody still listens")
	}
}

func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
