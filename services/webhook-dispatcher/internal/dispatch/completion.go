package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// completeLoop stores results in batches. Results that arrive while one batch is being committed
// form the next batch.
func (d *Dispatcher) completeLoop(ctx context.Context) {
	for first := range d.results {
		batch := d.collect(first)
		failpoint.Inject("webhook-dispatcher: before complete")
		done, ok := d.storeResults(ctx, batch)
		if !ok {
			// the database was not reachable; the deliveries become due again when their leases end
			continue
		}
		d.limits.wakeBlocked(done.Subscriptions)
		for _, result := range batch {
			if result.Outcome == deliveries.OutcomeRetry && result.Delay < d.cfg.Poll {
				time.AfterFunc(result.Delay, d.Wake)
			}
		}
		d.checkHealth(ctx, done.Failing)
	}
	d.health.done.Wait()
}

func (d *Dispatcher) collect(first deliveries.Result) []deliveries.Result {
	batch := []deliveries.Result{first}
	for len(batch) < batchSize {
		select {
		case next, open := <-d.results:
			if !open {
				return batch
			}
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// storeResults stores the batch. It retries until the batch is stored or ctx ends. If the leases of
// the deliveries end before that, the deliveries are sent again and these results are ignored.
func (d *Dispatcher) storeResults(ctx context.Context, batch []deliveries.Result) (done store.Completed, ok bool) {
	complete := d.store.Complete
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := complete(ctx, batch)
		// after a failed call, CompleteAgain leaves out the results that the call may have
		// committed
		complete = d.store.CompleteAgain
		if err == nil {
			d.metrics.superseded.Add(float64(len(batch) - done.Settled))
			return done, true
		}
		if ctx.Err() != nil {
			return store.Completed{}, false
		}
		slog.ErrorContext(ctx, "webhook attempt results not stored", "results", len(batch), "error", err)
		sleep(ctx, wait)
	}
}

// healthChecks contains the subscriptions for which the failure rule must be checked. A separate
// goroutine checks them. If another transaction has locked a subscription, only this goroutine
// waits, and the results of other subscriptions are stored.
type healthChecks struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]store.SubscriptionHealth // the newest failure counters of each subscription
	running bool
	done    sync.WaitGroup
}

func (d *Dispatcher) checkHealth(ctx context.Context, failing []store.SubscriptionHealth) {
	h := &d.health
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, standing := range failing {
		h.waiting[standing.SubscriptionID] = standing
	}
	if len(h.waiting) == 0 || h.running {
		return
	}
	h.running = true
	h.done.Go(func() {
		for standing, more := h.next(); more; standing, more = h.next() {
			d.applyRule(ctx, standing)
		}
	})
}

func (h *healthChecks) next() (store.SubscriptionHealth, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, standing := range h.waiting {
		delete(h.waiting, id)
		return standing, true
	}
	h.running = false
	return store.SubscriptionHealth{}, false
}

// applyRule checks the failure rule of a subscription. If half of each threshold is reached, it
// logs a warning and stores the event webhook_subscription.failing. If every threshold is reached,
// it disables the subscription.
func (d *Dispatcher) applyRule(ctx context.Context, standing store.SubscriptionHealth) {
	id := standing.SubscriptionID
	if _, met := d.cfg.Rule.Met(standing.Health); met {
		reason, disabled, err := d.store.Disable(ctx, id, d.cfg.Rule)
		switch {
		case err != nil: // the rule is checked again after the next failure of the subscription
			slog.ErrorContext(ctx, "failing webhook subscription not disabled", "subscription_id", id, "error", err)
		case disabled:
			d.metrics.disabled.Inc()
			d.Wake() // send the deliveries of webhook_subscription.failed
			slog.WarnContext(ctx, "webhook subscription disabled", "subscription_id", id, "reason", reason)
		}
		return
	}
	if standing.Warned || !d.cfg.Rule.HalfMet(standing.Health) {
		return
	}
	first, err := d.store.MarkWarned(ctx, id)
	switch {
	case err != nil:
		slog.ErrorContext(ctx, "warning of a failing webhook subscription not stored", "subscription_id", id, "error", err)
	case first:
		d.metrics.warned.Inc()
		d.Wake() // send the deliveries of webhook_subscription.failing
		slog.WarnContext(ctx, "webhook subscription is failing", "subscription_id", id, "failures", standing.Health.Failures,
			"exhausted_deliveries", standing.Health.Exhausted, "failing_for", standing.Health.FailingFor.String())
	}
}
