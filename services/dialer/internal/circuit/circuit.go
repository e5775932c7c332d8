// Package circuit owns whether a trunk is worth asking: it opens after failures in a row, rests, and lets one call through to see. It reads no clock and
// knows no carrier.
package circuit

import "time"

// State of a circuit.
type State string

// States. Closed lets everything through, open nothing, half-open one call at a time.
const (
	Closed   State = "closed"
	HalfOpen State = "half_open"
	Open     State = "open"
)

// longest is how many times its first rest a circuit rests at most.
const longest = 32

// Breaker is the circuit of one trunk. It is not safe for use by several goroutines.
type Breaker struct {
	limit       int
	first, rest time.Duration
	state       State
	failures    int
	until       time.Time
	probing     bool
}

// New is a closed circuit that opens after limit failures in a row and then rests; each probe that fails doubles the rest, up to 32 times the first.
func New(limit int, rest time.Duration) *Breaker {
	return &Breaker{limit: max(1, limit), first: rest, rest: rest, state: Closed}
}

// State is the state as of the last word.
func (b *Breaker) State() State { return b.state }

// Rest is how long the circuit still rests; zero: it does not.
func (b *Breaker) Rest(now time.Time) time.Duration {
	if b.state != Open {
		return 0
	}
	return max(0, b.until.Sub(now))
}

// Probing says that the one call which a half-open circuit lets through is on its way.
func (b *Breaker) Probing() bool { return b.state == HalfOpen && b.probing }

// Try is the end of the rest: the carrier can be reached, one call may see. Nothing changes while the circuit is not open or rests.
func (b *Breaker) Try(now time.Time) {
	if b.state == Open && b.Rest(now) == 0 {
		b.state, b.probing = HalfOpen, false
	}
}

// Absent begins the rest again: the carrier cannot be reached at all, so no call is risked.
func (b *Breaker) Absent(now time.Time) {
	if b.state == Open {
		b.until = now.Add(b.first)
	}
}

// Allow asks for one call. What became of it is told by Succeeded or Failed; a probe of which the carrier was never asked by Unasked.
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

// Unasked takes a probe back.
func (b *Breaker) Unasked() { b.probing = false }

// Succeeded closes a circuit that is half open. A late success of a call from before changes nothing while it is open.
func (b *Breaker) Succeeded() (closed bool) {
	b.failures = 0
	if b.state != HalfOpen {
		return false
	}
	b.state, b.probing, b.rest = Closed, false, b.first
	return true
}

// Failed counts a failure of the trunk; gone says that nothing listens there, which opens the circuit at once.
func (b *Breaker) Failed(now time.Time, gone bool) (opened bool) {
	b.failures++
	switch {
	case b.state == Open, b.state == Closed && b.failures < b.limit && !gone:
		return false
	case b.state == HalfOpen:
		b.rest = min(2*b.rest, longest*b.first)
	}
	b.state, b.probing, b.until = Open, false, now.Add(b.rest)
	return true
}
