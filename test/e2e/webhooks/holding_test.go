package webhooks_test

import (
	"net/http"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

// queuedAtPause is the number of waiting deliveries at the pause in a run with -large.
const queuedAtPause = 10_000

// TestPause_PausedAndResumedSubscriptionLosesNoDelivery pauses and resumes a subscription with
// a long queue. The queue grows because the endpoint responds slowly.
func TestPause_PausedAndResumedSubscriptionLosesNoDelivery(t *testing.T) {
	w, want := stack(t), sharedstack.Trials(queuedAtPause/100, queuedAtPause)
	hooks := w.receive(t)
	hooks.answering(http.StatusOK, 300*time.Millisecond)
	c := w.customer(t, hooks.URL)
	var events []event
	until(t, "the queue is long enough", func() bool {
		if c.history(t) < len(events) { // wait until the dispatcher has queued all events
			return false
		}
		n := c.countQueued(t, "attempt = 0")
		// some deliveries are sent before the response to the pause, so a few more must be queued
		// now
		if n >= want+want/50 {
			return true
		}
		more := terminalEvents(t, c.ID, want-n+want/10+50)
		w.publish(t, more...)
		events = append(events, more...)
		return false
	})
	c.set(t, "paused")
	until(t, "the requests in flight have ended", func() bool { return c.countQueued(t, "attempt > 0") == 0 })
	held := c.countQueued(t, "true")
	if held < want {
		t.Fatalf("%d deliveries are held, want %d", held, want)
	}
	settled := hooks.count()
	hooks.answering(http.StatusOK, 0)
	left := terminalEvents(t, c.ID, 5)
	w.publish(t, left...)
	until(t, "the events of the pause are skipped", func() bool {
		return len(c.deliveries(t, "skipped")) == len(left)
	})
	expectNoRequest(t, lease+time.Second) // after this time, the leases of earlier claims have expired
	if n := hooks.count(); n != settled {
		t.Errorf("%d requests were sent while the subscription was paused", n-settled)
	}
	if n := c.countQueued(t, "true"); n != held {
		t.Errorf("%d deliveries are held at the end of the pause, %d were at its beginning", n, held)
	}
	c.set(t, "active")
	until(t, "every event arrives", func() bool { return hooks.count() >= settled+held })
	until(t, "the queue is empty", func() bool { return c.countQueued(t, "true") == 0 })
	everyOnce(t, hooks, events)
}

func everyOnce(t *testing.T, hooks *endpoint, events []event) {
	t.Helper()
	count := map[string]int{}
	for _, r := range hooks.all() {
		count[r.event]++
	}
	lost, doubled := 0, 0
	for _, ev := range events {
		switch count[ev.id] {
		case 0:
			lost++
		case 1:
		default:
			doubled++
		}
		delete(count, ev.id)
	}
	if lost > 0 {
		t.Errorf("lost = %v, want at most %v", lost, 0)
	}
	if doubled > 0 {
		t.Errorf("doubled = %v, want at most %v", doubled, 0)
	}
	if len(count) > 0 {
		t.Errorf("length of count = %v, want at most %v", len(count), 0)
	}
}
