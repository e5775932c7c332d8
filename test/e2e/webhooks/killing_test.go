package webhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

const (
	kills = 4
	// maxStoreDelay is the maximum time between the response to an attempt and the commit of the
	// attempt's result. The dispatcher stores results in batches.
	maxStoreDelay = 500 * time.Millisecond
)

// dispatcherKill is one SIGKILL of a dispatcher. settled contains the events that were recorded as
// delivered before the kill.
type dispatcherKill struct {
	begun, ended time.Time
	next         time.Time // the start time of the next process; zero if no process followed
	settled      map[string]bool
}

// interrupted reports whether the dispatcher was killed before the result of the request was
// stored. The receiver can read a request even after its sender died.
func (k dispatcherKill) interrupted(r request) bool {
	left := r.left.After(k.begun) && (k.next.IsZero() || r.left.Before(k.next))
	if k.settled[r.event] {
		return false
	}
	if r.cut {
		return true
	}
	return left || r.at.Before(k.ended)
}

// TestKilling_KilledDispatcherLosesNoEvent kills one of two dispatchers repeatedly while a slow
// endpoint receives a steady stream of events.
func TestKilling_KilledDispatcherLosesNoEvent(t *testing.T) {
	w, chance := stack(t), sharedstack.Seeded(t, 4)
	hooks := w.receive(t)
	hooks.answering(http.StatusOK, 100*time.Millisecond)
	c := w.customer(t, hooks.URL)
	stop, streamed := make(chan struct{}), make(chan []event)
	go func() { streamed <- w.stream(t, c, stop) }()
	var killed []dispatcherKill
	var last time.Time
	for range kills {
		expectNoRequest(t, time.Duration(500+chance.IntN(1000))*time.Millisecond)
		var settled map[string]bool
		until(t, "an attempt is in progress, and the results of answered attempts are stored", func() bool {
			answered := hooks.answeredBetween(last, time.Now().Add(-maxStoreDelay))
			settled = c.settled(t)
			return len(w.Processes()["webhook-dispatcher"]) == replicas &&
				!slices.ContainsFunc(answered, func(r request) bool { return !settled[r.event] }) &&
				slices.ContainsFunc(hooks.all(), func(r request) bool { return r.ended.IsZero() })
		})
		begun := time.Now()
		if len(killed) > 0 {
			killed[len(killed)-1].next = begun
		}
		if !w.KillOne("webhook-dispatcher", chance.IntN(replicas)) {
			t.Fatal("no dispatcher to kill")
		}
		last = time.Now()
		killed = append(killed, dispatcherKill{begun: begun, ended: last, settled: settled})
	}
	close(stop)
	events := <-streamed
	until(t, "every event has arrived", func() bool { return distinct(hooks.all()) >= len(events) })
	until(t, "the result of every delivery is stored", func() bool {
		return c.countQueued(t, "true") == 0 && len(c.deliveries(t, "delivered")) == len(events)
	})
	for _, ev := range events {
		came := hooks.requestsFor(ev.id)
		if judgeRepeats(t, came, c.secret, killed); len(came) == 1 {
			continue
		}
		// The history of a delivery contains stored results only. An attempt without a stored
		// result may be repeated.
		d := c.delivery(t, ev.id)
		if len(d.History) != 1 {
			t.Fatalf("length of d.History = %v, want %v", len(d.History), 1)
		}
		sharedstack.Equal(t, "d.History[0].Attempt", d.History[0].Attempt, came[len(came)-1].attempt)
		sharedstack.Equal(t, "d.ID", d.ID, came[0].delivery)
	}
	cut, answered := 0, 0
	for _, r := range hooks.all() {
		switch {
		case r.cut:
			cut++
		case slices.ContainsFunc(killed, func(k dispatcherKill) bool { return k.interrupted(r) }):
			answered++
		}
	}
	repeats := hooks.count() - len(events)
	t.Logf("%d events, %d kills: %d attempts cut off, %d answered and not surely settled; %d repeats",
		len(events), kills, cut, answered, repeats)
	if repeats > cut+answered {
		t.Errorf("%d repeats, want the %d in flight at most", repeats, cut+answered)
	}
	if cut+repeats == 0 {
		t.Error("no kill met an attempt: the test proves nothing")
	}
}

func (w *testStack) stream(t *testing.T, c *customer, stop <-chan struct{}) (events []event) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return events
		case <-tick.C:
			more := terminalEvents(t, c.ID, 5)
			w.publish(t, more...)
			events = append(events, more...)
		}
	}
}

func (c *customer) settled(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, d := range c.deliveries(t, "delivered") {
		known[d.EventID] = true
	}
	return known
}

// answeredBetween returns the requests that began and had a response between the times after and
// before.
func (b *book) answeredBetween(after, before time.Time) []request {
	return slices.DeleteFunc(b.all(), func(r request) bool {
		whole := !r.cut && !r.ended.IsZero()
		within := r.at.After(after) && r.ended.Before(before)
		return !whole || !within
	})
}

func distinct(all []request) int {
	seen := map[string]bool{}
	for _, r := range all {
		seen[r.event] = true
	}
	return len(seen)
}

// judgeRepeats checks that each repeated request is the same delivery with the same body. The first
// request must have been in progress when a dispatcher was killed, because a repetition is
// permitted only then.
func judgeRepeats(t *testing.T, came []request, secret string, killed []dispatcherKill) {
	t.Helper()
	for i, r := range came {
		sharedstack.Equal(t, "r.signedWith(secret)", r.signedWith(secret), true)
		sharedstack.Equal(t, "r.delivery", r.delivery, came[0].delivery)
		sharedstack.Equal(t, "r.body", string(r.body), string(came[0].body))
		if i == 0 {
			continue
		}
		before := came[i-1]
		if !slices.ContainsFunc(killed, func(k dispatcherKill) bool { return k.interrupted(before) && r.at.After(k.begun) }) {
			t.Errorf("event %s came again %s after attempt %d, which no kill had interrupted", r.event, r.at.Sub(before.at), before.attempt)
		}
		if r.attempt <= before.attempt {
			t.Errorf("event %s came as attempt %d after attempt %d", r.event, r.attempt, before.attempt)
		}
	}
}

func TestReplicas_SendEachEventOnce(t *testing.T) {
	w := stack(t)
	// wait for both replicas, because an earlier test can have killed one
	until(t, "both replicas have partitions", func() bool {
		for replica := 1; replica <= replicas; replica++ {
			if _, err := w.metric(t.Context(), replica, "ringfence_kafka_consumer_oldest_record_seconds"); err != nil {
				return false
			}
		}
		return true
	})
	hooks := w.receive(t)
	hooks.answering(http.StatusOK, 20*time.Millisecond)
	c := w.customer(t, hooks.URL)
	done := func() (each []float64) {
		for replica := 1; replica <= replicas; replica++ {
			n, err := w.metric(t.Context(), replica, "ringfence_webhooks_attempt_duration_seconds_count")
			if err != nil {
				t.Fatal(err)
			}
			each = append(each, n)
		}
		return each
	}
	before := done()
	var events []event
	until(t, "both replicas have delivered events, and no event is missing", func() bool {
		if distinct(hooks.all()) < len(events) || c.countQueued(t, "true") > 0 {
			return false
		}
		idle := false
		for i, n := range done() {
			idle = idle || n == before[i]
		}
		// a replica without partitions receives no events, so publish until both replicas deliver
		if idle && len(events) < 6000 {
			more := terminalEvents(t, c.ID, 600)
			w.publish(t, more...)
			events = append(events, more...)
			return false
		}
		return true
	})
	everyOnce(t, hooks, events)
	share := ""
	for i, n := range done() {
		if share += fmt.Sprintf(" %v", n-before[i]); n == before[i] {
			t.Errorf("replica %d sent nothing", i+1)
		}
	}
	t.Logf("%d events, sent by each:%s", len(events), share)
}

// A subscription fails twice while dispatchers are killed. Another subscription of the workspace
// must receive each of the four events, in order, and no event under two ids.
func TestKilling_FailingSubscriptionIsReportedOnce(t *testing.T) {
	w, chance := stack(t), sharedstack.Seeded(t, 6)
	broken, watching := w.receive(t), w.receive(t)
	broken.answering(http.StatusInternalServerError, 0)
	c := w.customer(t, broken.URL)
	c.must(t, c.API, "POST", "/v1/webhook-subscriptions", map[string]any{
		"name": "watching", "url": watching.URL,
		"events": []string{"webhook_subscription.failing", "webhook_subscription.failed"},
	}, http.StatusCreated, nil)
	const cycles, killsPerCycle = 2, 3
	for cycle := 1; cycle <= cycles; cycle++ {
		w.publish(t, terminalEvents(t, c.ID, 3)...)
		for range killsPerCycle {
			expectNoRequest(t, time.Duration(300+chance.IntN(700))*time.Millisecond)
			until(t, "a dispatcher is killed", func() bool { return w.KillOne("webhook-dispatcher", chance.IntN(replicas)) })
		}
		// If a dispatcher is killed before it disables the subscription, the next failure disables it.
		published := time.Now()
		until(t, "both events arrive", func() bool {
			if time.Since(published) > retryDelays()[3] {
				w.publish(t, terminalEvents(t, c.ID, 1)...)
				published = time.Now()
			}
			return distinct(watching.all()) >= 2*cycle
		})
		sharedstack.Equal(t, "status", c.shown(t).Status, "failed")
		if cycle < cycles {
			c.set(t, "active")
		}
	}
	until(t, "nothing is left to send", func() bool {
		const queued = `SELECT count(*) FROM webhook_dispatcher.delivery_queue q
			JOIN webhook_dispatcher.subscriptions s ON s.id = q.subscription_id WHERE s.name = 'watching'`
		var n int
		if err := w.db.QueryRow(t.Context(), queued).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	ids := map[string]bool{}
	var arrived []string
	for _, r := range watching.all() {
		if ids[r.event] {
			continue // a delivery whose response was not stored is repeated
		}
		ids[r.event] = true
		var event struct {
			Type     string `json:"type"`
			Sequence int    `json:"sequence"`
		}
		if err := json.Unmarshal(r.body, &event); err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, fmt.Sprint(event.Type, " ", event.Sequence))
	}
	want := []string{
		"webhook_subscription.failing 1", "webhook_subscription.failed 2",
		"webhook_subscription.failing 3", "webhook_subscription.failed 4",
	}
	sharedstack.Equal(t, "events in the order of their arrival", arrived, want)
}
