// Package retention deletes consent records, decisions, pre-checks and imports that are older than
// their retention period. It also creates the monthly partitions.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

// Config sets how long records are kept.
type Config struct {
	Records   time.Duration `env:"CONSENT_KEEP" envDefault:"43872h" help:"How long consent records are kept. A value below five years means five years. Whole months (UTC) are deleted."`
	Decisions time.Duration `env:"DECISION_KEEP" envDefault:"43872h" help:"How long decisions are kept. A value below five years means five years. Whole months (UTC) are deleted."`
}

const (
	// preCheckPeriod equals the default time for which the service `calls` keeps an idempotency
	// key without a request. While the key exists, a repeated POST can use the stored pre-check.
	preCheckPeriod = 30 * 24 * time.Hour
	// importIdleTimeout is the time after which an import that was not started and received no
	// further part is deleted.
	importIdleTimeout = 7 * 24 * time.Hour
	interval          = time.Hour
	retryDelay        = 30 * time.Second
	// monthsAhead is the number of future months that have partitions, so that inserts succeed even
	// if the job does not run for a while.
	monthsAhead = 3
)

// Job adds monthly partitions, drops partitions that are older than the retention periods,
// and deletes old pre-checks and idle imports. It runs once an hour in every replica.
type Job struct {
	store   *store.Store
	archive *store.Archive
	cfg     Config
}

// New creates a job. A retention period below five years is raised to five years.
func New(st *store.Store, archive *store.Archive, cfg Config) *Job {
	return &Job{store: st, archive: archive, cfg: cfg}
}

// Run runs until ctx ends. After an error it tries again after retryDelay.
func (j *Job) Run(ctx context.Context) error {
	for {
		pause := interval
		if err := j.RunOnce(ctx); err != nil && ctx.Err() == nil {
			pause = retryDelay
			slog.WarnContext(ctx, "retention of consent records and decisions failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// RunOnce does all tasks of the job once.
func (j *Job) RunOnce(ctx context.Context) error {
	now, err := j.archive.Now(ctx)
	if err != nil {
		return err
	}
	rotateErr := j.RotateMonths(ctx, now) // the other tasks run even after this error
	preChecks, err := j.store.DeletePreChecks(ctx, preCheckPeriod)
	if err != nil {
		return errors.Join(rotateErr, err)
	}
	if err := j.store.ClearErasedPreChecks(ctx); err != nil {
		return err
	}
	imports, err := j.store.DeleteIdleImports(ctx, importIdleTimeout)
	if preChecks+imports > 0 {
		slog.InfoContext(ctx, "old pre-checks and idle opt-out imports deleted", "pre_checks", preChecks, "imports", imports)
	}
	return errors.Join(rotateErr, err)
}

// RotateMonths adds the partitions of the current month and of the next months. It drops the months
// that are older than the retention period.
func (j *Job) RotateMonths(ctx context.Context, now time.Time) error {
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	added, err := j.archive.AddMonths(ctx, month, month.AddDate(0, monthsAhead, 0))
	if err != nil {
		return err
	}
	until := now
	if local := time.Now(); local.Before(until) {
		// if the clock of the database is ahead, the local clock decides, so recent months are kept
		until = local
	}
	records, errRecords := j.archive.DropMonths(ctx, store.RecordsTable, until.Add(-max(j.cfg.Records, minPeriod)))
	decisions, errDecisions := j.archive.DropMonths(ctx, store.DecisionsTable,
		until.Add(-max(j.cfg.Decisions, minPeriod)))
	if added+records+decisions > 0 {
		slog.InfoContext(ctx, "monthly partitions added or dropped", "added", added,
			"records_dropped", records, "decisions_dropped", decisions)
	}
	return errors.Join(errRecords, errDecisions)
}

// minPeriod is five years including leap days. The database refuses to drop newer partitions
// (docs/reference/api/operator-api.md#retention-periods).
const minPeriod = 1828 * 24 * time.Hour
