// Package dialing takes due requests from the queue and dials each at most once: own checks, the gate, the fence, the gate's answer
// looked at once more, the carrier (Laws 1 and 2). What becomes of the call afterwards is the news' business.
package dialing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/asking"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/recovering"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// longestRest is how long the queue is left alone at most while nothing wakes us.
	longestRest = time.Second
	// crowdedRest is the pause while due work finds no room.
	crowdedRest = 50 * time.Millisecond
	// afterFault is the pause after the database or the carrier could not be reached.
	afterFault = time.Second
)

// Limits of the trunk and of this process.
type Limits struct {
	// Attempts is how many requests this process works on at once.
	Attempts int
	// Channels and CallsPerSecond bound the trunk over all replicas.
	Channels, CallsPerSecond int
}

// Dialer dials.
type Dialer struct {
	store    *store.Store
	contacts *asking.Contacts
	carrier  carrier.Carrier
	relay    *outbox.Relay
	heart    *recovering.Heart
	limits   Limits
	wake     chan struct{}
	busy     atomic.Int64
	down     atomic.Bool // the carrier could not be reached
	attempts sync.WaitGroup
	dials    *prometheus.CounterVec
	lag      prometheus.Histogram
}

// New dials over one carrier.
func New(st *store.Store, contacts *asking.Contacts, trunk carrier.Carrier, relay *outbox.Relay, heart *recovering.Heart,
	limits Limits, metrics prometheus.Registerer,
) *Dialer {
	d := &Dialer{
		store: st, contacts: contacts, carrier: trunk, relay: relay, heart: heart, limits: limits, wake: make(chan struct{}, 1),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_attempts_total", Help: "Requests taken from the dial queue, by what became of them.",
		}, []string{"result"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ringfence_dialer_due_to_originate_seconds", Help: "From due to the carrier being asked.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
		}),
	}
	metrics.MustRegister(d.dials, d.lag)
	return d
}

// Wake says that work may be due, or room has come free. It never blocks.
func (d *Dialer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run dials until ctx ends, then ends the attempts that have begun.
func (d *Dialer) Run(ctx context.Context) error {
	defer d.attempts.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-timer.C:
		}
		timer.Reset(d.round(ctx))
	}
}

// round claims what is due and starts an attempt for each. It answers how long to rest.
func (d *Dialer) round(ctx context.Context) (rest time.Duration) {
	slots := d.limits.Attempts - int(d.busy.Load())
	if slots <= 0 {
		return longestRest // an attempt that ends wakes us
	}
	if d.down.Load() {
		if err := d.carrier.Ready(ctx); err != nil {
			return afterFault
		}
		d.down.Store(false)
	}
	claimed, err := d.store.Claim(ctx, store.Room{Slots: slots, Channels: d.limits.Channels, CallsPerSecond: d.limits.CallsPerSecond})
	if err != nil {
		if ctx.Err() == nil {
			slog.WarnContext(ctx, "due requests could not be claimed", "error", err)
		}
		return afterFault
	}
	for _, r := range claimed {
		d.busy.Add(1)
		d.attempts.Go(func() {
			defer d.Wake()
			defer d.busy.Add(-1)
			d.attempt(ctx, r)
		})
	}
	if len(claimed) > 0 {
		return 0
	}
	wait, waiting, err := d.store.NextLook(ctx)
	switch {
	case err != nil:
		return afterFault
	case !waiting:
		return longestRest
	case wait <= 0:
		return crowdedRest
	}
	return min(wait, longestRest)
}
