// Package pruning forgets the answers of pre-checks that nobody can ask for again. Decisions and consent
// records stay: they are kept for years.
package pruning

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

// keep outlasts every idempotency key whose request was never stored (contract.md §1).
const keep = 30 * 24 * time.Hour

// Pruner works once an hour.
type Pruner struct{ store *store.Store }

// New makes a Pruner.
func New(st *store.Store) *Pruner { return &Pruner{store: st} }

// Run prunes until ctx ends. A database that is away is no reason to end: the next hour will do.
func (p *Pruner) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		gone, err := p.store.PrunePreChecks(ctx, keep)
		switch {
		case err != nil && ctx.Err() == nil:
			slog.WarnContext(ctx, "old pre-checks were not pruned", "error", err)
		case gone > 0:
			slog.InfoContext(ctx, "old pre-checks pruned", "count", gone)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
