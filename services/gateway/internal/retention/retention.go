// Package retention contains the background job that completes audit entries of interrupted changes
// and deletes expired rate limits.
package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/gateway/internal/store"
)

const (
	every = 15 * time.Second
	// maxChangeTime is longer than any forwarded change can take.
	patience = time.Minute
)

// Job is the background job. Replicas can run it concurrently.
type Sweeper struct{ store *store.Store }

// New returns a job.
func New(st *store.Store) *Sweeper { return &Sweeper{st} }

// Run runs the job until ctx ends. It logs an error and continues in the next round. It always
// returns nil.
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

// Once runs one round. Intents that are older than age become audit entries with the outcome
// unknown.
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
