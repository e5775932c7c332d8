// Package holding puts holds of one workspace that arrive together into one commit. They all need the same
// wallet row: one by one they would wait for each other's disk write, each with a database connection of its own.

package store

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

// most bounds one commit; limit bounds its time.
const (
	most  = 64
	limit = 10 * time.Second
)

// HoldBatcher takes orders. Of each workspace at most one commit is under way in this process.
type HoldBatcher struct {
	store   *Store
	results *prometheus.CounterVec

	mu sync.Mutex
	// open has a key for each workspace that is being served; the value is who waits for the next commit.
	open map[uuid.UUID][]waitingHold
}

type waitingHold struct {
	order  holds.Order
	answer chan holdAnswer // one place: who left does not block the others
}

type holdAnswer struct {
	decision holds.Decision
	err      error
}

// NewHoldBatcher makes a desk over the store.
func NewHoldBatcher(st *Store, metrics prometheus.Registerer) *HoldBatcher {
	d := &HoldBatcher{
		store: st,
		results: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_holds_total", Help: "Holds asked for, by result: held, repeated, refused, failed.",
		}, []string{"result"}),
		open: make(map[uuid.UUID][]waitingHold),
	}
	for _, result := range []string{"held", "repeated", "refused", "failed"} {
		d.results.WithLabelValues(result)
	}
	return d
}

// Hold decides one order. Decision.Err refuses it; err says that it is not known what became of it, and that asking again
// with the same id is safe. The commit goes on when ctx ends.
func (d *HoldBatcher) Hold(ctx context.Context, order holds.Order) (holds.Decision, error) {
	w := waitingHold{order: order, answer: make(chan holdAnswer, 1)}
	d.mu.Lock()
	queue, served := d.open[order.WorkspaceID]
	d.open[order.WorkspaceID] = append(queue, w)
	d.mu.Unlock()
	if !served {
		go d.serve(context.WithoutCancel(ctx), order.WorkspaceID)
	}
	select {
	case a := <-w.answer:
		d.count(a)
		return a.decision, a.err
	case <-ctx.Done():
		return holds.Decision{}, ctx.Err()
	}
}

// serve commits for one workspace until nobody waits.
func (d *HoldBatcher) serve(ctx context.Context, workspaceID uuid.UUID) {
	for {
		d.mu.Lock()
		queue := d.open[workspaceID]
		if len(queue) == 0 {
			delete(d.open, workspaceID)
			d.mu.Unlock()
			return
		}
		batch := queue[:min(len(queue), most)]
		d.open[workspaceID] = queue[len(batch):]
		d.mu.Unlock()
		d.commit(ctx, workspaceID, batch)
	}
}

func (d *HoldBatcher) commit(ctx context.Context, workspaceID uuid.UUID, batch []waitingHold) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	orders := make([]holds.Order, 0, len(batch))
	for _, w := range batch {
		orders = append(orders, w.order)
	}
	decisions, err := d.store.Hold(ctx, workspaceID, orders)
	failpoint.Inject("billing-wallet: after hold")
	for i, w := range batch {
		if err != nil {
			w.answer <- holdAnswer{err: err}
			continue
		}
		w.answer <- holdAnswer{decision: decisions[i]}
	}
}

func (d *HoldBatcher) count(a holdAnswer) {
	result := "held"
	switch {
	case a.err != nil:
		result = "failed"
	case a.decision.Err != nil:
		result = "refused"
	case a.decision.Repeated:
		result = "repeated"
	}
	d.results.WithLabelValues(result).Inc()
}
