package callrequests

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/page"
	"ringfence.dev/services/calls/internal/store"
)

const (
	keyExpiryInterval = time.Hour
	keyExpiryBatch    = 1000
)

// KeyExpiryJob deletes an idempotency key a configured time after the end of its request
// (docs/reference/api/call-requests.md#idempotency).
type KeyExpiryJob struct {
	store    *store.Store
	keepTime time.Duration
}

// NewKeyExpiryJob returns a job that deletes a key keepTime after the end of its request.
func NewKeyExpiryJob(st *store.Store, keepTime time.Duration) *KeyExpiryJob {
	return &KeyExpiryJob{store: st, keepTime: keepTime}
}

// Run runs the job until ctx ends. It always returns nil.
func (w *KeyExpiryJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(keyExpiryInterval)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "expired idempotency keys not deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once runs one pass of the job: it deletes every key whose request ended longer ago than the
// configured time.
func (w *KeyExpiryJob) Once(ctx context.Context) error {
	before := page.FirstID(time.Now().Add(-w.keepTime))
	for {
		freed, err := w.store.DeleteExpiredKeys(ctx, before, w.keepTime, keyExpiryBatch)
		if err != nil || freed < keyExpiryBatch {
			return err
		}
	}
}
