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
	recoveryInterval = 500 * time.Millisecond
	// maxHangups is the highest number of calls that are hung up at the same time.
	maxHangups = 16
	// maxHangupRounds is the maximum number of full batches of calls that are hung up before the job's
	// other tasks run.
	maxHangupRounds = 10
	// After a search for expired requests, expire waits for expireWaitFactor times the duration of the
	// search.
	expireWaitFactor = 20
)

// Recoverer ends calls of dead processes, calls that last too long, calls whose hang-up was
// requested, and requests that have waited too long. It tries to hang up a call at the carrier
// before it ends the call in the database. It never dials.
type Recoverer struct {
	store     *store.Store
	heartbeat *Heartbeat
	carriers  carrier.Carriers
	relay     *outbox.Relay
	wake      chan struct{}
	expired   prometheus.Counter
	orphans   prometheus.Counter
	// expireAfter is the earliest time of the next search for expired requests. Only Run uses it.
	expireAfter time.Time
}

// NewRecoverer returns a recoverer for the calls of the carriers. It takes over calls of other
// processes only while heartbeat is healthy.
func NewRecoverer(st *store.Store, heartbeat *Heartbeat, carriers carrier.Carriers, relay *outbox.Relay,
	metrics prometheus.Registerer) *Recoverer {
	r := &Recoverer{
		store: st, heartbeat: heartbeat, carriers: carriers, relay: relay, wake: make(chan struct{}, 1),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_expired_total",
			Help: "Requests that ended without a dial after waiting too long: for capacity (capacity_timeout) or in total " +
				"(queue_expired).",
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_orphaned_calls_total", Help: "Calls of dead processes that were taken over to be hung up.",
		}),
	}
	metrics.MustRegister(r.expired, r.orphans)
	return r
}

// Wake makes Run search for calls to hang up. It never blocks.
func (r *Recoverer) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run carries out the tasks of the job until ctx ends.
func (r *Recoverer) Run(ctx context.Context) error {
	ticker := time.NewTicker(recoveryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.logError(ctx, "take-over of calls of dead processes failed", r.takeOver(ctx))
			r.logError(ctx, "search for calls that last too long failed", r.sweep(ctx))
			r.logError(ctx, "expiry of queued requests failed", r.expire(ctx))
			r.logError(ctx, "pauses not applied to the dial queue", r.movePaused(ctx))
		case <-r.wake:
		}
		r.logError(ctx, "search for calls to hang up failed", r.hangUpDue(ctx))
	}
}

func (r *Recoverer) logError(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, what, "error", err)
	}
}

// takeOver takes over the calls of dead processes. It does nothing after slow or late heartbeats of
// this process. The heartbeats of other live processes are then probably late too.
func (r *Recoverer) takeOver(ctx context.Context) error {
	if !r.heartbeat.Healthy() {
		return nil
	}
	taken, err := r.store.TakeOver(ctx)
	r.orphans.Add(float64(taken))
	if taken > 0 {
		slog.WarnContext(ctx, "calls of dead processes taken over", "calls", taken)
	}
	return err
}

func (r *Recoverer) sweep(ctx context.Context) error {
	_, err := r.store.Sweep(ctx)
	return err
}

// expire searches for expired requests. After a search, it waits for expireWaitFactor times the
// duration of the search.
func (r *Recoverer) expire(ctx context.Context) error {
	start := time.Now()
	if start.Before(r.expireAfter) {
		return nil
	}
	ended, err := r.store.Expire(ctx)
	r.expireAfter = time.Now().Add(expireWaitFactor * time.Since(start))
	r.expired.Add(float64(ended))
	if ended > 0 {
		r.relay.Wake()
	}
	return err
}

func (r *Recoverer) movePaused(ctx context.Context) error {
	_, err := r.store.MovePaused(ctx)
	return errors.Join(err, r.store.RecordTrunkPause(ctx))
}

func (r *Recoverer) hangUpDue(ctx context.Context) error {
	for range maxHangupRounds {
		due, err := r.store.DueHangups(ctx)
		if err != nil {
			return err
		}
		r.hangUpAll(ctx, due)
		if len(due) < store.HangupBatch {
			return nil
		}
	}
	return nil
}

func (r *Recoverer) hangUpAll(ctx context.Context, due []store.Hangup) {
	var group errgroup.Group
	group.SetLimit(maxHangups)
	for _, h := range due {
		group.Go(func() error {
			r.logError(ctx, "hangup of a call failed, trying again", r.hangUp(ctx, h))
			return nil
		})
	}
	_ = group.Wait()
}

// hangUp hangs up a call at the carrier. It also ends the call in the database if the carrier does
// not have the call, if the ending is final, or if the end of a refused call is overdue.
func (r *Recoverer) hangUp(ctx context.Context, h store.Hangup) error {
	if h.Orphan {
		return r.hangUpOrphan(ctx, h)
	}
	end := r.carriers.Of(h.Test).Hangup
	if h.Ending == callstate.EndingBusy {
		end = r.carriers.Of(h.Test).Refuse
	}
	known, err := end(ctx, h.CallID)
	final := h.Ending.Final() || h.Ending == callstate.EndingBusy && h.Overdue
	if !errors.Is(err, carrier.ErrUnknownCall) && !final {
		return err
	}
	storeErr := r.store.Change(ctx, []uuid.UUID{h.CallID}, func(calls map[uuid.UUID]*callstate.Call) {
		c := calls[h.CallID]
		// The owner of the call can still dial it, because the fence is committed. So the call does not
		// end here.
		if c == nil || c.Status == callstate.Fenced && c.Ending == callstate.EndingRequested {
			return
		}
		if err == nil && known.EndedAt != nil && !known.ByUs {
			known.Replay(c, time.UTC) // the call ended before the hangup
			return
		}
		c.End(c.Ending.Unheard(time.Now()))
	})
	r.relay.Wake()
	return storeErr
}

// hangUpOrphan hangs up a call that is live at the carrier, although its row has ended or does not
// exist.
func (r *Recoverer) hangUpOrphan(ctx context.Context, h store.Hangup) error {
	if _, err := r.carriers.Of(h.Test).Hangup(ctx, h.CallID); err != nil && !errors.Is(err, carrier.ErrUnknownCall) {
		return err
	}
	return r.store.ForgetOrphan(ctx, h.CallID)
}
