package dispatching

import (
	"context"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// How an attempt began.
const (
	byClaim  = "claim"
	byDirect = "direct"
)

// Seat reserves room for the first attempt of a delivery that is about to be committed as claimed for Config.Lease. false: there is none, or
// Run was told to stop; the delivery waits for a claim. Each seat ends in Start or Unseat, and Run does not return before.
func (d *Dispatcher) Seat(subscriptionID uuid.UUID, url string) bool {
	d.gate.RLock()
	defer d.gate.RUnlock()
	if d.shut || !d.lanes.seat(subscriptionID, url) {
		return false
	}
	d.sending.Add(1)
	return true
}

// Unseat gives back a seat that came to nothing. Its delivery may be due all the same, and others may have waited for the room.
func (d *Dispatcher) Unseat(subscriptionID uuid.UUID) {
	d.lanes.unseat(subscriptionID)
	d.sending.Done()
	d.Wake()
}

// Start sends committed work that has seats; it does not wait.
func (d *Dispatcher) Start(work []delivery.Work) {
	for _, w := range work {
		d.metrics.started.WithLabelValues(byDirect).Inc()
		d.launch(context.Background(), w)
		d.sending.Done() // launch has counted it again
	}
}

// refuse gives no more seats.
func (d *Dispatcher) refuse() {
	d.gate.Lock()
	defer d.gate.Unlock()
	d.shut = true
}
