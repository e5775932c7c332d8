package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit"
)

func receiverEndpoint(t *testing.T) (*receiver, *httptest.Server) {
	t.Helper()
	r := &receiver{lanes: map[string]*lane{}}
	server := httptest.NewUnstartedServer(r)
	server.Listener = noting{server.Listener}
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, underneath(c))
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return r, server
}

func post(ctx context.Context, server *httptest.Server, path, attempt string, event uuid.UUID) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-Service-Event-Id", event.String())
	req.Header.Set("X-Service-Delivery-Attempt", attempt)
	resp, err := server.Client().Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestReceiver_RespondsByPathAndRecordsTheTimeOfTheFirstByte(t *testing.T) {
	t.Parallel()
	r, server := receiverEndpoint(t)
	last := time.Now().UnixNano()
	for n, test := range []struct {
		path, attempt string
		want          int
	}{{"/take/a/1", "1", 200}, {"/refuse/a/1", "1", 503}, {"/refuse/a/2", "2", 200}} {
		event := uuid.New()
		got, err := post(t.Context(), server, test.path, test.attempt, event)
		if err != nil {
			t.Fatalf("%s attempt %s: %v", test.path, test.attempt, err)
		}
		if got != test.want {
			t.Errorf("%s attempt %s = %d, want %d", test.path, test.attempt, got, test.want)
		}
		all := r.lane("a").arrivals
		if len(all) != n+1 {
			t.Fatalf("arrivals = %d, want %d", len(all), n+1)
		}
		if got := all[n].Event; got != event {
			t.Errorf("last event = %s, want %s", got, event)
		}
		if got := all[n].At; got < last {
			t.Errorf("arrival = %d, want at least %d", got, last)
		}
		if now := time.Now().UnixNano(); all[n].At > now {
			t.Errorf("arrival = %d, want at most %d", all[n].At, now)
		}
		// the first byte of the next request on this connection must have a later time
		last = time.Now().UnixNano()
	}
}

func TestReceiver_HangsUntilTheSenderDisconnects(t *testing.T) {
	t.Parallel()
	r, server := receiverEndpoint(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := post(ctx, server, "/hang/h/1", "1", uuid.New())
		done <- err
	}()
	await := func(open int64) {
		t.Helper()
		err := kit.Until(t.Context(), kit.HangTimeout, fmt.Sprintf("%d requests are open", open), func() (bool, error) {
			return r.lane("h").open.Load() == open, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await(1)
	cancel()
	if err := <-done; err == nil {
		t.Error("it answered")
	}
	await(0)
}
