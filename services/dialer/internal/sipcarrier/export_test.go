package sipcarrier

import (
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/circuitbreaker"
)

// Answers reports whether a trunk has answered OPTIONS. Until then, no call is offered to the
// trunk.
func (c *Carrier) Answers(id uuid.UUID) bool {
	o := c.monitored.healthOf(id)
	return o != nil && o.monitor.HasAnswered()
}

// Accept records that a trunk accepted a call.
func (c *Carrier) Accept(id uuid.UUID) { c.monitored.healthOf(id).countResult(nil) }

// HalfOpen makes the circuit of a trunk half-open.
func (c *Carrier) HalfOpen(id uuid.UUID) {
	o := c.monitored.healthOf(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.circuit.Failed(time.Now().Add(-time.Hour), true)
	o.circuit.Try(time.Now())
}

// Circuit returns the state of a trunk's circuit, and whether a test call to the trunk is in
// progress.
func (c *Carrier) Circuit(id uuid.UUID) (state circuitbreaker.State, probing bool) {
	o := c.monitored.healthOf(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.circuit.State(), o.circuit.Probing()
}
