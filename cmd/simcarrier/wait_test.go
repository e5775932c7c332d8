package main_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/cmd/simcarrier"
)

// localNetwork is a simulated network whose handler is called directly, so that it uses the clock
// of synctest.
type localNetwork struct {
	*testing.T
	*main.Network
}

func newLocal(t *testing.T) localNetwork {
	t.Helper()
	x, err := main.New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Journal().Close() })
	return localNetwork{t, x}
}

func (l localNetwork) request(method, target, body string) (status, events int) {
	l.Helper()
	return l.requestUntil(l.Context(), method, target, body)
}

func (l localNetwork) requestUntil(ctx context.Context, method, target, body string) (status, events int) {
	l.Helper()
	response := httptest.NewRecorder()
	l.Handler().ServeHTTP(response, httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)))
	var page struct{ Data []any }
	_ = json.Unmarshal(response.Body.Bytes(), &page) // some responses have no body
	return response.Code, len(page.Data)
}

func TestEvents_LongPollReturnsWithTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := newLocal(t), time.Now()
		events := make(chan int)
		go func() {
			_, got := l.request(http.MethodGet, "/events?after=0&wait=20000", "")
			events <- got
		}()
		synctest.Wait()
		if err := l.Originate(uuid.NewString(), "+15005550006", "+14155550190", nil); err != nil {
			t.Fatal(err)
		}
		if got := <-events; got == 0 {
			t.Error("events = 0, want at least 1")
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("the poll took %v, want 0s", got)
		}
	})
}

func TestEvents_LongPollIgnoresEventsThatAFaultHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t)
		l.request(http.MethodPost, "/faults", `{"fault":"lose"}`)
		l.request(http.MethodPost, "/originate", `{"call_id":"`+uuid.NewString()+`","to":"+14155550190"}`)
		synctest.Wait()
		began := time.Now()
		if _, got := l.request(http.MethodGet, "/events?after=0&wait=300", ""); got != 0 {
			t.Errorf("events = %d, want 0", got)
		}
		if got, want := time.Since(began), 300*time.Millisecond; got != want {
			t.Errorf("the poll took %v, want %v", got, want)
		}
	})
}

func TestFault_DelayedRequestIsDialedEvenIfTheClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began, id := newLocal(t), time.Now(), uuid.NewString()
		l.request(http.MethodPost, "/faults", `{"fault":"late","delay_ms":2000}`)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.requestUntil(ctx, http.MethodPost, "/originate", `{"call_id":"`+id+`","to":"+14155550190"}`)
		}()
		synctest.Wait()
		leave()
		if got, _ := l.request(http.MethodGet, "/calls/"+id, ""); got != http.StatusNotFound {
			t.Errorf("GET call before the delay = %d, want 404", got)
		}
		<-done
		if got, want := time.Since(began), 2*time.Second; got != want {
			t.Errorf("originate took %v, want %v", got, want)
		}
		if got, _ := l.request(http.MethodGet, "/calls/"+id, ""); got != http.StatusOK {
			t.Errorf("GET call after the delay = %d, want 200", got)
		}
	})
}
