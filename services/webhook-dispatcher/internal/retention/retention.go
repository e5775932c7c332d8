// Package retention deletes what is not kept any longer: the rows of deleted subscriptions, the event
// bodies of erased persons, and history that is older than its retention period. It also creates the
// partitions of the next days.
package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Config is the part of the environment that the job reads.
type Config struct {
	// Keep is how long bodies, deliveries and attempts are kept. They are dropped with their day
	// (UTC), so up to a day later.
	Keep time.Duration `env:"WEBHOOK_KEEP" envDefault:"720h" help:"how long bodies, deliveries and attempts are kept; a day (24h) or more"`
}

const (
	interval = 30 * time.Second
	// batchSize bounds the rows of one transaction.
	batchSize = 1000

	daysInterval = time.Hour
	// daysAhead partitions exist in advance, so that the job can fail for a weekend. Records that
	// Kafka still has can be daysBehind days old.
	daysAhead  = 3
	daysBehind = 7
)

// Job deletes and drops. Any number of replicas can run it.
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

// Run runs the job until ctx ends.
func (j *Job) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var next time.Time
	for {
		if !time.Now().Before(next) {
			if err := j.applyPeriods(ctx); err == nil {
				next = time.Now().Add(daysInterval)
			} else if ctx.Err() == nil {
				slog.WarnContext(ctx, "rotation of daily webhook partitions failed", "error", err)
			}
		}
		if err := j.DeleteSubscriptions(ctx, batchSize); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "delete of webhook subscriptions failed", "error", err)
		}
		for emptied := batchSize; emptied == batchSize && ctx.Err() == nil; {
			var err error
			if emptied, err = j.store.EmptyBodies(ctx, batchSize); err != nil && ctx.Err() == nil {
				slog.ErrorContext(ctx, "erasure of webhook bodies failed", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.wake:
		case <-ticker.C:
		}
	}
}

// DeleteSubscriptions removes everything of the subscriptions that are marked as deleted, in
// transactions of at most batch rows. First come the open deliveries, so that no result of a request
// in flight is stored any more, then the history, then the subscription.
func (j *Job) DeleteSubscriptions(ctx context.Context, batch int) error {
	for {
		subs, err := j.store.DeletedSubscriptions(ctx, batch)
		if err != nil || len(subs) == 0 {
			return err
		}
		for _, sub := range subs {
			if err := j.deleteSubscription(ctx, sub, batch); err != nil {
				return err
			}
		}
	}
}

func (j *Job) deleteSubscription(ctx context.Context, sub uuid.UUID, batch int) error {
	if err := j.deleteQueue(ctx, sub, batch); err != nil {
		return err
	}
	place := store.NewestHistory()
	for n := batch; n == batch; {
		var err error
		if place, n, err = j.store.DeleteHistory(ctx, sub, place, batch); err != nil {
			return err
		}
	}
	return j.store.DeleteSubscription(ctx, sub)
}

// deleteQueue reads the queue from its start again until it is empty: a result that is stored
// meanwhile moves its delivery to another place.
func (j *Job) deleteQueue(ctx context.Context, sub uuid.UUID, batch int) error {
	for found := 1; found > 0; {
		found = 0
		var place store.QueuePosition
		for n := batch; n == batch; found += n {
			var err error
			if place, n, err = j.store.DeleteQueued(ctx, sub, place, batch); err != nil {
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

// DeleteExpired deletes the history of workspaces with a retention period that is shorter than Keep.
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
		if total > 0 {
			slog.InfoContext(ctx, "deleted expired webhook history of a workspace", "workspace_id", kept.ID, "deliveries", total)
		}
	}
	return nil
}

// RotateDays creates the partitions of the days around now and drops those that ended more than Keep
// before it. A second call does nothing.
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
		slog.InfoContext(ctx, "rotated daily webhook partitions",
			"added", added, "dropped", dropped, "oldest", oldest.Format(time.DateOnly))
	}
	return nil
}

// date is the day in UTC that contains the instant.
func date(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }
