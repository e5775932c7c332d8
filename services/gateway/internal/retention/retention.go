// Package retention tidies up behind the requests: changes whose end nobody saw become audit rows, and
// counts that say nothing any more go.
package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/gateway/internal/store"
)

const (
	every = 15 * time.Second
	// patience is longer than any forwarded change can take.
	patience = time.Minute
)

// Sweeper is one replica's; any number may sweep.
type Sweeper struct{ store *store.Store }

// New makes a sweeper.
func New(st *store.Store) *Sweeper { return &Sweeper{st} }

// Run sweeps until ctx ends. A fault is logged and the next round tries again.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx, patience); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "sweeping failed and is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sweep is one round; intents older than age are given up.
func (s *Sweeper) Sweep(ctx context.Context, age time.Duration) error {
	unknown, err := s.store.GiveUpIntents(ctx, age)
	if err != nil {
		return err
	}
	if unknown > 0 {
		slog.WarnContext(ctx, "changes whose outcome is unknown were written to the audit", "count", unknown)
	}
	_, err = s.store.DeleteExpiredLimits(ctx)
	return err
}
