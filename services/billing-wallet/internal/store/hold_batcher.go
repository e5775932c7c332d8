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

// maxBatch limits the number of holds in one commit. commitTimeout limits the duration of the
// transaction.
const (
	maxBatch      = 64
	commitTimeout = 10 * time.Second
)

// HoldBatcher combines concurrent orders of one workspace into one commit, because all these orders
// need the lock on the same wallet. Each process runs at most one commit per workspace at a time.
type HoldBatcher struct {
	store   *Store
	results *prometheus.CounterVec

	mu sync.Mutex
	// openOrders has an entry for each workspace for which a goroutine commits orders. The entry
	// contains the orders that are not part of a commit yet.
	openOrders map[uuid.UUID][]pendingOrder
}

type pendingOrder struct {
	order  holds.Order
	result chan holdResult // the channel is buffered, so that sending does not block after the caller has returned
}

type holdResult struct {
	decision holds.Decision
	err      error
}

// NewHoldBatcher returns a batcher for the store.
func NewHoldBatcher(st *Store, metrics prometheus.Registerer) *HoldBatcher {
	d := &HoldBatcher{
		store: st,
		results: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_holds_total",
			Help: "Requests for a hold by result: held, repeated, refused, failed.",
		}, []string{"result"}),
		openOrders: make(map[uuid.UUID][]pendingOrder),
	}
	for _, result := range []string{"held", "repeated", "refused", "failed"} {
		d.results.WithLabelValues(result)
	}
	return d
}

// Hold decides one order. If the order is refused, Decision.Err is the reason. If err is not nil,
// the outcome is unknown, and the caller can safely repeat the order. The end of ctx does not stop
// the commit.
func (d *HoldBatcher) Hold(ctx context.Context, order holds.Order) (holds.Decision, error) {
	w := pendingOrder{order: order, result: make(chan holdResult, 1)}
	d.mu.Lock()
	queue, served := d.openOrders[order.WorkspaceID]
	d.openOrders[order.WorkspaceID] = append(queue, w)
	d.mu.Unlock()
	if !served {
		go d.serve(context.WithoutCancel(ctx), order.WorkspaceID)
	}
	select {
	case a := <-w.result:
		d.countResult(a)
		return a.decision, a.err
	case <-ctx.Done():
		return holds.Decision{}, ctx.Err()
	}
}

func (d *HoldBatcher) serve(ctx context.Context, workspaceID uuid.UUID) {
	for {
		d.mu.Lock()
		queue := d.openOrders[workspaceID]
		if len(queue) == 0 {
			delete(d.openOrders, workspaceID)
			d.mu.Unlock()
			return
		}
		batch := queue[:min(len(queue), maxBatch)]
		d.openOrders[workspaceID] = queue[len(batch):]
		d.mu.Unlock()
		d.commit(ctx, workspaceID, batch)
	}
}

func (d *HoldBatcher) commit(ctx context.Context, workspaceID uuid.UUID, batch []pendingOrder) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	orders := make([]holds.Order, 0, len(batch))
	for _, w := range batch {
		orders = append(orders, w.order)
	}
	decisions, err := d.store.Hold(ctx, workspaceID, orders)
	failpoint.Inject("billing-wallet: after hold")
	for i, w := range batch {
		if err != nil {
			w.result <- holdResult{err: err}
			continue
		}
		w.result <- holdResult{decision: decisions[i]}
	}
}

func (d *HoldBatcher) countResult(a holdResult) {
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
