package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// troubledCarrier is a fake carrier that can refuse calls or be unreachable.
type troubledCarrier struct {
	refuses, absent atomic.Bool
	// callCount is the number of calls that the dialer originated. When callCount reaches lastCall,
	// the carrier becomes unreachable.
	callCount, lastCall atomic.Int64
}

func (c *troubledCarrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/healthz" && c.absent.Load():
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/healthz":
	case r.URL.Path == "/originate":
		if c.callCount.Add(1) == c.lastCall.Load() {
			c.absent.Store(true)
		}
		if c.refuses.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/events":
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"feed": "a", "data": []any{}})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestCircuit_OpensAfterRefusalsAndClosesAfterASuccess(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	c := &troubledCarrier{}
	c.refuses.Store(true)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	private := freeAddr(t)
	p := r.dialer("SIM_URL="+server.URL, "CIRCUIT_FAILURES=3", "CIRCUIT_REST=200ms", "PRIVATE_ADDR="+private)
	open := func(state string) bool {
		return strings.Contains(body(t, "http://"+private+"/metrics"), `ringfence_dialer_circuit_state{state="`+state+`",trunk="sim"} 1`)
	}
	for n := range 3 {
		if n == 2 {
			c.absent.Store(true) // the carrier cannot be reached, so no call succeeds and the circuit stays open
		}
		if end := last(r.ends(r.request(fmt.Sprintf("+141555504%02d", n)))); end.GetCall().GetErrorCode() != "provider_unavailable" {
			t.Fatalf("call %d ended %v", n, end)
		}
	}
	await(t, "the circuit is open", func() bool { return open("open") })
	for n := range 8 {
		r.request(fmt.Sprintf("+141555505%02d", n))
	}
	queued := func() (n int) {
		if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM dial_queue WHERE state = 'queued'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, "all call requests are queued", func() bool { return queued() == 8 })
	c.lastCall.Store(4)
	c.absent.Store(false)
	await(t, "a probe failed", func() bool { return c.callCount.Load() >= 4 })
	await(t, "the circuit is open again", func() bool { return open("open") })
	if n := c.callCount.Load(); n > 5 {
		t.Errorf("n = %v, want at most 5", n)
	} else if got := queued(); got < 6 {
		t.Errorf("queued() = %v, want at least 6", got)
	}
	c.refuses.Store(false)
	c.absent.Store(false)
	await(t, "all call requests are dialed", func() bool { return queued() == 0 && c.callCount.Load() == 11 })
	await(t, "the circuit is closed", func() bool { return open("closed") })
	for _, line := range []string{"carrier circuit breaker opened", "carrier circuit breaker closed"} {
		if !strings.Contains(p.output(), line) {
			t.Errorf("no line says %q", line)
		}
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		return ""
	}
	return text.String()
}

func TestQueue_LimitsAreKeptIfDialersAreHaltedOrKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.1")
	first, second := r.dialer("TRUNK_CHANNELS=10"), r.dialer("TRUNK_CHANNELS=10")
	r.awaitIdle("+14155560690")
	var ids []uuid.UUID
	for n := range 80 {
		ids = append(ids, r.request(fmt.Sprintf("+141555607%02d", n)))
	}
	rows := func(query string) (n int) {
		if err := r.pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	over := func() int { return rows("SELECT count(*) FROM dial_queue WHERE state NOT IN ('queued', 'dialing')") }
	await(t, "all call requests are queued", func() bool { return rows("SELECT count(*) FROM dial_queue") == 81 })
	resume := pause(t, first)
	before := over()
	await(t, "the other dialer continues", func() bool { return over() >= min(before+15, 60) })
	resume()
	second.kill()
	r.dialer("TRUNK_CHANNELS=10")
	for n, id := range ids {
		wantOneDial(t, r, fmt.Sprintf("+141555607%02d", n), r.ends(id))
	}
	await(t, "no call request is claimed or in a call", func() bool { return r.inUse() == 0 })
	if most := r.maxConcurrent(); most > 9 {
		t.Errorf("%d calls at once on a trunk that leaves 9 to one workspace", most)
	}
}

func (r *rig) maxConcurrent() (most int) {
	r.t.Helper()
	var page struct{ Data []logLine }
	r.carrier(http.MethodGet, "/log?after=0", "", &page)
	live := map[string]bool{}
	for _, line := range page.Data {
		switch line.Kind {
		case "originate":
			live[line.CallID] = true
		case "hangup":
			delete(live, line.CallID)
		}
		most = max(most, len(live))
	}
	return most
}

func TestQueue_BacklogOfOneWorkspaceDoesNotDelayAnotherWorkspace(t *testing.T) {
	t.Parallel()
	// One workspace is allowed to use 18 of the 20 channels. The backlog occupies them for more
	// than a minute, because each call lasts longer than one second.
	r := newRig(t, "0.5")
	big := r.within(t)
	big.workspace, big.agent = uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	big.announce(true, false)
	_, err := r.pool.Exec(t.Context(), `
		INSERT INTO dial_queue
			(call_request_id, workspace_id, state, to_e164, agent_id, max_call_seconds, queued_at, due_at, look_at)
		SELECT gen_random_uuid(), $1, 'queued', '+1415' || (2000000 + 100 * n), $2, 600, now(), now(), now()
		FROM generate_series(1, 2000) n`, big.workspace, big.agent)
	if err != nil {
		t.Fatalf("insert the backlog: %v", err)
	}
	p := r.dialer("TRUNK_CHANNELS=20", "TRUNK_CALLS_PER_SECOND=40")
	await(t, "the backlog uses its share of the trunk", func() bool {
		return r.inUse() >= 18
	})
	var ids []uuid.UUID
	for n := range 4 {
		ids = append(ids, r.request(fmt.Sprintf("+141555091%02d", n)))
	}
	for n, id := range ids {
		if got := names(r.ends(id)); got != talked {
			t.Errorf("events of request %d = %q, want %q", n, got, talked)
		}
	}
	var left int
	err = r.pool.QueryRow(t.Context(),
		"SELECT count(*) FROM dial_queue WHERE workspace_id = $1 AND state = 'queued'", big.workspace).Scan(&left)
	if err != nil {
		t.Fatalf("count the backlog: %v", err)
	}
	if left == 0 {
		t.Error("backlog after 4 requests of the other workspace = 0, want more than 0 of 2000")
	}
	p.kill()
}
