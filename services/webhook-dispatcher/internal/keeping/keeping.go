// Package keeping owns what becomes of history: it erases that of deleted subscriptions and the bodies of erased people, a little at a time, makes the
// partitions of the days to come, and drops the days that are older than history is kept.
package keeping

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Config is the keeping part of the environment.
type Config struct {
	// Keep is how long bodies, deliveries and attempts are kept; they go with their day (UTC), so up to a day later.
	Keep time.Duration `env:"WEBHOOK_KEEP" envDefault:"720h" help:"how long bodies, deliveries and attempts are kept; a day (24h) or more"`
}

const (
	every = 30 * time.Second
	batch = 1000

	daysEvery = time.Hour
	// ahead covers a weekend in which nothing makes days; behind is how old what Kafka still holds can be.
	ahead  = 3
	behind = 7
)

// Keeper erases and drops.
type Keeper struct {
	store *store.Store
	keep  time.Duration
	wake  chan struct{}
}

// New makes a keeper.
func New(st *store.Store, cfg Config) *Keeper {
	return &Keeper{store: st, keep: cfg.Keep, wake: make(chan struct{}, 1)}
}

// Wake says that a subscription was deleted; it never blocks.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. Any number of replicas may.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var next time.Time
	for {
		if !time.Now().Before(next) {
			if err := k.turnDays(ctx); err == nil {
				next = time.Now().Add(daysEvery)
			} else if ctx.Err() == nil {
				slog.WarnContext(ctx, "days of webhook history could not be turned; trying again", "error", err)
			}
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = k.store.EraseSome(ctx, batch); err != nil && ctx.Err() == nil {
				slog.ErrorContext(ctx, "erase history of deleted webhook subscriptions", "error", err)
			}
		}
		for emptied := batch; emptied == batch && ctx.Err() == nil; {
			var err error
			if emptied, err = k.store.EmptyBodies(ctx, batch); err != nil && ctx.Err() == nil {
				slog.ErrorContext(ctx, "empty bodies of erased people", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-tick.C:
		}
	}
}

func (k *Keeper) turnDays(ctx context.Context) error {
	now, err := k.store.Clock(ctx)
	if err != nil {
		return err
	}
	if err := k.TurnDays(ctx, now); err != nil {
		return err
	}
	return k.Forget(ctx, now)
}

// Forget erases what workspaces do not want kept as long as days are. A second call does nothing.
func (k *Keeper) Forget(ctx context.Context, now time.Time) error {
	workspaces, err := k.store.KeptWorkspaces(ctx)
	if err != nil {
		return err
	}
	for _, kept := range workspaces {
		before, all := now.AddDate(0, 0, -kept.KeepDays), 0
		for gone := batch; gone == batch; all += gone {
			if gone, err = k.store.ForgetHistory(ctx, kept.ID, before, batch); err != nil {
				return err
			}
		}
		if all > 0 {
			slog.InfoContext(ctx, "webhook history forgotten that its workspace does not want kept", "workspace_id", kept.ID, "deliveries", all)
		}
	}
	return nil
}

// TurnDays makes the days around now and drops those that ended longer than Keep before it. A second call does nothing.
func (k *Keeper) TurnDays(ctx context.Context, now time.Time) error {
	today, oldest := date(now), date(now.Add(-k.keep))
	first := today.AddDate(0, 0, -behind)
	if first.Before(oldest) {
		first = oldest
	}
	added, err := k.store.AddDays(ctx, first, today.AddDate(0, 0, ahead))
	if err != nil {
		return err
	}
	dropped, err := k.store.DropDays(ctx, oldest)
	if err != nil {
		return err
	}
	if added+dropped > 0 {
		slog.InfoContext(ctx, "days of webhook history turned", "added", added, "dropped", dropped, "oldest", oldest.Format(time.DateOnly))
	}
	return nil
}

// date is the day in UTC that holds the instant.
func date(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }
