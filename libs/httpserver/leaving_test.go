package httpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/testkit"
)

func TestServer_StoppingProcessClosesConnectionsAfterResponses(t *testing.T) {
	public, private := free(t), free(t)
	tel, err := telemetry.Start(t.Context(), telemetry.Config{PrivateAddr: private, LogFormat: "text"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	canceled, hold, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	asked, answers := make(chan struct{}), make(chan struct{})
	handler := delayedHandlers(asked, answers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- service.Run(ctx,
			service.Part{Name: "private", Run: tel.Private},
			service.Part{Name: "http", Run: (&Server{Addr: public, Handler: handler}).Run},
			service.Part{Name: "hold", Run: func(ctx context.Context) error {
				<-ctx.Done()
				close(canceled)
				<-hold
				return nil
			}},
		)
	}()
	testkit.NoError(t, func() error {
		answer, err := http.Get("http://" + private + "/readyz")
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /readyz = %d", answer.StatusCode)
		}
		conn, err := net.Dial("tcp", public)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	post := func() (status int, closes bool) {
		t.Helper()
		answer, err := http.Post("http://"+public+"/v1/calls", "application/json", strings.NewReader(`{"to":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, answer.Close
	}
	if status, closes := post(); status != http.StatusAccepted {
		t.Errorf("before: status = %v, want %v", status, http.StatusAccepted)
	} else if closes {
		t.Error("before: closes = true, want false")
	}
	before := make(chan error)
	for _, path := range []string{"/body", "/status", "/flush", "/nothing"} {
		go func() {
			answer, err := http.Get("http://" + public + path)
			if err == nil {
				_ = answer.Body.Close()
				if !answer.Close {
					err = fmt.Errorf("%s keeps the connection", path)
				}
			}
			before <- err
		}()
		<-asked
	}
	cancel()
	<-canceled
	close(answers)
	for range 4 {
		if err := <-before; err != nil {
			t.Errorf("request before the stop, response during the stop: %v", err)
		}
	}
	for range 2 {
		if status, closes := post(); status != http.StatusAccepted {
			t.Errorf("leaving: status = %v, want %v", status, http.StatusAccepted)
		} else if !closes {
			t.Error("leaving: closes = false, want true")
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
		t.Error("a listener is still open")
	}
}

// delayedHandlers returns handlers that respond only when the test sends to the channel answers.
// They begin their responses with a body, with a status, with a flush, or by returning.
func delayedHandlers(asked chan<- struct{}, answers <-chan struct{}) http.Handler {
	handler := http.NewServeMux()
	handler.Handle("/", taking())
	for _, answer := range []struct {
		path string
		how  func(w http.ResponseWriter)
	}{
		{"/body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("late")) }},
		{"/status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }},
		{"/flush", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }},
		{"/nothing", func(http.ResponseWriter) {}},
	} {
		handler.HandleFunc(answer.path, func(w http.ResponseWriter, _ *http.Request) {
			asked <- struct{}{}
			<-answers
			answer.how(w)
		})
	}
	return handler
}

func free(t *testing.T) string {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}
