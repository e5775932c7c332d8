package auth

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/gateway/internal/store"
)

const (
	expiryInterval = 15 * time.Second
	// maxChangeTime is longer than the duration of any forwarded change. An older pending audit entry
	// belongs to a change that was interrupted.
	maxChangeTime = time.Minute
)

// ExpiryJob is a background job. It deletes expired rate-limit counters, sessions and sign-ins. It
// also writes the missing audit entries of interrupted changes. Replicas can run it concurrently.
type ExpiryJob struct{ store *store.Store }

// NewExpiryJob returns a job.
func NewExpiryJob(st *store.Store) *ExpiryJob { return &ExpiryJob{st} }

// Run runs the job until ctx ends. After an error it logs the error and continues at the next
// interval. It always returns nil.
func (j *ExpiryJob) Run(ctx context.Context) error {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		if err := j.Once(ctx, maxChangeTime); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "expiry of sessions, sign-ins, rate limits or pending audit entries failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once runs one pass of the job. It replaces each pending audit entry that is older than minAge by
// an audit entry with the outcome unknown.
func (j *ExpiryJob) Once(ctx context.Context, minAge time.Duration) error {
	unknown, err := j.store.ConcludeOldPending(ctx, minAge)
	if err != nil {
		return err
	}
	if unknown > 0 {
		slog.WarnContext(ctx, "audit entries of interrupted changes written with the outcome unknown", "entries", unknown)
	}
	if _, err = j.store.DeleteExpiredLimits(ctx); err != nil {
		return err
	}
	return j.store.DeleteExpiredSignIns(ctx)
}
