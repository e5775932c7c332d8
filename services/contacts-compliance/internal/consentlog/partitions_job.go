// Package pruning forgets the answers of pre-checks that nobody can ask for again and imports that were never started, makes the months that records and decisions will lie
// in, and drops those that are older than both are kept. It puts what was written before there were chains into them.

package consentlog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

// PartitionConfig is the keeping part of the environment.
type PartitionConfig struct {
	Records   time.Duration `env:"CONSENT_KEEP" envDefault:"43872h" help:"how long consent records are kept (43872h are five years and two days); they go with their month, and never before five years"`
	Decisions time.Duration `env:"DECISION_KEEP" envDefault:"43872h" help:"how long decisions are kept; they go with their month, and never before five years"`
}

const (
	// keep outlasts every idempotency key whose request was never stored (contract.md §1).
	keep = 30 * 24 * time.Hour
	// idle is how long an import may wait for its next part.
	idle              = 7 * 24 * time.Hour
	partitionInterval = time.Hour
	again             = 30 * time.Second
	// ahead covers a time in which nothing makes months.
	ahead = 3
)

// PartitionJob works once an hour.
type PartitionJob struct {
	store   *store.Store
	archive *store.Archive
	cfg     PartitionConfig
}

// NewPartitionJob makes a Pruner.
func NewPartitionJob(st *store.Store, of *store.Archive, cfg PartitionConfig) *PartitionJob {
	return &PartitionJob{store: st, archive: of, cfg: cfg}
}

// Run prunes until ctx ends. A database that is away is no reason to end: it is tried again soon.
func (p *PartitionJob) Run(ctx context.Context) error {
	for {
		pause := partitionInterval
		if err := p.Prune(ctx); err != nil && ctx.Err() == nil {
			pause = again
			slog.WarnContext(ctx, "records could not be tended; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Prune does all of it once. A second call does nothing.
func (p *PartitionJob) Prune(ctx context.Context) error {
	now, err := p.archive.Clock(ctx)
	if err != nil {
		return err
	}
	turned := p.TurnMonths(ctx, now) // a month that cannot go is no reason to leave the rest
	gone, err := p.store.PrunePreChecks(ctx, keep)
	if err != nil {
		return errors.Join(turned, err)
	}
	if err := p.store.ForgetErased(ctx); err != nil {
		return err
	}
	left, err := p.store.PruneImports(ctx, idle)
	if gone+left > 0 {
		slog.InfoContext(ctx, "pruned", "old pre-checks", gone, "imports that were never started", left)
	}
	return errors.Join(turned, err)
}

// TurnMonths makes the month of now and those ahead, and drops those that ended longer ago than they are kept.
func (p *PartitionJob) TurnMonths(ctx context.Context, now time.Time) error {
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	added, err := p.archive.AddMonths(ctx, month, month.AddDate(0, ahead, 0))
	if err != nil {
		return err
	}
	old := now
	if here := time.Now(); here.Before(old) {
		old = here // who can set the database's clock must not make us drop what is young
	}
	records, errRecords := p.archive.DropMonths(ctx, store.Records, old.Add(-max(p.cfg.Records, leastKept)))
	decisions, errDecisions := p.archive.DropMonths(ctx, store.Decisions, old.Add(-max(p.cfg.Decisions, leastKept)))
	if added+records+decisions > 0 {
		slog.InfoContext(ctx, "rotated monthly partitions", "added", added,
			"records_dropped", records, "decisions_dropped", decisions)
	}
	return errors.Join(errRecords, errDecisions)
}

// leastKept is five years, a leap day more than they can have: the database drops nothing younger (contract.md §10).
const leastKept = 1828 * 24 * time.Hour
