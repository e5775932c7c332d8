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

// holding is an endpoint that answers nothing until it is let go, and counts what is open.
type holding struct {
	URL  string
	mu   sync.Mutex
	now  int
	most int
	all  int
	gone chan struct{}
	once sync.Once
}

func newHolding(t *testing.T) *holding {
	t.Helper()
	h := &holding{gone: make(chan struct{})}
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.ReadAll(req.Body)
		h.count(1)
		defer h.count(-1)
		select {
		case <-h.gone:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(h.letGo)
	h.URL = server.URL
	return h
}

func (h *holding) letGo() { h.once.Do(func() { close(h.gone) }) }

func (h *holding) count(by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += by
	h.all += max(0, by)
	h.most = max(h.most, h.now)
}

// open is how many requests it holds now; all is how many there were, most how many at once.
func (h *holding) open() (now, all, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now, h.all, h.most
}

// patient makes attempts and leases longer than any test: what hangs hangs to its end.
func (r *rig) patient() dispatch.Config {
	r.sending.Timeout = testkit.Timeout
	cfg := config()
	cfg.Lease = 2 * testkit.Timeout
	return cfg
}

// elsewhere subscribes a url in a workspace of its own and queues n events for it.
func (r *rig) elsewhere(url string, n int) uuid.UUID {
	r.t.Helper()
	r.workspace = uuid.Must(uuid.NewV7())
	id, _ := r.subscribe(url)
	r.more(n)
	return id
}

// more queues n more events for the subscriptions of the present workspace.
func (r *rig) more(n int) {
	r.t.Helper()
	events := make([]deliveries.Event, n)
	for i := range events {
		events[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(events...)
}

// stopFirst lets go what hangs before the dispatcher is stopped, which waits for its requests.
func stopFirst(t *testing.T, all ...*holding) {
	t.Cleanup(func() {
		for _, h := range all {
			h.letGo()
		}
	})
}

func TestHanging_ManyAtOnceDelayNobodyElse(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 20} { // TestLimits_EndpointsThatHangLeaveRoom has up to 1000
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.patient()
			bad := make([]*holding, n)
			for i := range bad {
				bad[i] = newHolding(t)
				r.elsewhere(bad[i].URL, 30)
			}
			d := r.dispatch(cfg)
			stopFirst(t, bad...)
			d.Wake()
			testkit.NoError(t, func() error {
				for i, h := range bad {
					if now, _, _ := h.open(); now == 0 {
						return fmt.Errorf("endpoint %d of %d has nothing to hang on", i, n)
					}
				}
				return nil
			})
			// An endpoint nobody knows yet, with a backlog, and then one event after another.
			healthy := newReceiver(t, nil)
			r.elsewhere(healthy.URL, 200)
			d.Wake()
			healthy.await(t, 200)
			for i := range 20 {
				r.more(1)
				d.Wake()
				healthy.await(t, 201+i)
			}
			open := 0
			for _, h := range bad {
				now, all, _ := h.open()
				if open += now; now != all {
					t.Fatalf("%d of %d requests that should hang have ended: the test shows nothing", all-now, all)
				}
			}
			if open >= cfg.MaxInFlight*3/4 {
				t.Errorf("%d of %d requests hang, want less than three quarters", open, cfg.MaxInFlight)
			}
		})
	}
}

func TestHanging_AHostOfManySubscriptionsEndsAtItsCap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient()
	r.sending.MaxPerHost = 20
	bad := newHolding(t)
	for range 50 {
		r.elsewhere(bad.URL, 10)
	}
	d := r.dispatch(cfg)
	stopFirst(t, bad)
	d.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := bad.open(); now < 20 {
			return fmt.Errorf("%d requests open, want the cap of 20", now)
		}
		return nil
	})
	healthy := newReceiver(t, nil)
	r.elsewhere(healthy.URL, 300)
	d.Wake()
	healthy.await(t, 300)
	now, all, most := bad.open()
	wantEqual(t, "open requests to the host", now, 20)
	wantEqual(t, "requests to the host", all, 20)
	wantEqual(t, "most requests at the same time", most, 20)
	bad.letGo()
	r.settled() // its deliveries share the cap until all are sent
	_, all, most = bad.open()
	wantEqual(t, "requests to the host", all, 500)
	wantEqual(t, "most requests at the same time", most, 20)
}

func TestResume_BeginsWithTwo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient()
	back := newHolding(t)
	id := r.elsewhere(back.URL, 200)
	r.setStatus(id, subscriptions.Paused)
	d := r.dispatch(cfg)
	stopFirst(t, back)
	r.setStatus(id, subscriptions.Active)
	d.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := back.open(); now < 2 {
			return fmt.Errorf("%d requests open, want 2", now)
		}
		return nil
	})
	// Another endpoint shows that the dispatcher has looked at the queue again and again.
	other := newReceiver(t, nil)
	resumed := r.workspace
	r.elsewhere(other.URL, 0)
	for i := range 20 {
		r.more(1)
		d.Wake()
		other.await(t, i+1)
	}
	if _, all, _ := back.open(); all != 2 {
		t.Errorf("%d requests before the first was answered, want 2", all)
	}
	r.workspace = resumed
	back.letGo()
	r.settled()
	if _, all, _ := back.open(); all != 200 {
		t.Errorf("%d requests, want each of 200 once", all)
	}
}

func TestReplicas_EachHasItsLimitAndNoneSendsTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient()
	bad := newHolding(t)
	const backlog = 300
	r.elsewhere(bad.URL, backlog)
	one, two := r.dispatch(cfg), r.dispatch(cfg)
	stopFirst(t, bad)
	one.Wake()
	two.Wake()
	testkit.NoError(t, func() error {
		if now, _, _ := bad.open(); now < 4 {
			return fmt.Errorf("%d requests in flight, want 2 of each replica", now)
		}
		return nil
	})
	healthy := newReceiver(t, nil)
	r.elsewhere(healthy.URL, backlog)
	one.Wake()
	two.Wake()
	healthy.await(t, backlog)
	if _, all, _ := bad.open(); all != 4 {
		t.Errorf("requests to the endpoint that hangs = %d, want 4", all)
	}
	bad.letGo()
	r.settled()
	_, all, _ := bad.open()
	wantEqual(t, "requests to the endpoint that hung", all, backlog)
	wantEqual(t, "requests to the healthy endpoint", len(healthy.all()), backlog)
}

func TestHost_CapHoldsOverAllSubscriptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient()
	r.sending.MaxPerHost = 5
	shared := newHolding(t)
	d := r.dispatch(cfg)
	stopFirst(t, shared)
	const subs, each = 20, 10
	for range subs {
		r.elsewhere(shared.URL, 0)
		events := make([]deliveries.Event, each)
		for i := range events {
			events[i] = r.event(uuid.New(), 1, "call.completed")
		}
		r.through(d, events...)
		r.more(each)
		d.Wake()
	}
	testkit.NoError(t, func() error {
		if now, _, _ := shared.open(); now < 5 {
			return fmt.Errorf("%d requests open, want the cap of 5", now)
		}
		return nil
	})
	shared.letGo()
	r.settled()
	_, all, most := shared.open()
	wantEqual(t, "requests to the host", all, 2*subs*each)
	wantEqual(t, "most requests at the same time", most, 5)
}

// Events of a healthy endpoint are sent while many other endpoints do not respond.
func TestHanging_EventsOfAHealthyEndpointAreNotDelayed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient()
	cfg.Poll = time.Hour
	bad := make([]*holding, 20)
	for i := range bad {
		bad[i] = newHolding(t)
		r.elsewhere(bad[i].URL, 10)
	}
	healthy := newReceiver(t, nil)
	r.elsewhere(healthy.URL, 0)
	d := r.dispatch(cfg)
	stopFirst(t, bad...)
	d.Wake()
	testkit.NoError(t, func() error {
		for i, h := range bad {
			if now, _, _ := h.open(); now == 0 {
				return fmt.Errorf("endpoint %d has nothing to hang on", i)
			}
		}
		return nil
	})
	const events = 50
	for i := range events {
		r.through(d, r.event(uuid.New(), 1, "call.completed"))
		healthy.await(t, i+1)
	}
}
