package dispatching

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/crash"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// settleAll writes results as they come: what gathers while one batch commits is the next batch.
func (d *Dispatcher) settleAll(ctx context.Context) {
	for first := range d.results {
		batch := d.gather(first)
		crash.Point("webhook-dispatcher: before complete")
		done, ok := d.settle(ctx, batch)
		if !ok {
			continue // ctx ended with the database away: the leases bring these back
		}
		if done.More {
			d.Wake()
		}
		for _, result := range batch {
			if result.Outcome == delivery.Again && result.Delay < d.cfg.Poll {
				time.AfterFunc(result.Delay, d.Wake)
			}
		}
		d.judgeLater(ctx, done.Failing)
	}
	d.judging.done.Wait()
}

func (d *Dispatcher) gather(first delivery.Result) []delivery.Result {
	batch := []delivery.Result{first}
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

// settle tries until the database has the batch. While it is away the leases may pass: then the results no longer count
// and the deliveries are attempted again.
func (d *Dispatcher) settle(ctx context.Context, batch []delivery.Result) (done store.Completed, ok bool) {
	complete := d.store.Complete
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := complete(ctx, batch)
		complete = d.store.CompleteAgain // the answer alone may have been lost
		if err == nil {
			d.metrics.stale.Add(float64(len(batch) - done.Settled))
			return done, true
		}
		if ctx.Err() != nil {
			return store.Completed{}, false
		}
		slog.ErrorContext(ctx, "settle webhook attempts", "attempts", len(batch), "error", err)
		pause(ctx, wait)
	}
}

// judging is what settling leaves to a goroutine beside it: to switch a subscription off holds all that it has queued, and nobody else's results
// wait for that.
type judging struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]store.Standing // the newest of each subscription
	busy    bool
	done    sync.WaitGroup
}

func (d *Dispatcher) judgeLater(ctx context.Context, failing []store.Standing) {
	j := &d.judging
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, standing := range failing {
		j.waiting[standing.SubscriptionID] = standing
	}
	if len(j.waiting) == 0 || j.busy {
		return
	}
	j.busy = true
	j.done.Go(func() {
		for standing, more := j.next(); more; standing, more = j.next() {
			d.judgeHealth(ctx, standing)
		}
	})
}

func (j *judging) next() (store.Standing, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, standing := range j.waiting {
		delete(j.waiting, id)
		return standing, true
	}
	j.busy = false
	return store.Standing{}, false
}

// judgeHealth warns at half of the failure rule and switches the subscription off when it is met.
func (d *Dispatcher) judgeHealth(ctx context.Context, standing store.Standing) {
	id := standing.SubscriptionID
	if _, met := d.cfg.Rule.Met(standing.Health); met {
		reason, disabled, err := d.store.Disable(ctx, id, d.cfg.Rule)
		switch {
		case err != nil: // the next failure tries again
			slog.ErrorContext(ctx, "switch off failing webhook subscription", "subscription_id", id, "error", err)
		case disabled:
			d.metrics.disabled.Inc()
			slog.WarnContext(ctx, "webhook subscription failed", "subscription_id", id, "reason", reason)
		}
		return
	}
	if standing.Warned || !d.cfg.Rule.HalfMet(standing.Health) {
		return
	}
	first, err := d.store.Warn(ctx, id)
	switch {
	case err != nil:
		slog.ErrorContext(ctx, "note failing webhook subscription", "subscription_id", id, "error", err)
	case first:
		d.metrics.warned.Inc()
		slog.WarnContext(ctx, "webhook subscription is failing", "subscription_id", id, "failures", standing.Health.Failures,
			"exhausted", standing.Health.Exhausted, "failing_for", standing.Health.Failing.String())
	}
}
