package calls

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

const (
	// pollInterval is the pause after a search that found no work.
	pollInterval = time.Second
	// maxCallsPerStep limits the calls that one transaction locks, and the size of one report.
	maxCallsPerStep = 200
)

// ErasureJob erases the inbound calls of erased persons, in steps. The job runs in every replica,
// and FOR UPDATE SKIP LOCKED claims each step. A step commits together with its progress, so a job
// continues after a restart.
type ErasureJob struct{ store *store.Store }

// NewErasureJob returns a job that works on the erasures in the store.
func NewErasureJob(st *store.Store) *ErasureJob { return &ErasureJob{store: st} }

// Run works until ctx ends.
func (j *ErasureJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
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

// Work does all due steps.
func (j *ErasureJob) Work(ctx context.Context) error {
	for {
		worked, err := j.store.EraseNextCalls(ctx, maxCallsPerStep)
		if err != nil || !worked {
			return err
		}
	}
}
