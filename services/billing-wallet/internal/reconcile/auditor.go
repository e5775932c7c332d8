package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"ringfence.dev/services/billing-wallet/internal/store"
)

const (
	maxInterval = time.Minute
	claimBatch  = 20
	// After each comparison, the auditor waits pauseFactor times as long as the comparison took. So
	// it uses a database connection for at most a tenth of the time.
	pauseFactor = 9
	// maxLogged limits the number of differences that are logged for one workspace. The command
	// reconcile prints all differences.
	maxLogged = 20
)

// Auditor compares every wallet periodically with its transactions and holds. Replicas share the
// work.
type Auditor struct {
	store       *store.Store
	interval    time.Duration
	differences prometheus.Gauge
	age         prometheus.Gauge
}

// NewAuditor returns an auditor that compares each wallet once in every interval. If interval is 0,
// the auditor does nothing.
func NewAuditor(st *store.Store, interval time.Duration, metrics prometheus.Registerer) *Auditor {
	return &Auditor{
		store: st, interval: interval,
		differences: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_reconciliation_differences",
			Help: "Differences that the last reconciliation of each wallet found. Any other value than 0 is an error in the ledger.",
		}),
		age: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_reconciliation_age_seconds",
			Help: "Seconds since the oldest of the last reconciliations of all wallets.",
		}),
	}
}

// Run runs the auditor until ctx ends. It always returns nil.
func (a *Auditor) Run(ctx context.Context) error {
	if a.interval == 0 {
		return nil
	}
	ticks := time.NewTicker(max(min(a.interval/4, maxInterval), time.Millisecond))
	defer ticks.Stop()
	for {
		if err := a.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "reconciliation failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// Pass compares every wallet whose interval has passed, and then sets the metrics, even after an
// error. If a comparison fails, it is repeated in a later pass and does not delay other workspaces.
func (a *Auditor) Pass(ctx context.Context) (fault error) {
	for {
		due, err := a.store.ClaimReconciliations(ctx, a.interval, claimBatch)
		for _, workspaceID := range due {
			if err := a.compare(ctx, workspaceID); err != nil {
				fault = err
			}
		}
		if err := errors.Join(err, a.setMetrics(ctx)); err != nil {
			return err
		}
		if len(due) < claimBatch {
			return fault
		}
	}
}

func (a *Auditor) setMetrics(ctx context.Context) error {
	sum, err := a.store.Reconciled(ctx)
	if err != nil {
		return err
	}
	a.differences.Set(float64(sum.Differences))
	a.age.Set(sum.AgeSeconds)
	return nil
}

func (a *Auditor) compare(ctx context.Context, workspaceID uuid.UUID) error {
	started := time.Now()
	found, err := a.store.Differences(ctx, workspaceID)
	if err != nil {
		return err
	}
	took := time.Since(started)
	for _, d := range found[:min(len(found), maxLogged)] {
		slog.ErrorContext(ctx, "reconciliation difference found", "workspace_id", d.WorkspaceID, "kind", d.Kind, "subject",
			d.Subject, "kept", d.Kept, "found", d.Found)
	}
	if err := a.store.SaveReconciliation(ctx, workspaceID, len(found)); err != nil {
		return err
	}
	pause := time.NewTimer(pauseFactor * took)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}
