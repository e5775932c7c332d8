package webhooks_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

func TestFailing_SubscriptionIsWarnedDisabledAndResumed(t *testing.T) {
	w := stack(t)
	hooks := w.receive(t)
	hooks.answering(http.StatusInternalServerError, 0)
	c := w.customer(t, hooks.URL)
	began := time.Now()
	events := terminalEvents(t, c.ID, 4)
	disabled, warned := w.metrics(t, "ringfence_webhooks_subscriptions_disabled_total"), w.metrics(t, "ringfence_webhooks_subscriptions_warned_total")

	// The first delivery fails in all its five attempts. Five failures in a row are less than half
	// of the limit of 12, so there is no warning yet.
	w.publish(t, events[0])
	first := c.awaitDelivery(t, events[0].id, "failed")
	s := c.shown(t)
	sharedstack.Equal(t, "s.Status", s.Status, "active")
	if s.WarnedAt != nil {
		t.Errorf("s.WarnedAt = %v, want nil", s.WarnedAt)
	}
	sharedstack.Equal(t, "s.ConsecutiveFailures", s.ConsecutiveFailures, 5)
	if s.LastFailureAt == nil {
		t.Errorf("s.LastFailureAt = %v, want a value", s.LastFailureAt)
	}
	if s.LastSuccessAt != nil {
		t.Errorf("s.LastSuccessAt = %v, want nil", s.LastSuccessAt)
	}
	sharedstack.Equal(t, "or(s.LastError)", or(s.LastError), "http_status 500")
	// The sixth failure reaches half of the limit, so the subscription gets a warning.
	w.publish(t, events[1])
	until(t, "the operator's list contains the warning", func() bool { return c.shown(t).WarnedAt != nil })
	if n := w.metrics(t, "ringfence_webhooks_subscriptions_warned_total"); n <= warned {
		t.Errorf("metrics: n = %v, want more than %v", n, warned)
	} else if !strings.Contains(w.Tail(1<<20), c.id) {
		t.Errorf("metrics: w.Tail(1<<20) = %q, want it to contain %q", w.Tail(1<<20), c.id)
	}
	if s := c.shown(t); s.Status != "active" {
		t.Errorf(`after the warning: s.Status = %q, want "active"`, s.Status)
	} else if s.Flag != nil {
		t.Errorf("after the warning: s.Flag = %v, want nil", s.Flag)
	}
	c.awaitDelivery(t, events[1].id, "failed")
	// By now two deliveries are exhausted, and ten attempts in a row have failed. The next two
	// failures reach the limit and disable the subscription in the middle of a delivery.
	w.publish(t, events[2])
	until(t, "the subscription is failed", func() bool { return c.shown(t).Status == "failed" })
	s = c.shown(t)
	if s.Flag == nil {
		t.Fatalf("s.Flag = %v, want a value", s.Flag)
	}
	if s.Flag.Reason == "" {
		t.Errorf("s.Flag.Reason = %v, want a value", s.Flag.Reason)
	}
	sharedstack.Equal(t, "s.Flag.FailedAt.Before(began)", s.Flag.FailedAt.Before(began), false)
	sharedstack.Equal(t, "or(s.LastError)", or(s.LastError), "http_status 500")
	if s.ConsecutiveFailures < ruleFailures {
		t.Errorf("s.ConsecutiveFailures = %v, want at least %v", s.ConsecutiveFailures, ruleFailures)
	}
	if n := w.metrics(t, "ringfence_webhooks_subscriptions_disabled_total"); n <= disabled {
		t.Errorf("ringfence_webhooks_subscriptions_disabled_total = %v, want more than %v", n, disabled)
	}
	c.must(t, c.API, "POST", c.own+"/test", nil, 409, nil)

	// While the subscription is failed, the dispatcher sends nothing. Queued deliveries wait, and
	// deliveries of new events are skipped.
	until(t, "the requests in flight have ended", func() bool {
		return c.countQueued(t, "true") == 1 && len(c.deliveries(t, "held")) == 1
	})
	sent := len(hooks.all())
	w.publish(t, events[3])
	c.awaitDelivery(t, events[3].id, "skipped")
	hooks.answering(http.StatusOK, 0)
	expectNoRequest(t, retryDelays()[3]+time.Second) // this time is longer than the longest delay of a retry
	if n := len(hooks.all()); n != sent {
		t.Errorf("%d requests were sent while the subscription was failed", n-sent)
	}
	c.resumeAndReplay(t, hooks, events, first)
}

// resumeAndReplay resumes the subscription, so that the waiting deliveries continue. Then it
// replays the deliveries that were skipped or failed.
func (c *customer) resumeAndReplay(t *testing.T, hooks *endpoint, events []event, first delivery) {
	t.Helper()
	c.set(t, "active")
	s := c.shown(t)
	sharedstack.Equal(t, "s.Status", s.Status, "active")
	if s.Flag != nil {
		t.Errorf("s.Flag = %v, want nil", s.Flag)
	}
	if s.WarnedAt != nil {
		t.Errorf("s.WarnedAt = %v, want nil", s.WarnedAt)
	}
	sharedstack.Equal(t, "s.ConsecutiveFailures", s.ConsecutiveFailures, 0)
	if d := c.awaitDelivery(t, events[2].id, "delivered"); d.Attempts < 3 {
		t.Errorf("the waiting delivery arrived as attempt %d, want 3 or more", d.Attempts)
	}
	judgeRequests(t, hooks.requestsFor(events[2].id), c.secret, scheduledDelays())
	s = c.shown(t)
	if s.LastSuccessAt == nil {
		t.Errorf("s.LastSuccessAt = %v, want a value", s.LastSuccessAt)
	}
	sharedstack.Equal(t, "s.ConsecutiveFailures", s.ConsecutiveFailures, 0)
	if s.LastError != nil {
		t.Errorf("s.LastError = %v, want nil", s.LastError)
	}
	if n := c.replay(t, "skipped", time.Now().Add(-time.Hour)); n != 1 {
		t.Errorf("%d skipped deliveries were replayed, want 1", n)
	}
	if n := c.replay(t, "failed", time.Now().Add(-time.Hour)); n != 2 {
		t.Errorf("%d failed deliveries were replayed, want 2", n)
	}
	for _, ev := range []event{events[0], events[1], events[3]} {
		c.awaitDelivery(t, ev.id, "delivered")
	}
	again := hooks.requestsFor(events[0].id)
	last := again[len(again)-1]
	if len(again) != 6 {
		t.Fatalf("length of again = %v, want %v", len(again), 6)
	}
	sharedstack.Equal(t, "last.attempt", last.attempt, 1)
	sharedstack.Equal(t, "last.delivery", last.delivery, first.ID)
	sharedstack.Equal(t, "last.body", string(last.body), string(again[0].body))
	sharedstack.Equal(t, "last.signedWith(c.secret)", last.signedWith(c.secret), true)
	if n := len(hooks.requestsFor(events[3].id)); n != 1 {
		t.Errorf("what was skipped arrived %d times", n)
	}
}

func TestSubscription_IsNotDisabledByFailedTestDeliveries(t *testing.T) {
	w := stack(t)
	hooks := w.receive(t)
	hooks.answering(http.StatusBadGateway, 0)
	c := w.customer(t, hooks.URL)
	const tests = 4
	for range tests {
		c.must(t, c.API, "POST", c.own+"/test", nil, 202, nil)
	}
	until(t, "every test delivery has used up its attempts",
		func() bool { return len(c.deliveries(t, "failed")) == tests })
	s := c.shown(t)
	sharedstack.Equal(t, "s.Status", s.Status, "active")
	if s.WarnedAt != nil {
		t.Errorf("s.WarnedAt = %v, want nil", s.WarnedAt)
	}
	sharedstack.Equal(t, "s.ConsecutiveFailures", s.ConsecutiveFailures, tests*5)
	if s.LastFailureAt == nil {
		t.Errorf("s.LastFailureAt = %v, want a value", s.LastFailureAt)
	}
	sharedstack.Equal(t, "or(s.LastError)", or(s.LastError), "http_status 502")
	hooks.answering(http.StatusOK, 0)
	c.must(t, c.API, "POST", c.own+"/test", nil, 202, nil)
	until(t, "the subscription shows the success", func() bool {
		return c.shown(t).ConsecutiveFailures == 0 && c.shown(t).LastSuccessAt != nil
	})
}

func TestSubscription_SuccessResetsItsFailureCounter(t *testing.T) {
	w := stack(t)
	hooks := w.receive(t)
	hooks.answering(http.StatusServiceUnavailable, 0)
	c := w.customer(t, hooks.URL)
	events := terminalEvents(t, c.ID, 1)
	w.publish(t, events...)
	until(t, "two attempts have failed", func() bool { return c.shown(t).ConsecutiveFailures >= 2 })
	hooks.answering(http.StatusOK, 0)
	d := c.awaitDelivery(t, events[0].id, "delivered")
	s := c.shown(t)
	sharedstack.Equal(t, "s.ConsecutiveFailures", s.ConsecutiveFailures, 0)
	if s.LastError != nil {
		t.Errorf("s.LastError = %v, want nil", s.LastError)
	}
	if s.LastSuccessAt == nil {
		t.Errorf("s.LastSuccessAt = %v, want a value", s.LastSuccessAt)
	}
	if s.LastFailureAt == nil {
		t.Errorf("s.LastFailureAt = %v, want a value", s.LastFailureAt)
	}
	for i, one := range d.History {
		want := http.StatusServiceUnavailable
		if i == len(d.History)-1 {
			want = http.StatusOK
		}
		if one.Attempt != i+1 {
			t.Errorf("one.Attempt = %v, want %v", one.Attempt, i+1)
		} else if got := or(one.Code); got != want {
			t.Errorf("or(one.Code) = %v, want %v", got, want)
		}
	}
	judgeRequests(t, hooks.requestsFor(events[0].id), c.secret, scheduledDelays())
}

// expectNoRequest waits for a time in which no request may arrive.
func expectNoRequest(t *testing.T, long time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(long):
	}
}
