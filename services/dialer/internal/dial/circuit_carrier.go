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

// circuitCarrier is a carrier with a circuit breaker. The SIP carrier has a circuit for each trunk,
// so for the SIP carrier the field breaker is nil.
type circuitCarrier struct {
	carrier.Carrier
	mu      sync.Mutex
	breaker *circuitbreaker.Breaker
	states  *prometheus.GaugeVec
	opened  *prometheus.CounterVec
}

func newCircuitCarrier(
	c carrier.Carrier,
	failures int,
	wait time.Duration,
	metrics prometheus.Registerer,
) *circuitCarrier {
	if failures == 0 {
		return &circuitCarrier{Carrier: c}
	}
	t := &circuitCarrier{
		Carrier: c, breaker: circuitbreaker.New(failures, wait),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_circuit_state", Help: "1 for the state in which the trunk's circuit is, 0 for the others.",
		}, []string{"trunk", "state"}),
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_circuit_opened_total",
			Help: "How often the trunk's circuit opened after failures of the carrier.",
		}, []string{"trunk"}),
	}
	metrics.MustRegister(t.states, t.opened)
	t.opened.WithLabelValues(c.Name())
	t.updateMetrics()
	return t
}

// updateMetrics sets the metric of the circuit's state. The caller must hold mu, unless no other
// goroutine has access to the carrier yet.
func (t *circuitCarrier) updateMetrics() {
	for _, state := range []circuitbreaker.State{circuitbreaker.Closed, circuitbreaker.HalfOpen, circuitbreaker.Open} {
		value := 0.0
		if state == t.breaker.State() {
			value = 1
		}
		t.states.WithLabelValues(t.Name(), string(state)).Set(value)
	}
}

// permittedCalls returns how many calls the circuit permits now, at most maxCalls. If the circuit
// permits no call, wait is the time until the next try.
func (t *circuitCarrier) permittedCalls(ctx context.Context, maxCalls int) (calls int, wait time.Duration) {
	if t.breaker == nil {
		return maxCalls, 0
	}
	t.mu.Lock()
	state, wait, probing := t.breaker.State(), t.breaker.Rest(time.Now()), t.breaker.Probing()
	t.mu.Unlock()
	switch {
	case state == circuitbreaker.Closed:
		return maxCalls, 0
	case state == circuitbreaker.Open && wait > 0:
		return 0, wait
	case probing:
		return 0, maxScanInterval
	}
	err := t.Ready(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.updateMetrics()
	if err != nil {
		t.breaker.ExtendRest(time.Now())
		return 0, faultPause
	}
	t.breaker.Try(time.Now())
	return min(maxCalls, 1), 0
}

// reserveCall reserves one call. If ok is true, the caller must pass the result of the call to
// recordResult and call done at the end of the attempt.
func (t *circuitCarrier) reserveCall() (done func(), ok bool) {
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
		t.breaker.CancelTest()
	}, ok
}

// recordResult opens or closes the circuit, depending on the result of Originate. A refusal by the
// called party counts as a success of the carrier.
func (t *circuitCarrier) recordResult(ctx context.Context, originateErr error) {
	if t.breaker == nil {
		return
	}
	var refused *carrier.Refused
	answered := originateErr == nil || errors.As(originateErr, &refused) && !refused.NotSent && !refused.Cause.OfTrunk()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.updateMetrics()
	if answered {
		if t.breaker.Succeeded() {
			slog.InfoContext(ctx, "carrier circuit breaker closed", "trunk", t.Name())
		}
		return
	}
	if t.breaker.Failed(time.Now(), refused != nil && refused.NotSent) {
		t.opened.WithLabelValues(t.Name()).Inc()
		slog.WarnContext(
			ctx,
			"carrier circuit breaker opened",
			"trunk",
			t.Name(),
			"open_for",
			t.breaker.Rest(time.Now()),
			"error",
			originateErr,
		)
	}
}
