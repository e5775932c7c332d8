// Package dial takes due requests from the dial queue and dials each request at most once. An
// attempt checks the request, calls the gates (the compliance checks in contacts-compliance),
// publishes an intent, and commits the fence (the row that permits one dial). Then it passes the
// call to the carrier. Package calls applies the later events of the call.
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
	// maxScanInterval is the longest time between two searches for workspaces with due requests. A
	// replica that was not woken finds the requests after this time.
	maxScanInterval = time.Second
	// minScanInterval is the shortest time between two searches after a wake-up. If a search took
	// longer than half of minScanInterval, the next search starts after twice the duration of that
	// search.
	minScanInterval = 20 * time.Millisecond
	// minFullPause is the first pause if due requests wait for capacity. Each further pause is twice
	// as long, up to maxFullPause. The end of a call ends the pause early.
	minFullPause, maxFullPause = 50 * time.Millisecond, 400 * time.Millisecond
	// tidyInterval is the time between two runs of ReturnStrays, and of MoveLongCalls. ReturnStrays
	// moves queued requests that no claim would read.
	tidyInterval = time.Minute
	// minClaimPause is the shortest pause between two claims. Requests that become due during the
	// pause are claimed together. After a slow claim the pause is longer, up to maxClaimPause, to
	// limit the load on the database.
	minClaimPause, maxClaimPause = 2 * time.Millisecond, 50 * time.Millisecond
	// faultPause is the pause after an error of the database or the carrier.
	faultPause = time.Second
)

// Limits contains the limits and settings of a Dialer.
type Limits struct {
	// Attempts is the highest number of requests on which this process works at the same time.
	Attempts int
	// Overall is the limit of all trunks together. OfTrunk returns the limit of the carrier; it is
	// called before each claim. Each limit is shared by all replicas.
	Overall dialqueue.Limit
	OfTrunk func(context.Context) (dialqueue.Limit, error)
	// Failures is the number of consecutive failures that open the carrier's circuit breaker.
	// CircuitRest is how long the circuit stays open the first time. If Failures is 0, the dialer uses
	// no circuit breaker, because the carrier has one for each trunk.
	Failures    int
	CircuitRest time.Duration
	// From returns the caller number, and the trunk over which the call is tried next. agentNumber can
	// be empty. The trunks in excludedTrunks have already refused the call. The error
	// carrier.ErrNoNumber blocks the request. If From is nil, the caller number is agentNumber or
	// dialqueue.DefaultFrom, and any trunk may be used.
	From func(ctx context.Context, agentNumber string, excludedTrunks []string) (number, trunk string, err error)
	// Agents contains the circuit breakers of the addresses of AI agents. It can be nil.
	Agents *agent.Circuits
	// MayDial reports whether this process may claim requests. If MayDial is nil, the process may
	// always claim requests.
	MayDial func() bool
	// Reconciled reports whether the database is reconciled with the published intents. While it
	// returns false, the dialer sends no INVITE. If Reconciled is nil, INVITE requests are always
	// permitted.
	Reconciled func() bool
	// Refuse is nil if a carrier is configured. Otherwise all requests fail with this reason.
	Refuse *dialqueue.Refusal
	// Pauses contains the pauses of dialing. If Pauses is nil, dialing is never paused.
	Pauses *dialqueue.PauseMonitor
}

// Dialer claims due requests and dials them. Its methods are safe for concurrent use.
type Dialer struct {
	store         *store.Store
	contacts      *peers.Contacts
	carrier       *circuitCarrier
	relay         *outbox.Relay
	heartbeat     *calls.Heartbeat
	limits        Limits
	intents       Intents
	fences        writeGroups[store.Fence]
	changes       writeGroups[callChange]
	activeCalls   activeCalls
	wake          chan struct{}
	attempts      sync.WaitGroup
	busyWorkers   busyWorkers
	stoppedAt     atomic.Pointer[time.Time] // nil until the process begins to stop
	unusedTokens  unusedTokens
	queue         queue
	capacityPause time.Duration // length of the last pause for lack of capacity
	dials         *prometheus.CounterVec
	lag           *prometheus.HistogramVec
}

// New returns a dialer for one carrier and registers its metrics. The caller starts it with Run.
func New(
	st *store.Store,
	contacts *peers.Contacts,
	over carrier.Carrier,
	relay *outbox.Relay,
	heartbeat *calls.Heartbeat,
	intents Intents,
	limits Limits,
	metrics prometheus.Registerer,
) *Dialer {
	d := &Dialer{
		store: st, contacts: contacts, carrier: newCircuitCarrier(over, limits.Failures, limits.CircuitRest, metrics),
		relay: relay, heartbeat: heartbeat, intents: intents, limits: limits, wake: make(chan struct{}, 1),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_attempts_total", Help: "Attempts to dial a request from the dial queue, by result.",
		}, []string{"result"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_dialer_due_to_originate_seconds",
			Help: "Time from the due time of a request to its first message to the carrier. The label held is pause if a " +
				"pause of dialing delayed the request. It is limits if a limit of the workspace delayed it. Otherwise it is no.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		}, []string{"held"}),
	}
	d.fences.writeItems, d.changes.writeItems = st.Fences, d.changeCalls
	metrics.MustRegister(d.dials, d.lag)
	for _, result := range []string{
		"dialed", "refused", "unknown", "blocked", "rescheduled", "released", "put_back", "gate_silent", "not_intended",
		"fault",
	} {
		d.dials.WithLabelValues(result)
	}
	for _, held := range []string{notHeld, heldByPause, heldByLimits} {
		d.lag.WithLabelValues(held)
	}
	return d
}

// Values of the metric label `held`.
const (
	notHeld      = "no"
	heldByPause  = "pause"
	heldByLimits = "limits"
)

// latenessObserver returns the observer for a request. Requests that were delayed by a pause, or by
// a limit of their workspace, are counted under separate labels.
func (d *Dialer) latenessObserver(r dialqueue.Request) prometheus.Observer {
	switch {
	case d.limits.Pauses.Delayed(r.WorkspaceID, r.AgentID, r.DueAt):
		return d.lag.WithLabelValues(heldByPause)
	case r.HeldBack:
		return d.lag.WithLabelValues(heldByLimits)
	}
	return d.lag.WithLabelValues(notHeld)
}

// Wake makes Run search the queue. Callers call it when a request can have become due, or when
// capacity can have become free. Wake never blocks.
func (d *Dialer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run dials until ctx ends. It then waits for the attempts in progress.
func (d *Dialer) Run(ctx context.Context) error {
	defer d.attempts.Wait()
	defer d.markStopping()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			d.queue.searchWanted = true
		case <-timer.C:
		}
		start := time.Now()
		wait := d.claimAndDial(ctx)
		pause := min(max(minClaimPause, 2*time.Since(start)), maxClaimPause)
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(max(0, wait-pause))
	}
}

func (d *Dialer) markStopping() {
	now := time.Now()
	d.stoppedAt.Store(&now)
}

func (d *Dialer) mayDial() bool { return d.limits.MayDial == nil || d.limits.MayDial() }

func (d *Dialer) reconciled() bool { return d.limits.Reconciled == nil || d.limits.Reconciled() }

func (d *Dialer) claimAndDial(ctx context.Context) (wait time.Duration) {
	workers := d.busyWorkers.workers(d.limits.Attempts)
	if workers.Free <= 0 || !d.mayDial() {
		return maxScanInterval // the end of an attempt wakes the dialer
	}
	window, wait, err := d.nextWindow(ctx)
	switch {
	case err != nil:
		return d.logFault(ctx, err)
	case len(window) == 0:
		return wait
	}
	calls, closed := d.carrier.permittedCalls(ctx, workers.Free)
	// If the circuit permits no call, ofTrunk stays zero. The claim then takes only requests that must
	// be blocked.
	ofTrunk := dialqueue.Limit{}
	if calls > 0 {
		if ofTrunk, err = d.limits.OfTrunk(ctx); err != nil {
			return d.logFault(ctx, err)
		}
		closed = maxScanInterval
	}
	// The circuit permits one test call, of any workspace.
	if 0 < calls && calls < workers.Free {
		workers.Free, workers.All = calls, 0
	}
	unused := d.unusedTokens.take(window)
	claimed, err := d.store.Claim(ctx, store.Capacity{
		Workers: workers, Trunk: d.carrier.Name(), OfTrunk: ofTrunk, Total: d.limits.Overall, Unused: unused,
	}, window)
	if err != nil {
		d.unusedTokens.restore(unused)
		return d.logFault(ctx, err)
	}
	d.queue.recordClaim(window, claimed)
	d.startAttempts(ctx, claimed.Requests)
	if wait = d.pauseAfter(claimed); wait > 0 && ofTrunk.Live == 0 {
		return min(closed, maxScanInterval)
	}
	return wait
}

// startAttempts starts an attempt for each request. It reads the inputs of all attempts in one
// round trip to the database.
func (d *Dialer) startAttempts(ctx context.Context, requests []dialqueue.Request) {
	if len(requests) == 0 {
		return
	}
	for _, r := range requests {
		d.busyWorkers.add(r.WorkspaceID, 1)
	}
	d.attempts.Go(func() {
		read := time.Now()
		known, err := d.store.DialInputs(context.WithoutCancel(ctx), requests...)
		for i, r := range requests {
			at := dialInputs{at: read, err: err}
			if err == nil {
				at.DialInputs = known[i]
			}
			d.attempts.Go(func() {
				free := sync.OnceFunc(func() {
					d.busyWorkers.add(r.WorkspaceID, -1)
					d.Wake()
				})
				defer free()
				d.runAttempt(ctx, r, at, free)
			})
		}
	})
}

// err is not nil if the inputs could not be read.
type dialInputs struct {
	store.DialInputs
	at  time.Time
	err error
}

func (d *Dialer) nextWindow(ctx context.Context) (window []uuid.UUID, wait time.Duration, err error) {
	now := time.Now()
	window, next, ok := d.queue.candidates.Next(now)
	wait = d.queue.timeToSearch(now)
	if wait <= 0 {
		if err := d.queue.search(ctx, d.store); err != nil {
			return nil, 0, err
		}
		now = time.Now()
		window, next, ok = d.queue.candidates.Next(now)
		wait = d.queue.timeToSearch(now)
	}
	if ok {
		wait = min(wait, next)
	}
	return window, wait, nil
}

// pauseAfter returns how long the dialer waits before the next claim. It waits only if due requests
// are still queued because no capacity or no token was free.
func (d *Dialer) pauseAfter(claimed store.Claimed) time.Duration {
	switch {
	case len(claimed.Requests) > 0 || !claimed.Left || !d.queue.allFull():
		d.capacityPause = 0
		return 0
	case claimed.Wait > 0:
		d.capacityPause = 0
		return min(claimed.Wait, maxScanInterval)
	}
	d.capacityPause = min(max(minFullPause, 2*d.capacityPause), maxFullPause)
	return d.capacityPause
}

func (d *Dialer) logFault(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		slog.WarnContext(ctx, "claim of due call requests failed", "error", err)
	}
	return faultPause
}

type busyWorkers struct {
	mu          sync.Mutex
	total       int
	byWorkspace map[uuid.UUID]int
}

func (b *busyWorkers) add(workspace uuid.UUID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byWorkspace == nil {
		b.byWorkspace = map[uuid.UUID]int{}
	}
	b.total += n
	if b.byWorkspace[workspace] += n; b.byWorkspace[workspace] == 0 {
		delete(b.byWorkspace, workspace)
	}
}

func (b *busyWorkers) workers(all int) dialqueue.Workers {
	b.mu.Lock()
	defer b.mu.Unlock()
	return dialqueue.Workers{All: all, Free: all - b.total, Busy: maps.Clone(b.byWorkspace)}
}
