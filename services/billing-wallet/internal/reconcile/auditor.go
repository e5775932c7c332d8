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
	longestPause = time.Minute
	claimed      = 20
	// rest is how many times as long as a comparison took the auditor waits before the next: it never has more of a database connection than a tenth.
	rest = 9
	// mostLogged bounds what one workspace logs; the command tells all.
	mostLogged = 20
)

// Auditor compares every wallet's books once in a while, beside the service; its replicas share the work.
type Auditor struct {
	store       *store.Store
	every       time.Duration
	differences prometheus.Gauge
	age         prometheus.Gauge
}

// NewAuditor makes one that looks at each wallet's books again after every; zero: never.
func NewAuditor(st *store.Store, every time.Duration, metrics prometheus.Registerer) *Auditor {
	return &Auditor{
		store: st, every: every,
		differences: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_reconciliation_differences", Help: "Differences that the last looks at all wallets' books have found: zero, or money does not add up.",
		}),
		age: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_reconciliation_age_seconds", Help: "Time since the wallet longest not compared was; rises when reconciling stands still.",
		}),
	}
}

// Run compares until ctx ends.
func (a *Auditor) Run(ctx context.Context) error {
	if a.every == 0 {
		return nil
	}
	ticks := time.NewTicker(max(min(a.every/4, longestPause), time.Millisecond))
	defer ticks.Stop()
	for {
		if err := a.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "reconciling books", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// Pass compares every wallet that is due, and sets the metrics, whatever else fails: what nobody could compare grows old. One workspace that cannot be read is due again
// later and holds up no other.
func (a *Auditor) Pass(ctx context.Context) (fault error) {
	for {
		due, err := a.store.ClaimReconciliations(ctx, a.every, claimed)
		for _, workspaceID := range due {
			if err := a.compare(ctx, workspaceID); err != nil {
				fault = err
			}
		}
		if err := errors.Join(err, a.tell(ctx)); err != nil {
			return err
		}
		if len(due) < claimed {
			return fault
		}
	}
}

func (a *Auditor) tell(ctx context.Context) error {
	sum, err := a.store.Reconciled(ctx)
	if err != nil {
		return err
	}
	a.differences.Set(float64(sum.Differences))
	a.age.Set(sum.AgeSeconds)
	return nil
}

func (a *Auditor) compare(ctx context.Context, workspaceID uuid.UUID) error {
	began := time.Now()
	found, err := a.store.Differences(ctx, workspaceID)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for _, d := range found[:min(len(found), mostLogged)] {
		slog.ErrorContext(ctx, "the books do not agree", "workspace_id", d.WorkspaceID, "kind", d.Kind, "subject", d.Subject, "kept", d.Kept, "found", d.Found)
	}
	if err := a.store.SaveReconciliation(ctx, workspaceID, len(found)); err != nil {
		return err
	}
	pause := time.NewTimer(rest * took)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}
