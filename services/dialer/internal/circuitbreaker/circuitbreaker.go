// Package circuitbreaker is the circuit breaker of a trunk, a carrier or an agent. After several
// consecutive failures, the circuit opens and permits no calls. After the rest time, it permits one
// test call. Callers pass the current time.
package circuitbreaker

import "time"

// State is the state of a circuit.
type State string

// A closed circuit permits all calls, an open circuit none, and a half-open circuit one.
const (
	Closed   State = "closed"
	HalfOpen State = "half_open"
	Open     State = "open"
)

// maxRestFactor is the longest rest time, as a multiple of the first rest time.
const maxRestFactor = 32

// Breaker is one circuit. It is not safe for concurrent use.
type Breaker struct {
	limit       int
	first, rest time.Duration
	state       State
	failures    int
	until       time.Time
	probing     bool
}

// New returns a closed circuit. It opens after limit consecutive failures, and then stays open for
// the duration rest. Each failed test call doubles this duration, up to 32 times rest.
func New(limit int, rest time.Duration) *Breaker {
	return &Breaker{limit: max(1, limit), first: rest, rest: rest, state: Closed}
}

func (b *Breaker) State() State { return b.state }

// Rest returns how much longer the circuit stays open. It is zero if the circuit is not open.
func (b *Breaker) Rest(now time.Time) time.Duration {
	if b.state != Open {
		return 0
	}
	return max(0, b.until.Sub(now))
}

// Probing reports whether a test call of a half-open circuit is in progress.
func (b *Breaker) Probing() bool { return b.state == HalfOpen && b.probing }

// Try makes an open circuit half-open if its rest time has passed.
func (b *Breaker) Try(now time.Time) {
	if b.state == Open && b.Rest(now) == 0 {
		b.state, b.probing = HalfOpen, false
	}
}

// ExtendRest keeps an open circuit open until the first rest time has passed from now. It is called
// if the carrier cannot be reached, because a test call would certainly fail.
func (b *Breaker) ExtendRest(now time.Time) {
	if b.state == Open {
		b.until = now.Add(b.first)
	}
}

// Allow reserves one call. If ok is false, the circuit permits no call. If probe is true, the call
// is the test call of a half-open circuit. The caller must then call Succeeded or Failed, or
// CancelTest if nothing was sent.
func (b *Breaker) Allow() (probe, ok bool) {
	switch {
	case b.state == Closed:
		return false, true
	case b.state == Open || b.probing:
		return false, false
	}
	b.probing = true
	return true, true
}

// CancelTest cancels the reservation of a test call that was not sent.
func (b *Breaker) CancelTest() { b.probing = false }

// Succeeded closes a half-open circuit, and reports whether it did. It does not close an open
// circuit, because the successful call began before the circuit opened.
func (b *Breaker) Succeeded() (closed bool) {
	b.failures = 0
	if b.state != HalfOpen {
		return false
	}
	b.state, b.probing, b.rest = Closed, false, b.first
	return true
}

// Failed counts a failure, and reports whether the circuit opened. If definite is true, the failure
// opens the circuit immediately.
func (b *Breaker) Failed(now time.Time, definite bool) (opened bool) {
	b.failures++
	switch {
	case b.state == Open, b.state == Closed && b.failures < b.limit && !definite:
		return false
	case b.state == HalfOpen:
		b.rest = min(2*b.rest, maxRestFactor*b.first)
	}
	b.state, b.probing, b.until = Open, false, now.Add(b.rest)
	return true
}
