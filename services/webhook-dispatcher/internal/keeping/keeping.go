// Package keeping owns what becomes of history: it erases that of deleted subscriptions, a little at a time.
package keeping

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	every = 30 * time.Second
	batch = 1000
)

// Keeper erases.
type Keeper struct {
	store *store.Store
	wake  chan struct{}
}

// New makes a keeper.
func New(st *store.Store) *Keeper { return &Keeper{store: st, wake: make(chan struct{}, 1)} }

// Wake says that a subscription was deleted; it never blocks.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run erases until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = k.store.EraseSome(ctx, batch); err != nil && ctx.Err() == nil {
				slog.ErrorContext(ctx, "erase history of deleted webhook subscriptions", "error", err)
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
