// Package dial takes due requests from the queue and dials each at most once: own checks, the gate, the fence, the gate's answer
// looked at once more, the carrier (Laws 1 and 2). What becomes of the call afterwards is the news' business.
package dial

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
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// longestRest is the longest pause between two looks for workspaces with due requests. A replica that
	// did not receive a request finds it after that.
	longestRest = time.Second
	// shortestLook is the shortest pause between two searches for due requests, if something may
	// have become due. It is twice the duration of the last search if that is longer.
	shortestLook = 20 * time.Millisecond
	// fullRest is the first pause if there is no capacity for due requests. It doubles each time,
	// up to longestFull. The end of a call ends the pause.
	fullRest, longestFull = 50 * time.Millisecond, 400 * time.Millisecond
	// tidyEvery is the interval between runs of ReturnStrays and MoveLongCalls.
	tidyEvery = time.Minute
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
	Overall dialqueue.Limit
	OfTrunk func(context.Context) (dialqueue.Limit, error)
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
	// MayDial reports whether requests may be claimed; nil: always.
	MayDial func() bool
	// Reconciled reports whether the server of the database is reconciled with the intents, so that
	// INVITEs may leave; nil: always.
	Reconciled func() bool
}

// Dialer dials.
type Dialer struct {
	store    *store.Store
	contacts *peers.Contacts
	carrier  *trunk
	relay    *outbox.Relay
	heart    *calls.Heartbeat
	limits   Limits
	intents  Intents
	fences   groups[store.Fence]
	changes  groups[callChange]
	underway underway
	wake     chan struct{}
	attempts sync.WaitGroup
	busy     busy
	told     atomic.Pointer[time.Time] // when the process was told to stop; nil: it was not
	unused   unused
	queue    queue
	full     time.Duration // the last pause because no capacity was free
	dials    *prometheus.CounterVec
	lag      *prometheus.HistogramVec
}

// New dials over one carrier.
func New(st *store.Store, contacts *peers.Contacts, over carrier.Carrier, relay *outbox.Relay, heart *calls.Heartbeat,
	intents Intents, limits Limits, metrics prometheus.Registerer,
) *Dialer {
	d := &Dialer{
		store: st, contacts: contacts, carrier: newTrunk(over, limits.Failures, limits.CircuitRest, metrics),
		relay: relay, heart: heart, intents: intents, limits: limits, wake: make(chan struct{}, 1),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_attempts_total", Help: "Requests taken from the dial queue, by what became of them.",
		}, []string{"result"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_dialer_due_to_originate_seconds", Help: "From due to the carrier being asked, by what it waited for: its workspace's own limits, or no (the promise).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		}, []string{"held"}),
	}
	d.fences.run, d.changes.run = st.Fences, d.changeCalls
	metrics.MustRegister(d.dials, d.lag)
	for _, result := range []string{
		"dialed", "refused", "unknown", "blocked", "rescheduled", "released", "put_back", "gate_silent", "not_intended",
		"fault",
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

// Wake reports that a request may be due, or that capacity may be free. It never blocks.
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
			d.queue.wanted = true
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

func (d *Dialer) mayDial() bool { return d.limits.MayDial == nil || d.limits.MayDial() }

func (d *Dialer) reconciled() bool { return d.limits.Reconciled == nil || d.limits.Reconciled() }

// round claims due requests and starts an attempt for each. It returns how long to rest.
func (d *Dialer) round(ctx context.Context) (rest time.Duration) {
	workers := d.busy.workers(d.limits.Attempts)
	if workers.Free <= 0 || !d.mayDial() {
		return longestRest // an attempt that ends wakes us
	}
	window, rest, err := d.look(ctx)
	switch {
	case err != nil:
		return d.fault(ctx, err)
	case len(window) == 0:
		return rest
	}
	calls, closed := d.carrier.passable(ctx, workers.Free)
	ofTrunk := dialqueue.Limit{} // no trunk can take a call: only requests that must be blocked are claimed
	if calls > 0 {
		if ofTrunk, err = d.limits.OfTrunk(ctx); err != nil {
			return d.fault(ctx, err)
		}
		closed = longestRest
	}
	if 0 < calls && calls < workers.Free { // any workspace may have the call that tests the circuit
		workers.Free, workers.All = calls, 0
	}
	claimed, err := d.store.Claim(ctx, store.Capacity{
		Workers: workers, Trunk: d.carrier.Name(), OfTrunk: ofTrunk, Total: d.limits.Overall, Unused: d.unused.take(window),
	}, window)
	if err != nil {
		return d.fault(ctx, err)
	}
	d.queue.claimed(window, claimed)
	d.begin(ctx, claimed.Requests)
	if rest = d.after(claimed); rest > 0 && ofTrunk.Live == 0 {
		return min(closed, longestRest)
	}
	return rest
}

// begin starts an attempt for each claimed request. Their circumstances are read in one round trip.
func (d *Dialer) begin(ctx context.Context, requests []dialqueue.Request) {
	if len(requests) == 0 {
		return
	}
	for _, r := range requests {
		d.busy.add(r.WorkspaceID, 1)
	}
	d.attempts.Go(func() {
		read := time.Now()
		known, err := d.store.DialInputs(context.WithoutCancel(ctx), requests...)
		for i, r := range requests {
			at := circumstances{at: read, err: err}
			if err == nil {
				at.DialInputs = known[i]
			}
			d.attempts.Go(func() {
				free := sync.OnceFunc(func() {
					d.busy.add(r.WorkspaceID, -1)
					d.Wake()
				})
				defer free()
				d.attempt(ctx, r, at, free)
			})
		}
	})
}

// circumstances are those of a request at a time, or the error of their reading.
type circumstances struct {
	store.DialInputs
	at  time.Time
	err error
}

// look returns the workspaces that the next claim looks at. If none has due requests, it returns how long to rest.
func (d *Dialer) look(ctx context.Context) (window []uuid.UUID, rest time.Duration, err error) {
	now := time.Now()
	window, wait, ok := d.queue.candidates.Next(now)
	rest = d.queue.pause(now)
	if rest <= 0 {
		if err := d.queue.find(ctx, d.store); err != nil {
			return nil, 0, err
		}
		now = time.Now()
		window, wait, ok = d.queue.candidates.Next(now)
		rest = d.queue.pause(now)
	}
	if ok {
		rest = min(rest, wait)
	}
	return window, rest, nil
}

// after returns how long to rest after a claim.
func (d *Dialer) after(claimed store.Claimed) time.Duration {
	switch {
	case len(claimed.Requests) > 0 || !claimed.Left || !d.queue.allFull():
		d.full = 0
		return 0
	case claimed.Wait > 0:
		d.full = 0
		return min(claimed.Wait, longestRest)
	}
	d.full = min(max(fullRest, 2*d.full), longestFull)
	return d.full
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

func (b *busy) workers(all int) dialqueue.Workers {
	b.mu.Lock()
	defer b.mu.Unlock()
	return dialqueue.Workers{All: all, Free: all - b.all, Busy: maps.Clone(b.of)}
}
