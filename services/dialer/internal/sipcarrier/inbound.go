package sipcarrier

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// answerTimeout limits how long it takes to answer an inbound call.
const answerTimeout = 20 * time.Second

// Arrive accepts an inbound call and does not block. The call starts to ring when its leg is
// stored. Arrive refuses the call if the leg cannot be stored, or if this process already uses all
// channels of the trunk.
func (c *Carrier) Arrive(a *sip.Arrival, trunk trunks.Trunk) {
	to, ok := trunk.Read(a.To)
	if !ok {
		c.cfg.Rejected.addUnreadable(a, trunk)
		refuseArrival(a, trunk, callstate.UnallocatedNumber, errNoNumber)
		return
	}
	if c.liveLegs(trunk.TrunkID) >= int(trunk.Channels) {
		refuseArrival(a, trunk, callstate.SwitchCongestion, errChannels)
		return
	}
	// If the user part is not a number, from is empty, as if the number were withheld.
	from, _ := trunk.Read(a.From)
	id, err := uuid.NewV7()
	if err != nil {
		refuseArrival(a, trunk, callstate.NormalTemporaryFailure, err)
		return
	}
	conversation, err := c.conversations.Begin(context.Background(), id, trunk)
	if err != nil {
		refuseArrival(a, trunk, callstate.SwitchCongestion, err)
		return
	}
	l := &leg{
		carrier:      c,
		callID:       id,
		conversation: conversation,
		trunk:        trunk,
		accepted:     true,
		offer:        a.Offer,
		ringingAt:    time.Now(),
		isWriting:    true, // the arrival must be stored before all other steps
	}
	l.record = store.Leg{
		CallID: id, TrunkID: trunk.TrunkID, Inbound: true, From: from, To: to, Channels: trunk.Channels,
		Attempt: newAttempt(trunk, a.CallID),
	}
	c.addLeg(l)
	d, err := a.Take(sipTrunk(trunk), l.inboundObserver())
	if err != nil {
		conversation.End()
		c.removeLeg(l)
		c.warn("inbound call refused", id, err)
		return
	}
	l.attachDialog(d)
	// If the call has already ended, its end is in the queue. The arrival must be stored before this
	// end.
	l.enqueueFirst(entry{write: func(ctx context.Context) error {
		if !c.numberAssigned(ctx, l, to) {
			c.cfg.Rejected.addUnassigned(a)
			return nil
		}
		arrived := l.record
		arrived.Teardown = d.State()
		rang := []carrier.Event{*l.event(carrier.Ringing, l.ringingAt)}
		err := c.calls.Apply(ctx, c.legStore.ArrivalGuard(arrived), rang)
		if err == nil {
			l.mu.Lock()
			l.appliedEvents, l.isStored, l.state = rang, true, arrived.Teardown
			l.mu.Unlock()
			err = d.Ring()
		}
		if err != nil { // if the leg was stored despite the error, its end is stored later
			c.warn("inbound call refused", id, err)
			l.hangUp(callstate.NormalTemporaryFailure)
		}
		return nil
	}})
}

var (
	errNoNumber = errors.New("the called user is not a number in the format of the trunk")
	errChannels = errors.New("the channels of the trunk are in use")
)

// refuseArrival refuses an inbound call before it gets a call id.
func refuseArrival(a *sip.Arrival, trunk trunks.Trunk, cause callstate.Cause, reason error) {
	slog.Warn("inbound call refused",
		"trunk", trunk.Name, "sip_call_id", a.CallID, "cause", string(cause), "error", reason)
	a.Refuse(cause)
}

// numberAssigned reports whether a number is assigned to an agent. If it is not, numberAssigned
// refuses the call with 404. If the database cannot be read, it returns true: the call rings, and a
// call to an unassigned number is hung up later.
func (c *Carrier) numberAssigned(ctx context.Context, l *leg, to string) bool {
	if c.cfg.Serves == nil {
		return true
	}
	served, err := c.cfg.Serves(ctx, to)
	if err != nil || served {
		return true
	}
	slog.InfoContext(ctx, "inbound call to an unassigned number refused", "trunk", l.trunk.Name, "call_id", l.callID,
		"to", phone.Number(to).Masked())
	l.hangUp(callstate.UnallocatedNumber)
	return false
}

func (l *leg) inboundObserver() sip.Observer {
	return sip.Observer{
		StoreState: l.storeState,
		Offered:    l.conversation.Offered,
		Agreed:     l.conversation.Agreed,
		Ended:      l.handleEnd,
	}
}

// answerCall answers an inbound call of a workspace. Further calls of answerCall for the same leg
// have no effect. If the agent's session cannot be opened, answerCall hangs up.
func (l *leg) answerCall(workspaceID uuid.UUID) {
	l.mu.Lock()
	d := l.dialog
	if l.answerDone != nil || d == nil {
		l.mu.Unlock()
		return
	}
	l.answerDone, l.workspaceID = make(chan struct{}), workspaceID
	l.mu.Unlock()
	go func() {
		defer close(l.answerDone)
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		if err := l.conversation.Ready(ctx); err != nil {
			l.carrier.warn("inbound call refused: agent not available", l.callID, err)
			l.hangUp(callstate.NormalTemporaryFailure)
			return
		}
		answer, err := l.conversation.Accept(l.offer)
		if err != nil {
			l.carrier.warn("inbound call refused", l.callID, err)
			l.hangUp(callstate.IncompatibleDest)
			return
		}
		at := time.Now()
		if err := d.Answer(ctx, answer); err != nil {
			if !errors.Is(err, context.Canceled) {
				l.carrier.warn("inbound call not answered", l.callID, err)
			}
			return
		}
		l.enqueueEvent(carrier.Answered, at)
		l.conversation.Begin(ConversationCallbacks{OptedOut: l.handleOptOut, HangUp: l.hangUp, Transfer: l.transfer})
	}()
}
