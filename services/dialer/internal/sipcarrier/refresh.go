package sipcarrier

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// After a failover, the new database server can lack the last commits. So Refresh stores the
// opt-outs and the ends of legs of the last recentPeriod again, at most maxRecent of each.
const (
	recentPeriod = 5 * time.Minute
	maxRecent    = 5000
)

// recent contains the values that were added within recentPeriod, at most the newest maxRecent. The
// zero value is empty. Its methods are safe for concurrent use.
type recent[T any] struct {
	mu     sync.Mutex
	values []T
	added  []time.Time
}

func (r *recent[T]) add(value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values, r.added = append(r.values, value), append(r.added, time.Now())
	r.deleteOldLocked()
}

// all returns the values, oldest first.
func (r *recent[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleteOldLocked()
	return append([]T(nil), r.values...)
}

func (r *recent[T]) deleteOldLocked() {
	n := max(0, len(r.values)-maxRecent)
	for n < len(r.values) && time.Since(r.added[n]) > recentPeriod {
		n++
	}
	clear(r.values[:n]) // release the memory of the removed values
	r.values, r.added = r.values[n:], r.added[n:]
}

// endedLeg is a leg whose end was stored, and the steps (last) that were stored together with the
// end.
type endedLeg struct {
	leg  *leg
	last []entry
}

// keepEnded keeps the data with which Refresh can store the end of the leg again, without the audio
// and the conversation. It also keeps a leg that another process has taken over, because the new
// database server can lack the takeover.
func (c *Carrier) keepEnded(l *leg, last []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isStored || last[0].write != nil {
		return
	}
	kept := &leg{
		carrier: c, callID: l.callID, record: l.record, dialedAt: l.dialedAt, ringingAt: l.ringingAt, isStored: true,
		closed: true, appliedEvents: l.appliedEvents,
	}
	c.endedLegs.add(endedLeg{leg: kept, last: last})
}

// Refresh stores again what a failover of the database can have lost: the events of live legs, the
// ends of recent legs, and recent opt-outs. Refresh can be repeated.
func (c *Carrier) Refresh() {
	for _, l := range c.allLegs() {
		l.refresh()
	}
	for _, optOut := range c.optOuts.all() {
		go c.storeOptOut(optOut)
	}
	go c.refreshEnded()
}

// refreshEnded stores again the ends of legs that are missing in the database.
func (c *Carrier) refreshEnded() {
	kept := c.endedLegs.all()
	if len(kept) == 0 {
		return
	}
	ids := make([]uuid.UUID, len(kept))
	for i, one := range kept {
		ids[i] = one.leg.callID
	}
	ended := map[uuid.UUID]bool{}
	c.storeUntilDone("ended SIP legs not read, retrying", uuid.Nil, func(ctx context.Context) error {
		found, err := c.legStore.LostLegs(ctx, ids)
		for _, id := range found {
			ended[id] = true
		}
		return err
	})
	for _, one := range kept {
		if !ended[one.leg.callID] {
			go one.storeAgain()
		}
	}
}

func (e endedLeg) storeAgain() {
	l := e.leg
	l.mu.Lock()
	l.isLost = false // the end can be stored on the old database server but not on the new one
	l.mu.Unlock()
	l.carrier.storeUntilDone("end of a call not stored again, retrying", l.callID, func(ctx context.Context) error {
		return l.storeEntries(ctx, e.last)
	})
	l.carrier.signalChange()
}

// storeOptOut stores an opt-out without a guard, because an opt-out always counts: even if another
// process owns the leg, the leg has ended, or a failover lost the row of the call. It does not use
// the leg's queue, because after a failover the events in the queue wait for the reconciliation.
func (c *Carrier) storeOptOut(optOut carrier.Event) {
	c.storingOptOuts.Add(1)
	defer c.storingOptOuts.Add(-1)
	c.storeUntilDone("opt-out not stored, retrying", optOut.CallID, func(ctx context.Context) error {
		return c.calls.Apply(ctx, nil, []carrier.Event{optOut})
	})
}

// storeUntilDone repeats storeStep until it succeeds, or until Run has returned. It logs each error
// with the message.
func (c *Carrier) storeUntilDone(message string, callID uuid.UUID, storeStep func(context.Context) error) {
	for pause := pollInterval; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), journalTimeout)
		err := storeStep(ctx)
		cancel()
		if err == nil {
			return
		}
		c.warn(message, callID, err)
		select {
		case <-c.stopped:
			return
		case <-time.After(pause):
		}
	}
}
