package dial

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuitbreaker"
)

// trunk is a carrier behind a circuit breaker of this process. A carrier that has its own circuits (SIP,
// one per trunk) has no breaker here.
type trunk struct {
	carrier.Carrier
	mu      sync.Mutex
	breaker *circuitbreaker.Breaker
	states  *prometheus.GaugeVec
	opened  *prometheus.CounterVec
}

func newTrunk(over carrier.Carrier, failures int, rest time.Duration, metrics prometheus.Registerer) *trunk {
	if failures == 0 {
		return &trunk{Carrier: over}
	}
	t := &trunk{
		Carrier: over, breaker: circuitbreaker.New(failures, rest),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_circuit_state", Help: "1 for the state in which the trunk's circuit is, 0 for the others.",
		}, []string{"trunk", "state"}),
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_circuit_opened_total", Help: "How often the trunk's circuit opened after failures of the carrier.",
		}, []string{"trunk"}),
	}
	metrics.MustRegister(t.states, t.opened)
	t.opened.WithLabelValues(over.Name())
	t.show()
	return t
}

// show must be called with the lock held, or before anybody else knows the trunk.
func (t *trunk) show() {
	for _, state := range []circuitbreaker.State{circuitbreaker.Closed, circuitbreaker.HalfOpen, circuitbreaker.Open} {
		value := 0.0
		if state == t.breaker.State() {
			value = 1
		}
		t.states.WithLabelValues(t.Name(), string(state)).Set(value)
	}
}

// passable says how many calls the circuit lets through, at most hands. Zero: none for rest. A circuit that has rested asks the carrier whether it
// is there before it risks a call.
func (t *trunk) passable(ctx context.Context, hands int) (calls int, rest time.Duration) {
	if t.breaker == nil {
		return hands, 0
	}
	t.mu.Lock()
	state, rest, probing := t.breaker.State(), t.breaker.Rest(time.Now()), t.breaker.Probing()
	t.mu.Unlock()
	switch {
	case state == circuitbreaker.Closed:
		return hands, 0
	case state == circuitbreaker.Open && rest > 0:
		return 0, rest
	case probing:
		return 0, longestRest
	}
	err := t.Ready(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.show()
	if err != nil {
		t.breaker.Absent(time.Now())
		return 0, afterFault
	}
	t.breaker.Try(time.Now())
	return min(hands, 1), 0
}

// allow asks for one call; what the carrier said is told by heard. done must be called when the attempt is over.
func (t *trunk) allow() (done func(), ok bool) {
	if t.breaker == nil {
		return func() {}, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	probe, ok := t.breaker.Allow()
	return func() {
		if !probe {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.breaker.Unasked()
	}, ok
}

// heard takes what the carrier said to an originate: nil, a refusal, or nothing that anybody could use.
func (t *trunk) heard(ctx context.Context, said error) {
	if t.breaker == nil {
		return
	}
	var refused *carrier.Refused
	answered := said == nil || errors.As(said, &refused) && !refused.NotSent && !refused.Cause.OfTrunk()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.show()
	if answered {
		if t.breaker.Succeeded() {
			slog.InfoContext(ctx, "the trunk's circuit closed", "trunk", t.Name())
		}
		return
	}
	if t.breaker.Failed(time.Now(), refused != nil && refused.NotSent) {
		t.opened.WithLabelValues(t.Name()).Inc()
		slog.WarnContext(ctx, "the trunk's circuit opened", "trunk", t.Name(), "rest", t.breaker.Rest(time.Now()), "error", said)
	}
}
