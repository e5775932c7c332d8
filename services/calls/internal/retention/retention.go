// Package retention deletes call data: transcripts, calls and call requests after the retention
// period of their workspace, and the data of erased persons.
package retention

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/calls/internal/store"
)

// Config contains the retention periods for workspaces without their own setting.
type Config struct {
	Calls       time.Duration `env:"CALLS_KEEP" envDefault:"43848h" help:"How long call requests and calls are kept after their end, in workspaces without the setting calls_days. The default is five years. After that time they are deleted."`
	Transcripts time.Duration `env:"TRANSCRIPTS_KEEP" envDefault:"720h" help:"How long transcripts are kept after the end of their call, in workspaces without the setting transcripts_days. The default is 30 days."`
}

const (
	interval  = time.Hour
	batchSize = 500
	// erasureCountPeriod is the time for which the erasure counter of a phone number is kept. POST
	// /v1/calls compares the counter with its value at the pre-check a few seconds earlier, so an
	// older counter is not needed.
	erasureCountPeriod = 45 * 24 * time.Hour
	// inboundChargePeriod is the time for which the charge of an inbound call is kept if no event of
	// the call arrives.
	inboundChargePeriod = 30 * 24 * time.Hour
)

// Job deletes transcripts, calls and call requests that are older than the retention
// period of their workspace (docs/reference/api/operator-api.md#retention-periods). The job deletes
// in small batches, so that locks are short.
type Job struct {
	store *store.Store
	cfg   Config
}

// New returns a job with the default periods of cfg.
func New(st *store.Store, cfg Config) *Job {
	return &Job{store: st, cfg: cfg}
}

// Run runs the job until ctx ends. It always returns nil. Replicas can run it concurrently.
func (j *Job) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := j.Once(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "expired call data not deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once runs one pass of the job: it deletes all data whose retention period ended before now.
func (j *Job) Once(ctx context.Context, now time.Time) error {
	if err := j.store.DeleteErasures(ctx, now.Add(-erasureCountPeriod)); err != nil {
		return err
	}
	if err := j.store.DeleteInboundCharges(ctx, now.Add(-inboundChargePeriod)); err != nil {
		return err
	}
	var after uuid.UUID
	for {
		workspaces, err := j.store.Retentions(ctx, after)
		if err != nil || len(workspaces) == 0 {
			return err
		}
		for _, retention := range workspaces {
			if err := j.deleteOld(ctx, retention, now); err != nil {
				return err
			}
		}
		after = workspaces[len(workspaces)-1].WorkspaceID
	}
}

// deleteOld deletes the expired data of one workspace. It deletes calls before their requests.
func (j *Job) deleteOld(ctx context.Context, retention store.Retention, now time.Time) error {
	calls, transcripts := periodOrDefault(retention.CallsDays, j.cfg.Calls), periodOrDefault(retention.TranscriptsDays,
		j.cfg.Transcripts)
	for _, step := range []struct {
		data   string
		keep   time.Duration
		delete func(context.Context, uuid.UUID, time.Time, int) (int64, error)
	}{
		{"transcripts", transcripts, j.store.DeleteTranscripts},
		{"calls", calls, j.store.DeleteCalls},
		{"requests", calls, j.store.DeleteRequests},
	} {
		var all int64
		for deleted := int64(batchSize); deleted == batchSize; {
			var err error
			if deleted, err = step.delete(ctx, retention.WorkspaceID, now.Add(-step.keep), batchSize); err != nil {
				return err
			}
			all += deleted
		}
		if all > 0 {
			slog.InfoContext(ctx, "expired call data deleted",
				"data", step.data, "workspace_id", retention.WorkspaceID, "rows", all)
		}
	}
	return nil
}

func periodOrDefault(days *int32, standard time.Duration) time.Duration {
	if days == nil {
		return standard
	}
	return time.Duration(*days) * 24 * time.Hour
}
