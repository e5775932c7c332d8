package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/calls/internal/store"
)

// erasureInterval is the time between two searches for due erasure steps.
const erasureInterval = time.Second

// ErasureJob runs all steps of an erasure except the first one, which runs in the consumer's
// transaction. Each step is a short transaction that also stores the progress. So an erasure
// continues after a restart, on any replica.
type ErasureJob struct {
	store *store.Store
	wake  func()
}

// NewErasureJob returns a job. The job calls wake after each step, so that the relay publishes the
// events of the step.
func NewErasureJob(st *store.Store, wake func()) *ErasureJob {
	return &ErasureJob{store: st, wake: wake}
}

// Run runs the job until ctx ends. It always returns nil.
func (j *ErasureJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(erasureInterval)
	defer ticker.Stop()
	for {
		if err := j.Work(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "erasure step failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Work runs all steps that are due.
func (j *ErasureJob) Work(ctx context.Context) error {
	for {
		worked, err := j.store.EraseNext(ctx)
		if err != nil || !worked {
			return err
		}
		j.wake()
	}
}
