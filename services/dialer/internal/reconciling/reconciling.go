// Package reconciling holds the slots against the claims and calls that there are, all the time: one that has outlived both would keep a workspace, or
// everybody, from dialling. Every way a claim or a call ends gives its slot back by itself, so it finds none.
package reconciling

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/store"
)

// every is how often the slots are looked through.
const every = 5 * time.Second

// Reconciler does it.
type Reconciler struct {
	store *store.Store
	freed func()
	slots *prometheus.CounterVec
}

// New reconciles the store; freed is told when slots were given back.
func New(st *store.Store, freed func(), metrics prometheus.Registerer) *Reconciler {
	r := &Reconciler{store: st, freed: freed, slots: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_leaked_slots_total",
		Help: "Slots that were wrong when they were held against claims and calls, and put right: leaked outlived both, missing counts calls without one.",
	}, []string{"kind"})}
	metrics.MustRegister(r.slots)
	r.slots.WithLabelValues("leaked")
	r.slots.WithLabelValues("missing")
	return r
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "slots were not reconciled", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Reconcile looks through all slots once.
func (r *Reconciler) Reconcile(ctx context.Context) error {
	leaked, missing, err := r.store.ReconcileSlots(ctx)
	for _, slot := range leaked {
		slog.ErrorContext(ctx, "a leaked slot was given back", "call_request_id", slot.CallRequestID, "workspace_id", slot.WorkspaceID, "trunk", slot.Trunk)
	}
	r.slots.WithLabelValues("leaked").Add(float64(len(leaked)))
	r.slots.WithLabelValues("missing").Add(float64(missing))
	if missing > 0 {
		slog.WarnContext(ctx, "calls without a slot were given one", "calls", missing)
	}
	if len(leaked) > 0 {
		r.freed()
	}
	return err
}
