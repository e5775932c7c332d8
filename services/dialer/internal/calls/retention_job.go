// Package retention deletes what the dialer no longer needs of calls that have ended (ADR 12): what was
// said after a day, since the calls service has it by then, and the rows after 60 days.

package calls

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

// RowPeriod is how long a row stays after its end. It is the shortest period that a workspace can set for
// calls. It is longer than Kafka keeps a record of a request: 7 days in its topic, 30 more in a DLQ.
const RowPeriod = 60 * 24 * time.Hour

const (
	// spokenPeriod is shorter than the shortest period that a workspace can set for transcripts.
	spokenPeriod = 24 * time.Hour
	interval     = 10 * time.Minute
	// passInterval is the pause between two passes over the rows. A pass reads the keys of the rows that are
	// kept longer because of their recordings.
	passInterval = 6 * time.Hour
	batch        = 500
)

// RetentionJob deletes. Every replica runs one; they share the work row by row.
type RetentionJob struct {
	store  *store.Store
	passed time.Time // when the last pass over the rows ended
}

// NewRetentionJob returns a job of the store.
func NewRetentionJob(st *store.Store) *RetentionJob { return &RetentionJob{store: st} }

// Run works until ctx ends.
func (j *RetentionJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := j.Delete(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "retention job failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Delete deletes everything that is old enough at the given time, in batches.
func (j *RetentionJob) Delete(ctx context.Context, now time.Time) error {
	for {
		forgotten, err := j.store.ForgetSpoken(ctx, now.Add(-spokenPeriod), batch)
		if err != nil {
			return err
		}
		if forgotten < batch {
			break
		}
	}
	if now.Sub(j.passed) < passInterval {
		return nil
	}
	deleted, err := j.store.DeleteEnded(ctx, now.Add(-RowPeriod), batch)
	if err != nil {
		return err
	}
	if deleted > 0 {
		slog.InfoContext(ctx, "old calls deleted", "rows", deleted)
	}
	j.passed = now
	return nil
}
