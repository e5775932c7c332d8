package sipcarrier

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// An asynchronous standby can lack the last commits. Refresh stores the opt-outs and the ends of
// legs of the last recentPeriod again, but at most maxRecent of each.
const (
	recentPeriod = 5 * time.Minute
	maxRecent    = 5000
)

// recent contains the values that were added within recentPeriod, but at most maxRecent values. The
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
	clear(r.values[:n]) // the array must not keep the deleted values in memory
	r.values, r.added = r.values[n:], r.added[n:]
}

// endedLeg is a leg whose end was stored. The field last contains the steps that were stored
// together with the end.
type endedLeg struct {
	leg  *leg
	last []entry
}

// keepEnded keeps the data from which Refresh stores the end of the leg again. It does not keep the
// audio and the conversation. It also keeps a leg that another process has taken over, because the
// new database server can lack the takeover.
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

// Refresh stores data again that a failover of the database can have lost: the events of the live
// legs of this process, the ends of its last legs, and its last opt-outs. Without Refresh, an
// outbound call would end as not answered. A call that has ended would last until its longest
// duration. An inbound call would have no row and no end. Repeating Refresh has no effect.
func (c *Carrier) Refresh() {
	for _, l := range c.allLegs() {
		l.refresh()
	}
	for _, optOut := range c.optOuts.all() {
		go c.storeOptOut(optOut)
	}
	go c.refreshEnded()
}

// refreshEnded stores the ends of the legs again that the database does not contain.
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
	l.isLost = false // the previous database server can have contained the end, but the new one does not
	l.mu.Unlock()
	l.carrier.storeUntilDone("end of a call not stored again, retrying", l.callID, func(ctx context.Context) error {
		return l.storeEntries(ctx, e.last)
	})
	l.carrier.signalChange()
}

// storeOptOut stores an opt-out without a guard, because an opt-out always counts. Another process
// can own the leg, the leg can have ended, or a failover of the database can have lost the row of
// the call. The opt-out does not wait in the leg's queue, because after a failover the events in
// the queue wait for the reconciliation.
func (c *Carrier) storeOptOut(optOut carrier.Event) {
	c.storingOptOuts.Add(1)
	defer c.storingOptOuts.Add(-1)
	c.storeUntilDone("opt-out not stored, retrying", optOut.CallID, func(ctx context.Context) error {
		return c.calls.Apply(ctx, nil, []carrier.Event{optOut})
	})
}

// storeUntilDone calls storeStep until it succeeds, or until Run has returned. Each error is logged
// with the given message.
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
