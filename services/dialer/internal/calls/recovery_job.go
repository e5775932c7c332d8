// Package recovering sees to it that every call ends: orphans of processes that are gone, calls that reached their longest time or
// rang too long, calls whose end nobody told, and requests that grew too old in the queue. It ends calls only through
// the carrier's word or the one guarded update, and dials nothing.

package calls

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// recoveryInterval is how often the rounds go.
	recoveryInterval = 500 * time.Millisecond
	// atOnce is how many calls are hung up side by side.
	atOnce = 16
)

// Recoverer does the rounds.
type Recoverer struct {
	store   *store.Store
	heart   *Heartbeat
	carrier carrier.Carrier
	relay   *outbox.Relay
	wake    chan struct{}
	expired prometheus.Counter
	orphans prometheus.Counter
}

// NewRecoverer does the rounds over the store and one carrier. It takes calls over only while the heart is healthy.
func NewRecoverer(st *store.Store, heart *Heartbeat, trunk carrier.Carrier, relay *outbox.Relay,
	metrics prometheus.Registerer) *Recoverer {
	r := &Recoverer{
		store: st, heart: heart, carrier: trunk, relay: relay, wake: make(chan struct{}, 1),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_expired_total", Help: "Requests that ended undialled because they had waited too long: for room (capacity_timeout) or at all (queue_expired).",
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_orphaned_calls_total", Help: "Calls of a process that was gone, taken over to be hung up.",
		}),
	}
	metrics.MustRegister(r.expired, r.orphans)
	return r
}

// Wake says that there are calls to hang up. It never blocks.
func (r *Recoverer) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run goes on until ctx ends.
func (r *Recoverer) Run(ctx context.Context) error {
	ticker := time.NewTicker(recoveryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.note(ctx, "orphans were not taken over", r.takeOver(ctx))
			r.note(ctx, "calls were not swept", r.sweep(ctx))
			r.note(ctx, "old requests were not ended", r.expire(ctx))
		case <-r.wake:
		}
		r.note(ctx, "calls were not hung up", r.hangUpDue(ctx))
	}
}

func (r *Recoverer) note(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, what, "error", err)
	}
}

// takeOver takes over the calls of processes that are dead. It does nothing while this process's own
// heartbeats are slow, and for a lease after one failed or was late: then the others' heartbeats
// probably were too, and a process that takes over the calls of a healthy one hangs them up.
func (r *Recoverer) takeOver(ctx context.Context) error {
	if !r.heart.Healthy() {
		return nil
	}
	taken, err := r.store.TakeOver(ctx)
	r.orphans.Add(float64(taken))
	if taken > 0 {
		slog.WarnContext(ctx, "calls of a process that is gone are hung up", "calls", taken)
	}
	return err
}

func (r *Recoverer) sweep(ctx context.Context) error {
	_, err := r.store.Sweep(ctx)
	return err
}

func (r *Recoverer) expire(ctx context.Context) error {
	ended, err := r.store.Expire(ctx)
	r.expired.Add(float64(ended))
	if ended > 0 {
		r.relay.Wake()
	}
	return err
}

func (r *Recoverer) hangUpDue(ctx context.Context) error {
	due, err := r.store.DueHangups(ctx)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, h := range due {
		group.Go(func() error {
			r.note(ctx, "call was not hung up and will be tried again", r.hangUp(ctx, h))
			return nil
		})
	}
	return group.Wait()
}

// hangUp asks the carrier to end one call. Its end comes with the news, as every end does; here only ends a call of which the carrier knows nothing, or that
// the watchdog has given up on.
func (r *Recoverer) hangUp(ctx context.Context, h store.Hangup) error {
	if h.Orphan {
		return r.hangUpOrphan(ctx, h.CallID)
	}
	known, err := r.carrier.Hangup(ctx, h.CallID)
	unknown := errors.Is(err, carrier.ErrUnknownCall)
	if err == nil && !h.Ending.Final() || err != nil && !unknown && !h.Ending.Final() {
		return err
	}
	storeErr := r.store.Change(ctx, []uuid.UUID{h.CallID}, func(calls map[uuid.UUID]*callstate.Call) {
		c := calls[h.CallID]
		if c == nil {
			return
		}
		if err == nil && known.EndedAt != nil && !known.ByUs {
			known.Replay(c, time.UTC) // before we touched it
			return
		}
		c.End(c.Ending.Unheard(time.Now()))
	})
	r.relay.Wake()
	return storeErr
}

// hangUpOrphan ends a call at the carrier that has ended here, or never was here.
func (r *Recoverer) hangUpOrphan(ctx context.Context, callID uuid.UUID) error {
	if _, err := r.carrier.Hangup(ctx, callID); err != nil && !errors.Is(err, carrier.ErrUnknownCall) {
		return err
	}
	return r.store.ForgetOrphan(ctx, callID)
}
