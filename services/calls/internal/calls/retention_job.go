
package calls

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/calls/internal/store"
)

// RetentionConfig sets the retention periods of workspaces that have no setting.
type RetentionConfig struct {
	Calls       time.Duration `env:"CALLS_KEEP" envDefault:"43848h" help:"how long call requests and calls are kept after their end where a workspace sets nothing (43848h are five years)"`
	Transcripts time.Duration `env:"TRANSCRIPTS_KEEP" envDefault:"720h" help:"how long what was said in a call is kept where a workspace sets nothing"`
}

const (
	retentionInterval = time.Hour
	retentionBatch    = 500
	// erasureRetention is longer than any request can be delayed after its pre-check.
	erasures = 45 * 24 * time.Hour
)

// RetentionJob deletes transcripts, calls and call requests that are older than the retention
// period of their workspace (docs/reference/api/operator-api.md#retention-periods). It deletes in
// small batches, so that locks are short.
type RetentionJob struct {
	store *store.Store
	cfg   RetentionConfig
}

// NewRetentionJob returns a job with the default periods of cfg.
func NewRetentionJob(st *store.Store, cfg RetentionConfig) *RetentionJob {
	return &RetentionJob{store: st, cfg: cfg}
}

// Run runs the job until ctx ends. It always returns nil. Replicas can run it concurrently.
func (w *RetentionJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(retentionInterval)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "what is too old could not be forgotten; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once deletes everything that is too old at the given time.
func (w *RetentionJob) Once(ctx context.Context, now time.Time) error {
	if err := w.store.ForgetErasures(ctx, now.Add(-erasures)); err != nil {
		return err
	}
	var after uuid.UUID
	for {
		workspaces, err := w.store.KeptWorkspaces(ctx, after)
		if err != nil || len(workspaces) == 0 {
			return err
		}
		for _, kept := range workspaces {
			if err := w.tend(ctx, kept, now); err != nil {
				return err
			}
		}
		after = workspaces[len(workspaces)-1].WorkspaceID
	}
}

// deleteOld deletes the old data of one workspace. Calls are deleted before their requests.
func (w *RetentionJob) tend(ctx context.Context, kept store.Kept, now time.Time) error {
	calls, transcripts := or(kept.CallsDays, w.cfg.Calls), or(kept.TranscriptsDays, w.cfg.Transcripts)
	for _, deed := range []struct {
		what   string
		keep   time.Duration
		forget func(context.Context, uuid.UUID, time.Time, int) (int64, error)
	}{
		{"transcripts", transcripts, w.store.ForgetTranscripts},
		{"calls", calls, w.store.ForgetCalls},
		{"requests", calls, w.store.ForgetRequests},
	} {
		var all int64
		for gone := int64(retentionBatch); gone == retentionBatch; {
			var err error
			if gone, err = deed.forget(ctx, kept.WorkspaceID, now.Add(-deed.keep), retentionBatch); err != nil {
				return err
			}
			all += gone
		}
		if all > 0 {
			slog.InfoContext(ctx, "forgotten what is too old", "what", deed.what, "workspace_id", kept.WorkspaceID, "rows", all)
		}
	}
	return nil
}

func or(days *int32, standard time.Duration) time.Duration {
	if days == nil {
		return standard
	}
	return time.Duration(*days) * 24 * time.Hour
}
