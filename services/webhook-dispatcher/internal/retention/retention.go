// Package retention deletes the rows of deleted subscriptions, the event bodies of erased persons,
// and history that is older than its retention period. It also creates the partitions of the next
// days.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Config is the configuration of the job.
type Config struct {
	// Keep is the retention period of event bodies, the event stream, deliveries and attempts. Whole
	// days (UTC) are dropped, so a row can be kept up to a day longer.
	Keep time.Duration `env:"WEBHOOK_KEEP" envDefault:"720h" help:"How long event bodies, deliveries and attempts are kept, at least 24h. The default is 30 days. Whole days (UTC) are deleted, up to a day later. A workspace can set a shorter time (webhooks_days)."`
}

const (
	interval = 30 * time.Second
	// batchSize is the maximum number of rows of one transaction.
	batchSize = 1000

	daysInterval = time.Hour
	// daysAhead is the number of partitions that are created in advance, so that a failure of the
	// job during a weekend has no effect. daysBehind is the number of past days with a partition,
	// because Kafka can still contain records of these days.
	daysAhead  = 3
	daysBehind = 7
)

// Job deletes rows and rotates the daily partitions. It can run in any number of replicas.
type Job struct {
	store *store.Store
	keep  time.Duration
	wake  chan struct{}
}

// New returns a job.
func New(st *store.Store, cfg Config) *Job {
	return &Job{store: st, keep: cfg.Keep, wake: make(chan struct{}, 1)}
}

// Wake makes the job run now, because a subscription was deleted. It does not block.
func (j *Job) Wake() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run runs the job until ctx ends. The deletion of a large subscription takes minutes, so the
// bodies of erased persons are deleted concurrently.
func (j *Job) Run(ctx context.Context) error {
	var erasures sync.WaitGroup
	erasures.Go(func() { j.runErasures(ctx) })
	defer erasures.Wait()
	return j.runDeletions(ctx)
}

func (j *Job) runErasures(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		for emptied := batchSize; emptied == batchSize && ctx.Err() == nil; {
			var err error
			if emptied, err = j.store.EmptyBodies(ctx, batchSize); err != nil && ctx.Err() == nil {
				slog.ErrorContext(ctx, "erasure of webhook event bodies failed", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (j *Job) runDeletions(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var next time.Time
	for {
		if !time.Now().Before(next) {
			if err := j.applyPeriods(ctx); err == nil {
				next = time.Now().Add(daysInterval)
			} else if ctx.Err() == nil {
				slog.WarnContext(ctx, "webhook history retention failed", "error", err)
			}
		}
		if err := j.DeleteSubscriptions(ctx, batchSize); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "rows of deleted webhook subscriptions not removed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.wake:
		case <-ticker.C:
		}
	}
}

// DeleteSubscriptions removes the rows of subscriptions that are marked as deleted, at most batch
// rows per transaction. It deletes the queue first, so that results of requests in flight are no
// longer stored. Then it deletes the history and the subscription. If the deletion of a
// subscription fails, the other subscriptions are deleted anyway.
func (j *Job) DeleteSubscriptions(ctx context.Context, batch int) error {
	for {
		subs, err := j.store.DeletedSubscriptions(ctx, batch)
		if err != nil || len(subs) == 0 {
			return err
		}
		var errs []error
		for _, sub := range subs {
			errs = append(errs, j.deleteSubscription(ctx, sub, batch))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

func (j *Job) deleteSubscription(ctx context.Context, sub uuid.UUID, batch int) error {
	if err := j.deleteQueue(ctx, sub, batch); err != nil {
		return err
	}
	position := store.NewestHistory()
	for n := batch; n == batch; {
		var err error
		if position, n, err = j.store.DeleteHistory(ctx, sub, position, batch); err != nil {
			return err
		}
	}
	return j.store.DeleteSubscription(ctx, sub)
}

// deleteQueue reads the queue from its start repeatedly until it is empty. A single pass can miss a
// delivery: if a result is stored during the pass, the delivery moves to another position.
func (j *Job) deleteQueue(ctx context.Context, sub uuid.UUID, batch int) error {
	for found := 1; found > 0; {
		found = 0
		var position store.QueuePosition
		for n := batch; n == batch; found += n {
			var err error
			if position, n, err = j.store.DeleteQueued(ctx, sub, position, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *Job) applyPeriods(ctx context.Context) error {
	now, err := j.store.Now(ctx)
	if err != nil {
		return err
	}
	if err := j.RotateDays(ctx, now); err != nil {
		return err
	}
	return j.DeleteExpired(ctx, now)
}

// DeleteExpired deletes the expired history of workspaces that have their own retention period. A
// period that is longer than Keep has no effect.
func (j *Job) DeleteExpired(ctx context.Context, now time.Time) error {
	workspaces, err := j.store.RetentionPeriods(ctx)
	if err != nil {
		return err
	}
	for _, kept := range workspaces {
		before, total := now.AddDate(0, 0, -kept.KeepDays), 0
		for deleted := batchSize; deleted == batchSize; total += deleted {
			if deleted, err = j.store.DeleteExpired(ctx, kept.ID, before, batchSize); err != nil {
				return err
			}
		}
		for deleted := batchSize; deleted == batchSize; {
			if deleted, err = j.store.DeleteExpiredStream(ctx, kept.ID, before, batchSize); err != nil {
				return err
			}
		}
		if total > 0 {
			slog.InfoContext(ctx, "expired webhook history deleted", "workspace_id", kept.ID, "deliveries", total)
		}
	}
	return nil
}

// RotateDays creates the partitions of the days around now. It drops the partitions of days that
// ended more than Keep before now. A second call with the same time changes nothing.
func (j *Job) RotateDays(ctx context.Context, now time.Time) error {
	today, oldest := date(now), date(now.Add(-j.keep))
	first := today.AddDate(0, 0, -daysBehind)
	if first.Before(oldest) {
		first = oldest
	}
	added, err := j.store.AddDays(ctx, first, today.AddDate(0, 0, daysAhead))
	if err != nil {
		return err
	}
	dropped, err := j.store.DropDays(ctx, oldest)
	if err != nil {
		return err
	}
	if added+dropped > 0 {
		slog.InfoContext(ctx, "daily webhook partitions added or dropped",
			"added", added, "dropped", dropped, "oldest", oldest.Format(time.DateOnly))
	}
	return nil
}

func date(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }
