package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/libs/testkit"
)

// The response continues after the time limit of the router.
func TestUntimed_ContextEndsWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, disconnect := context.WithCancel(t.Context())
		request := httptest.NewRequestWithContext(client, http.MethodGet, "/", http.NoBody)
		limitTime(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, stop := Untimed(context.WithValue(r.Context(), testKey{}, "kept"))
			defer stop()
			if got := ctx.Value(testKey{}); got != "kept" {
				t.Errorf("value = %v, want kept", got)
			}
			time.Sleep(2 * handlerTimeout)
			if r.Context().Err() == nil {
				t.Error("the request has no time limit")
			}
			if err := ctx.Err(); err != nil {
				t.Errorf("after the time limit: %v, want nil", err)
			}
			disconnect()
			<-ctx.Done()
		})).ServeHTTP(httptest.NewRecorder(), request)
	})
}

type testKey struct{}

func TestClosing_ChannelIsClosedAtShutdown(t *testing.T) {
	t.Parallel()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	opened, ended := make(chan struct{}, 1), make(chan error, 1)
	server := &Server{Addr: addr, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		opened <- struct{}{}
		<-Closing(r.Context())
	})}
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- server.Run(ctx) }()
	go func() {
		for ctx.Err() == nil { // repeat the request until the server listens
			if response, err := http.Get("http://" + addr); err == nil {
				_ = response.Body.Close()
			}
		}
	}()
	<-opened
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
