package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
)

// terminalDeliveries returns the number of delivered terminal events, and how many of them had a
// delay of at most maxDelay. maxDelay must be the upper limit of a bucket of the histogram.
func (d runningDispatcher) terminalDeliveries(t *testing.T, maxDelay float64) (all, within uint64) {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != "ringfence_webhooks_terminal_event_to_delivery_seconds" {
				continue
			}
			all += metric.GetHistogram().GetSampleCount()
			for _, bucket := range metric.GetHistogram().GetBucket() {
				if bucket.GetUpperBound() == maxDelay {
					within += bucket.GetCumulativeCount()
				}
			}
		}
	}
	return all, within
}

// The metric measures the delay from the time in the event. The SLO in deploy/prometheus is
// computed from this metric.
func TestMetrics_DelayOfATerminalEventStartsAtTheTimeOfTheEvent(t *testing.T) {
	t.Parallel()
	const events = 20
	r := newFixture(t)
	r.subscribe(newReceiver(t, nil).URL)
	d := r.dispatch(wakeOnlyConfig())
	for range events {
		ev := r.event(uuid.New(), 1, "call.completed")
		ev.CreatedAt = time.Now().Add(-400 * time.Second)
		r.ingestAndAdd(d, ev)
	}
	testkit.NoError(t, func() error {
		if all, _ := d.terminalDeliveries(t, 300); all != events {
			return fmt.Errorf("counted events = %d, want %d", all, events)
		}
		return nil
	})
	_, early := d.terminalDeliveries(t, 300)
	wantEqual(t, "events in buckets up to 300 s", early, 0)
	_, right := d.terminalDeliveries(t, 900)
	wantEqual(t, "events in buckets up to 900 s", right, events)
}
