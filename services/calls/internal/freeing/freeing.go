// Package freeing forgets idempotency keys whose request ended long ago (contract.md §1: 30 days).
package freeing

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/instant"
	"ringfence.dev/services/calls/internal/store"
)

const (
	pause = time.Hour
	batch = 1000
)

// Worker frees keys.
type Worker struct {
	store *store.Store
	keep  time.Duration
}

// New makes a worker that keeps keys for keep after their request's end.
func New(st *store.Store, keep time.Duration) *Worker { return &Worker{store: st, keep: keep} }

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "idempotency keys could not be freed; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once frees every key that is old enough.
func (w *Worker) Once(ctx context.Context) error {
	before := instant.FirstID(time.Now().Add(-w.keep))
	for {
		freed, err := w.store.ForgetKeys(ctx, before, w.keep, batch)
		if err != nil || freed < batch {
			return err
		}
	}
}
