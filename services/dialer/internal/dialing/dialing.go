// Package dialing takes due requests from the queue and dials each at most once: own checks, the gate, the fence, the gate's answer
// looked at once more, the carrier (Laws 1 and 2). What becomes of the call afterwards is the news' business.
package dialing

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/asking"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/recovering"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/room"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// longestRest is how long the queue is left alone at most while nothing wakes us.
	longestRest = time.Second
	// crowdedRest is the pause while due work finds no room; each that finds none doubles it. An end of a call wakes us.
	crowdedRest, longestCrowded = 50 * time.Millisecond, 400 * time.Millisecond
	// breath is the shortest pause between claims, so that what comes meanwhile is claimed together; a claim that took long is followed by one twice as
	// long, at most longestBreath, so that claims never are most of what the database does.
	breath, longestBreath = 2 * time.Millisecond, 50 * time.Millisecond
	// afterFault is the pause after the database or the carrier could not be reached.
	afterFault = time.Second
)

// Limits of all trunks together, of the trunk, and of this process.
type Limits struct {
	// Attempts is how many requests this process works on at once.
	Attempts int
	// Overall and OfTrunk hold over all replicas; OfTrunk is asked before each claim.
	Overall room.Limit
	OfTrunk func(context.Context) (room.Limit, error)
	// Failures in a row open the carrier's circuit, for CircuitRest at first. 0: the carrier has its
	// own circuits.
	Failures    int
	CircuitRest time.Duration
	// From returns the trunk that is tried next for a call from the wanted number, and the number that the phone will
	// show; without are the trunks that refused. If the agent has no number, wanted is empty, and the error
	// carrier.ErrNoNumber blocks the request. nil: the wanted number, or tenant.DefaultFrom, over any trunk.
	From func(ctx context.Context, wanted string, without []string) (number, over string, err error)
	// Agents has the circuits of the addresses of AI agents; nil: there are none.
	Agents *agent.Circuits
	// Held says that nothing may be dialled just now, whatever is due; nil: never.
	Held func() bool
	// Dialling is told of each dial that is fenced, before Held is asked the last time and the carrier; nil: nobody is.
	Dialling func(r request.Request, callID uuid.UUID, from string)
}

// Dialer dials.
type Dialer struct {
	store    *store.Store
	contacts *asking.Contacts
	carrier  *trunk
	relay    *outbox.Relay
	heart    *recovering.Heart
	limits   Limits
	wake     chan struct{}
	attempts sync.WaitGroup
	busy     busy
	told     atomic.Pointer[time.Time] // when the process was told to stop; nil: it was not
	idle     bool                      // the last round found nothing due
	crowded  time.Duration             // the last pause for want of room
	dials    *prometheus.CounterVec
	lag      *prometheus.HistogramVec
}

// New dials over one carrier.
func New(st *store.Store, contacts *asking.Contacts, over carrier.Carrier, relay *outbox.Relay, heart *recovering.Heart,
	limits Limits, metrics prometheus.Registerer,
) *Dialer {
	d := &Dialer{
		store: st, contacts: contacts, carrier: newTrunk(over, limits.Failures, limits.CircuitRest, metrics), relay: relay, heart: heart, limits: limits, wake: make(chan struct{}, 1),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_attempts_total", Help: "Requests taken from the dial queue, by what became of them.",
		}, []string{"result"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_dialer_due_to_originate_seconds", Help: "From due to the carrier being asked, by what it waited for: its workspace's own limits, or no (the promise).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		}, []string{"held"}),
	}
	metrics.MustRegister(d.dials, d.lag)
	for _, result := range []string{
		"dialed", "refused", "unknown", "blocked", "rescheduled", "released", "put_back", "gate_silent", "fault",
	} {
		d.dials.WithLabelValues(result)
	}
	for _, held := range []bool{false, true} {
		d.late(held)
	}
	return d
}

// late is the lateness of what its workspace's own limits held back, or did not.
func (d *Dialer) late(held bool) prometheus.Observer {
	if held {
		return d.lag.WithLabelValues("limits")
	}
	return d.lag.WithLabelValues("no")
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
	defer d.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-timer.C:
		}
		begun := time.Now()
		rest := d.round(ctx)
		pause := min(max(breath, 2*time.Since(begun)), longestBreath)
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(max(0, rest-pause))
	}
}

// leave says that the process was told to stop.
func (d *Dialer) leave() {
	now := time.Now()
	d.told.Store(&now)
}

func (d *Dialer) note(r request.Request, o carrier.Originate) {
	if d.limits.Dialling != nil {
		d.limits.Dialling(r, o.CallID, o.From)
	}
}

func (d *Dialer) held() bool { return d.limits.Held != nil && d.limits.Held() }

// round claims what is due and starts an attempt for each. It answers how long to rest.
func (d *Dialer) round(ctx context.Context) (rest time.Duration) {
	hands := d.busy.hands(d.limits.Attempts)
	if hands.Free <= 0 || d.held() {
		return longestRest // an attempt that ends wakes us
	}
	if d.idle { // one question that locks nothing, as long as nothing is due
		wait, waiting, err := d.store.NextLook(ctx)
		switch {
		case err != nil:
			return d.fault(ctx, err)
		case !waiting:
			return longestRest
		case wait > 0:
			return min(wait, longestRest)
		}
	}
	calls, closed := d.carrier.passable(ctx, hands.Free)
	ofTrunk := room.Limit{} // no trunk can take a call: only requests that must be blocked are claimed
	if calls > 0 {
		var err error
		if ofTrunk, err = d.limits.OfTrunk(ctx); err != nil {
			return d.fault(ctx, err)
		}
		closed = longestRest
	}
	if 0 < calls && calls < hands.Free { // a probe is anybody's
		hands.Free, hands.All = calls, 0
	}
	claimed, err := d.store.Claim(ctx, store.Room{Hands: hands, Trunk: d.carrier.Name(), OfTrunk: ofTrunk, Overall: d.limits.Overall})
	if err != nil {
		return d.fault(ctx, err)
	}
	for _, r := range claimed.Requests {
		d.busy.add(r.WorkspaceID, 1)
		d.attempts.Go(func() {
			defer d.Wake()
			defer d.busy.add(r.WorkspaceID, -1)
			d.attempt(ctx, r)
		})
	}
	if rest = d.after(claimed); ofTrunk.Live == 0 && claimed.Crowded && len(claimed.Requests) == 0 && !claimed.More {
		return min(closed, longestRest)
	}
	return rest
}

// after is how long to rest after a claim.
func (d *Dialer) after(claimed store.Claimed) time.Duration {
	d.idle = len(claimed.Requests) == 0 && !claimed.More && !claimed.Crowded
	switch {
	case len(claimed.Requests) > 0 || claimed.More || d.idle:
		d.crowded = 0
		return 0
	case claimed.Wait > 0:
		d.crowded = 0
		return min(claimed.Wait, longestRest)
	}
	d.crowded = min(max(crowdedRest, 2*d.crowded), longestCrowded)
	return d.crowded
}

func (d *Dialer) fault(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		slog.WarnContext(ctx, "due requests could not be claimed", "error", err)
	}
	return afterFault
}

// busy counts the attempts under way by workspace.
type busy struct {
	mu  sync.Mutex
	all int
	of  map[uuid.UUID]int
}

func (b *busy) add(workspace uuid.UUID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[uuid.UUID]int{}
	}
	b.all += n
	if b.of[workspace] += n; b.of[workspace] == 0 {
		delete(b.of, workspace)
	}
}

func (b *busy) hands(all int) room.Hands {
	b.mu.Lock()
	defer b.mu.Unlock()
	return room.Hands{All: all, Free: all - b.all, Busy: maps.Clone(b.of)}
}
