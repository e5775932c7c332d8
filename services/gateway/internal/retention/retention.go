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
	interval = 15 * time.Second
	// maxChangeTime is longer than any forwarded change can take.
	maxChangeTime = time.Minute
)

// Job is the background job. Replicas can run it concurrently.
type Job struct{ store *store.Store }

// New returns a job.
func New(st *store.Store) *Job { return &Job{st} }

// Run runs the job until ctx ends. It logs an error and continues in the next round. It always
// returns nil.
func (s *Job) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := s.Once(ctx, maxChangeTime); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "retention job failed", "error", err)
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
func (s *Job) Once(ctx context.Context, age time.Duration) error {
	unknown, err := s.store.ConcludeOldIntents(ctx, age)
	if err != nil {
		return err
	}
	if unknown > 0 {
		slog.WarnContext(ctx, "audit entries with unknown outcome written", "count", unknown)
	}
	_, err = s.store.DeleteExpiredLimits(ctx)
	return err
}
