package dial

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

// LongCallsJob keeps long calls in the counts of live calls (ADR 11). It does not depend on the
// loop that claims requests, because inbound calls use channels even while nothing may be dialed.
type LongCallsJob struct{ store *store.Store }

// NewLongCallsJob returns a job that updates the long calls in the store.
func NewLongCallsJob(st *store.Store) *LongCallsJob { return &LongCallsJob{store: st} }

// Run calls MoveLongCalls once a minute until ctx ends. After an error it tries again after a
// second.
func (j *LongCallsJob) Run(ctx context.Context) error {
	for {
		pause := tidyInterval
		if _, err := j.store.MoveLongCalls(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "timestamps of long calls not updated, counts of live calls can be too low", "error", err)
			pause = faultPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
