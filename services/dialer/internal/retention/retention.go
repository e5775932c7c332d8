// Package retention deletes old calls, requests and transcripts, and the inbound calls of erased
// persons. Package recordings deletes recordings.
package retention

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

// RowPeriod is how long a row is kept after the end of its call or request. No workspace can set a
// shorter retention for calls. Kafka keeps a record of a request for a shorter time, at most 37
// days.
const RowPeriod = 60 * 24 * time.Hour

const (
	// transcriptPeriod is how long a transcript is kept after the end of its call. By then, the
	// service `calls` has stored the transcript.
	transcriptPeriod = 24 * time.Hour
	interval         = 10 * time.Minute
	// passInterval is the pause between two passes over all old rows. A pass is expensive, because it
	// also reads the keys of the rows that are kept for their recordings.
	passInterval = 6 * time.Hour
	batchSize    = 500
)

// Job deletes a transcript one day after the end of its call, and a row after RowPeriod
// (ADR 12). Every replica runs the job for all rows.
type Job struct {
	store    *store.Store
	lastPass time.Time // time of the last pass over the rows
}

// New returns a job that deletes old data from the store.
func New(st *store.Store) *Job { return &Job{store: st} }

// Run deletes old data until ctx ends.
func (j *Job) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := j.Delete(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "deletion of old calls and transcripts failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Delete deletes all rows and transcripts that are old enough at the time now, in batches.
func (j *Job) Delete(ctx context.Context, now time.Time) error {
	for {
		deleted, err := j.store.ForgetSpoken(ctx, now.Add(-transcriptPeriod), batchSize)
		if err != nil {
			return err
		}
		if deleted < batchSize {
			break
		}
	}
	if now.Sub(j.lastPass) < passInterval {
		return nil
	}
	deleted, err := j.store.DeleteEnded(ctx, now.Add(-RowPeriod), batchSize)
	if err != nil {
		return err
	}
	if deleted > 0 {
		slog.InfoContext(ctx, "old calls, requests and transcripts deleted", "rows", deleted)
	}
	j.lastPass = now
	return nil
}
