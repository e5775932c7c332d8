package dispatch_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// A hangingEndpoint does not respond until release is called.
type hangingEndpoint struct {
	URL      string
	mu       sync.Mutex
	now      int
	most     int
	all      int
	released chan struct{}
	once     sync.Once
}

func newHangingEndpoint(t *testing.T) *hangingEndpoint {
	t.Helper()
	h := &hangingEndpoint{released: make(chan struct{})}
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.ReadAll(req.Body)
		h.count(1)
		defer h.count(-1)
		select {
		case <-h.released:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(h.release)
	h.URL = server.URL
	return h
}

func (h *hangingEndpoint) release() { h.once.Do(func() { close(h.released) }) }

func (h *hangingEndpoint) count(by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += by
	h.all += max(0, by)
	h.most = max(h.most, h.now)
}

// requestCounts returns the number of open requests, the number of all requests so far, and the
// highest number of requests that were open at the same time.
func (h *hangingEndpoint) requestCounts() (now, all, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now, h.all, h.most
}

func (r *fixture) longTimeouts() dispatch.Config {
	r.client.Timeout = testkit.Timeout
	cfg := config()
	cfg.Lease = 2 * testkit.Timeout
	return cfg
}

func (r *fixture) subscribeOtherWorkspace(url string, n int) uuid.UUID {
	r.t.Helper()
	r.workspace = uuid.Must(uuid.NewV7())
	id, _ := r.subscribe(url)
	r.ingestMore(n)
	return id
}

func (r *fixture) ingestMore(n int) {
	r.t.Helper()
	events := make([]deliveries.Event, n)
	for i := range events {
		events[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(events...)
}

// releaseAtCleanup releases the endpoints before another cleanup stops the dispatcher, because the
// dispatcher waits for its requests.
func releaseAtCleanup(t *testing.T, all ...*hangingEndpoint) {
	t.Cleanup(func() {
		for _, h := range all {
			h.release()
		}
	})
}

func TestHangingEndpoints_DoNotDelayAHealthyEndpoint(t *testing.T) {
	t.Parallel()
	// few endpoints are enough here, because TestLimits_HangingEndpointsDoNotUseAllRequests uses up
	// to 1000 endpoints
	for _, n := range []int{1, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			cfg := r.longTimeouts()
			bad := make([]*hangingEndpoint, n)
			for i := range bad {
				bad[i] = newHangingEndpoint(t)
				r.subscribeOtherWorkspace(bad[i].URL, 30)
			}
			d := r.dispatch(cfg)
			releaseAtCleanup(t, bad...)
			d.Wake()
			testkit.NoError(t, func() error {
				for i, h := range bad {
					if now, _, _ := h.requestCounts(); now == 0 {
						return fmt.Errorf("endpoint %d of %d has no request", i, n)
					}
				}
				return nil
			})
			healthy := newReceiver(t, nil)
			r.subscribeOtherWorkspace(healthy.URL, 200)
			d.Wake()
			healthy.await(t, 200)
			for i := range 20 {
				r.ingestMore(1)
				d.Wake()
				healthy.await(t, 201+i)
			}
			open := 0
			for _, h := range bad {
				now, all, _ := h.requestCounts()
				if open += now; now != all {
					t.Fatalf("requests to hanging endpoints that ended = %d of %d, want 0", all-now, all)
				}
			}
			if open >= cfg.MaxInFlight*3/4 {
				t.Errorf("requests in flight of %[2]d that hang = %[1]d, want less than three quarters", open, cfg.MaxInFlight)
			}
		})
	}
}

func TestHangingEndpoints_OfOneHostShareTheLimitOfTheHost(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cfg := r.longTimeouts()
	r.client.MaxPerHost = 20
	bad := newHangingEndpoint(t)
	for range 50 {
		r.subscribeOtherWorkspace(bad.URL, 10)
	}
	d := r.dispatch(cfg)
	releaseAtCleanup(t, bad)
	d.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := bad.requestCounts(); now < 20 {
			return fmt.Errorf("open requests = %d, want the limit of 20", now)
		}
		return nil
	})
	healthy := newReceiver(t, nil)
	r.subscribeOtherWorkspace(healthy.URL, 300)
	d.Wake()
	healthy.await(t, 300)
	now, all, most := bad.requestCounts()
	wantEqual(t, "open requests to the host", now, 20)
	wantEqual(t, "requests to the host", all, 20)
	wantEqual(t, "most requests at the same time", most, 20)
	bad.release()
	// after the release, the host must still not receive more than 20 requests at the same time
	r.awaitEmptyQueue()
	_, all, most = bad.requestCounts()
	wantEqual(t, "requests to the host", all, 500)
	wantEqual(t, "most requests at the same time", most, 20)
}

func TestResume_StartsWithOnlyTwoRequestsInFlight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cfg := r.longTimeouts()
	back := newHangingEndpoint(t)
	id := r.subscribeOtherWorkspace(back.URL, 200)
	r.setStatus(id, subscriptions.Paused)
	d := r.dispatch(cfg)
	releaseAtCleanup(t, back)
	r.setStatus(id, subscriptions.Active)
	d.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := back.requestCounts(); now < 2 {
			return fmt.Errorf("open requests = %d, want 2", now)
		}
		return nil
	})
	// When this other endpoint has received its deliveries, the dispatcher has read the queue
	// several times.
	other := newReceiver(t, nil)
	resumed := r.workspace
	r.subscribeOtherWorkspace(other.URL, 0)
	for i := range 20 {
		r.ingestMore(1)
		d.Wake()
		other.await(t, i+1)
	}
	if _, all, _ := back.requestCounts(); all != 2 {
		t.Errorf("requests before the first response = %d, want 2", all)
	}
	r.workspace = resumed
	back.release()
	r.awaitEmptyQueue()
	if _, all, _ := back.requestCounts(); all != 200 {
		t.Errorf("requests = %d, want 200", all)
	}
}

func TestReplicas_HaveSeparateLimitsAndSendEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cfg := r.longTimeouts()
	bad := newHangingEndpoint(t)
	const backlog = 300
	r.subscribeOtherWorkspace(bad.URL, backlog)
	one, two := r.dispatch(cfg), r.dispatch(cfg)
	releaseAtCleanup(t, bad)
	one.Wake()
	two.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := bad.requestCounts(); now < 4 {
			return fmt.Errorf("requests in flight = %d, want 2 of each replica", now)
		}
		return nil
	})
	healthy := newReceiver(t, nil)
	r.subscribeOtherWorkspace(healthy.URL, backlog)
	one.Wake()
	two.Wake()
	healthy.await(t, backlog)
	if _, all, _ := bad.requestCounts(); all != 4 {
		t.Errorf("requests to the hanging endpoint = %d, want 4", all)
	}
	bad.release()
	r.awaitEmptyQueue()
	_, all, _ := bad.requestCounts()
	wantEqual(t, "requests to the hanging endpoint", all, backlog)
	wantEqual(t, "requests to the healthy endpoint", len(healthy.all()), backlog)
}

func TestHost_SubscriptionsOfOneHostShareItsLimit(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cfg := r.longTimeouts()
	r.client.MaxPerHost = 5
	shared := newHangingEndpoint(t)
	d := r.dispatch(cfg)
	releaseAtCleanup(t, shared)
	const subs, each = 20, 10
	for range subs {
		r.subscribeOtherWorkspace(shared.URL, 0)
		events := make([]deliveries.Event, each)
		for i := range events {
			events[i] = r.event(uuid.New(), 1, "call.completed")
		}
		r.ingestAndAdd(d, events...)
		r.ingestMore(each)
		d.Wake()
	}
	testkit.NoError(t, func() error {
		if now, _, _ := shared.requestCounts(); now < 5 {
			return fmt.Errorf("open requests = %d, want the limit of 5", now)
		}
		return nil
	})
	shared.release()
	r.awaitEmptyQueue()
	_, all, most := shared.requestCounts()
	wantEqual(t, "requests to the host", all, 2*subs*each)
	wantEqual(t, "most requests at the same time", most, 5)
}

func TestHangingEndpoints_DoNotDelayEventsOfAHealthyEndpoint(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cfg := r.longTimeouts()
	cfg.Poll = time.Hour
	bad := make([]*hangingEndpoint, 20)
	for i := range bad {
		bad[i] = newHangingEndpoint(t)
		r.subscribeOtherWorkspace(bad[i].URL, 10)
	}
	healthy := newReceiver(t, nil)
	r.subscribeOtherWorkspace(healthy.URL, 0)
	d := r.dispatch(cfg)
	releaseAtCleanup(t, bad...)
	d.Wake()
	testkit.NoError(t, func() error {
		for i, h := range bad {
			if now, _, _ := h.requestCounts(); now == 0 {
				return fmt.Errorf("endpoint %d has no request", i)
			}
		}
		return nil
	})
	const events = 50
	for i := range events {
		r.ingestAndAdd(d, r.event(uuid.New(), 1, "call.completed"))
		healthy.await(t, i+1)
	}
}
