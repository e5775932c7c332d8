// Package freeing forgets idempotency keys whose request ended long ago (contract.md §1: 30 days).

package callrequests

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/page"
	"ringfence.dev/services/calls/internal/store"
)

const (
	pause          = time.Hour
	keyExpiryBatch = 1000
)

// KeyExpiryJob frees keys.
type KeyExpiryJob struct {
	store *store.Store
	keep  time.Duration
}

// NewKeyExpiryJob makes a worker that keeps keys for keep after their request's end.
func NewKeyExpiryJob(st *store.Store, keep time.Duration) *KeyExpiryJob {
	return &KeyExpiryJob{store: st, keep: keep}
}

// Run works until ctx ends.
func (w *KeyExpiryJob) Run(ctx context.Context) error {
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
func (w *KeyExpiryJob) Once(ctx context.Context) error {
	before := page.FirstID(time.Now().Add(-w.keep))
	for {
		freed, err := w.store.ForgetKeys(ctx, before, w.keep, keyExpiryBatch)
		if err != nil || freed < keyExpiryBatch {
			return err
		}
	}
}
