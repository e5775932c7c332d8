// Package retention contains a background job. The job writes the missing audit entries of
// interrupted changes, and deletes expired rate-limit counters.
package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/gateway/internal/store"
)

const (
	interval = 15 * time.Second
	// maxChangeTime is longer than the duration of any forwarded change. An intent that is older
	// belongs to a change that was interrupted.
	maxChangeTime = time.Minute
)

// Job is the background job. Replicas can run it concurrently.
type Job struct{ store *store.Store }

// New returns a job.
func New(st *store.Store) *Job { return &Job{st} }

// Run runs the job until ctx ends. After an error it logs the error and continues at the next
// interval. It always returns nil.
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

// Once runs the job once. For each intent that is older than minAge, it writes an audit entry with
// the outcome unknown.
func (s *Job) Once(ctx context.Context, minAge time.Duration) error {
	unknown, err := s.store.ConcludeOldIntents(ctx, minAge)
	if err != nil {
		return err
	}
	if unknown > 0 {
		slog.WarnContext(ctx, "audit entries with unknown outcome written", "count", unknown)
	}
	_, err = s.store.DeleteExpiredLimits(ctx)
	return err
}
