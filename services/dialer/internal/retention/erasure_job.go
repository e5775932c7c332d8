package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

const (
	// erasureInterval is the pause after a search that found no work.
	erasureInterval = time.Second
	// maxCallsPerStep is the number of calls that one step erases. It limits the number of locks in a
	// transaction, and the size of a report.
	maxCallsPerStep = 200
)

// ErasureJob erases the inbound calls of erased persons, in steps. It runs in every replica. FOR
// UPDATE SKIP LOCKED ensures that only one replica does a step. A step commits together with its
// progress, so that an erasure continues after a restart.
type ErasureJob struct{ store *store.Store }

// NewErasureJob returns a job that carries out the erasures in the store.
func NewErasureJob(st *store.Store) *ErasureJob { return &ErasureJob{store: st} }

// Run carries out erasures until ctx ends.
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

// Work carries out all steps that are due now.
func (j *ErasureJob) Work(ctx context.Context) error {
	for {
		worked, err := j.store.EraseNextCalls(ctx, maxCallsPerStep)
		if err != nil || !worked {
			return err
		}
	}
}
