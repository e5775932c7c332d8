// Package holding puts holds of one workspace that arrive together into one commit. They all need the same
// wallet row: one by one they would wait for each other's disk write, each with a database connection of its own.
package holding

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"ringfence.dev/libs/crash"
	"ringfence.dev/services/billing-wallet/internal/hold"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// most bounds one commit; limit bounds its time.
const (
	most  = 64
	limit = 10 * time.Second
)

// Desk takes orders. Of each workspace at most one commit is under way in this process.
type Desk struct {
	store   *store.Store
	results *prometheus.CounterVec

	mu sync.Mutex
	// open has a key for each workspace that is being served; the value is who waits for the next commit.
	open map[uuid.UUID][]waiting
}

type waiting struct {
	order  hold.Order
	answer chan answer // one place: who left does not block the others
}

type answer struct {
	decision hold.Decision
	err      error
}

// New makes a desk over the store.
func New(st *store.Store, metrics prometheus.Registerer) *Desk {
	d := &Desk{
		store: st,
		results: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "billing_wallet_holds_total", Help: "Holds asked for, by result: held, repeated, refused, failed.",
		}, []string{"result"}),
		open: make(map[uuid.UUID][]waiting),
	}
	for _, result := range []string{"held", "repeated", "refused", "failed"} {
		d.results.WithLabelValues(result)
	}
	return d
}

// Hold decides one order. Decision.Err refuses it; err says that it is not known what became of it, and that asking again
// with the same id is safe. The commit goes on when ctx ends.
func (d *Desk) Hold(ctx context.Context, order hold.Order) (hold.Decision, error) {
	w := waiting{order: order, answer: make(chan answer, 1)}
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
		return hold.Decision{}, ctx.Err()
	}
}

// serve commits for one workspace until nobody waits.
func (d *Desk) serve(ctx context.Context, workspaceID uuid.UUID) {
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

func (d *Desk) commit(ctx context.Context, workspaceID uuid.UUID, batch []waiting) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	orders := make([]hold.Order, 0, len(batch))
	for _, w := range batch {
		orders = append(orders, w.order)
	}
	decisions, err := d.store.Hold(ctx, workspaceID, orders)
	crash.Point("billing-wallet: after hold")
	for i, w := range batch {
		if err != nil {
			w.answer <- answer{err: err}
			continue
		}
		w.answer <- answer{decision: decisions[i]}
	}
}

func (d *Desk) count(a answer) {
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
