package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// leg is one call of this process: the SIP leg, the audio and the conversation. A goroutine stores
// the leg's events in the database, in order. SIP processing waits only until the teardown state is
// stored.
type leg struct {
	carrier      *Carrier
	callID       uuid.UUID
	conversation Conversation
	trunk        trunks.Trunk
	health       *trunkHealth // health of the trunk; nil for an inbound call
	record       store.Leg
	request      carrier.Originate
	// dialedAt is the time at which the first INVITE was sent. It is set before the first event of the
	// leg. It is zero for an inbound call.
	dialedAt time.Time
	// ringingAt is the time at which an inbound call arrived.
	ringingAt time.Time

	mu          sync.Mutex
	dialog      *sip.Dialog
	hangupCause callstate.Cause // cause of a hangup that was requested before the dialog existed
	// result receives the result of Originate. It is nil after the result was sent, or when Originate
	// no longer waits.
	result      chan error
	accepted    bool
	provisional bool // the trunk has sent a provisional response
	// answered is true if the call is outbound and was answered.
	answered bool
	closed   bool
	// slowTrunk is closed, and trunkIsSlow is set, if the trunk has sent only 100 by the end of
	// refusalWait and Originate continues to wait.
	slowTrunk   chan struct{}
	trunkIsSlow bool
	// retryableTrunk is the id of this leg's trunk if another trunk can be tried after a refusal.
	// Otherwise retryableTrunk is empty.
	retryableTrunk string
	offer          []byte // SDP offer of an inbound call
	// answerDone is created when this side begins to answer an inbound call. It is closed when the
	// event Answered is queued, or when answering has failed.
	answerDone chan struct{}
	isWriting  bool
	queue      []entry
	state      []byte // newest teardown state
	// isStored is true if the leg is stored in the database.
	isStored bool
	// appliedEvents contains the stored events that changed the state of the call. They are applied
	// again with each new event, because a failover of the database can lose earlier events.
	appliedEvents []carrier.Event
	// workspaceID is the workspace of the call. For an inbound call, it is not known until the call
	// must be answered.
	workspaceID uuid.UUID
	// isLost is true if another process owns the leg, or if the leg has ended in the database. This
	// process then stores only opt-outs.
	isLost bool
	// isTrunkPaused is true if an INVITE was not sent because the trunk is paused.
	isTrunkPaused atomic.Bool
}

// entry is one step of the leg's queue. The steps are carried out in order.
type entry struct {
	// event is applied to the call. Consecutive events of the queue are applied in one transaction.
	event *carrier.Event
	// end is set only in the entry with the last event.
	end *store.End
	// write stores something that is not an event. It is nil if event is set.
	write func(ctx context.Context) error
	last  bool
}

// hangUp ends the leg with the cause, and returns without waiting for the end.
func (l *leg) hangUp(cause callstate.Cause) {
	l.mu.Lock()
	d := l.dialog
	if d == nil && l.hangupCause == "" {
		l.hangupCause = cause
	}
	l.mu.Unlock()
	if d == nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Hangup(ctx, cause); err != nil {
			l.carrier.warn("call not hung up", l.callID, err)
		}
	}()
}

// stopCause returns the hangup cause for a process that stops. An outbound call that is not
// answered is canceled. Other calls end as failed.
func (l *leg) stopCause() callstate.Cause {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record.Inbound || l.answered {
		return callstate.NormalTemporaryFailure
	}
	return callstate.OriginatorCancel
}

// attachDialog sets the dialog of the leg. If a hangup was requested before, attachDialog hangs up.
func (l *leg) attachDialog(d *sip.Dialog) {
	l.mu.Lock()
	l.dialog = d
	wished := l.hangupCause
	l.mu.Unlock()
	if wished != "" {
		l.hangUp(wished)
	}
}

// transferTimeout limits a transfer, including the time in which the other phone rings.
const transferTimeout = time.Minute

// transfer transfers the call to a number. It fails if the workspace may not call that number.
func (l *leg) transfer(ctx context.Context, to string) error {
	if l.carrier.cfg.MayReach == nil {
		return errNoTransfer
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := l.carrier.cfg.MayReach(ctx, l.callID, to); err != nil {
		return err
	}
	l.mu.Lock()
	d := l.dialog
	l.mu.Unlock()
	if d == nil {
		return errNoTransfer
	}
	return d.Refer(ctx, l.trunk.Write(to))
}

// finishOriginate sends the result to Originate. Later calls of finishOriginate have no effect.
func (l *leg) finishOriginate(result error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishOriginateLocked(result)
}

// finishOriginateLocked does the same as finishOriginate. The caller must hold mu.
func (l *leg) finishOriginateLocked(result error) {
	if l.result != nil {
		l.result <- result
		l.result = nil
	}
}

// recordAccepted records that the trunk has accepted the call, so that Originate returns. Later
// calls of recordAccepted have no effect.
func (l *leg) recordAccepted(at time.Time) {
	l.mu.Lock()
	first := !l.accepted && !l.closed
	l.accepted = true
	if first { // the event Accepted must precede all other events of the call
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, at)})
	}
	l.mu.Unlock()
	if first {
		l.finishOriginate(nil)
	}
}

// onSlowTrunk is called if the trunk has sent only 100 within refusalWait. Without
// Originate.Waiting, the call then counts as accepted. Otherwise Originate waits for the next
// response.
func (l *leg) onSlowTrunk(at time.Time) {
	if l.request.Waiting == nil {
		l.recordAccepted(at)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.accepted && !l.closed {
		l.trunkIsSlow = true
		close(l.slowTrunk)
	}
}

func (l *leg) event(kind carrier.Kind, at time.Time) *carrier.Event {
	e := &carrier.Event{
		At: at.UTC().Truncate(time.Microsecond), Kind: kind, CallID: l.callID, From: l.record.From, To: l.record.To,
		Inbound: l.record.Inbound,
	}
	if !l.dialedAt.IsZero() {
		e.DialedAt = &l.dialedAt
	}
	return e
}

func (l *leg) enqueueEvent(kind carrier.Kind, at time.Time) {
	l.enqueue(entry{event: l.event(kind, at)})
}

func (l *leg) enqueue(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueueLocked(one)
}

// enqueueLocked adds a step to the queue and starts the goroutine that stores the queue. The caller
// must hold mu.
func (l *leg) enqueueLocked(one entry) {
	l.queue = append(l.queue, one)
	if !l.isWriting {
		l.isWriting = true
		go l.storeQueue()
	}
}

// enqueueFirst puts a step before the queued steps and starts the goroutine that stores the queue.
// The leg must have been created with isWriting set, so that enqueueLocked did not start this
// goroutine earlier.
func (l *leg) enqueueFirst(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append([]entry{one}, l.queue...)
	go l.storeQueue()
}

// storeQueue stores the queued steps in order, until the queue is empty.
func (l *leg) storeQueue() {
	for {
		next := l.takeEntries()
		if len(next) == 0 {
			return
		}
		l.carrier.storeUntilDone("call events not stored, retrying", l.callID, func(ctx context.Context) error {
			return l.storeEntries(ctx, next)
		})
		if next[len(next)-1].last {
			l.carrier.keepEnded(l, next)
			l.carrier.removeLeg(l)
		}
		l.carrier.signalChange()
	}
}

// takeEntries removes the next entries from the queue and returns them. They are either consecutive
// events, which are stored in one transaction, or one entry that is not an event.
func (l *leg) takeEntries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.queue) && l.queue[n].event != nil && (n == 0 || !l.queue[n-1].last) {
		n++
	}
	if n == 0 && len(l.queue) > 0 {
		n = 1
	}
	next := l.queue[:n:n]
	l.queue = l.queue[n:]
	if n == 0 {
		l.isWriting = false
	}
	return next
}

// storeEntries stores entries of the queue. If another process owns the leg, storeEntries hangs up
// the call. That process declared this process dead, and ends the call in the database.
func (l *leg) storeEntries(ctx context.Context, next []entry) error {
	if write := next[0].write; write != nil {
		return write(ctx)
	}
	l.mu.Lock()
	lost, events := l.isLost, slices.Clone(l.appliedEvents)
	l.mu.Unlock()
	if lost {
		return nil
	}
	for _, one := range next {
		events = append(events, *one.event)
	}
	var answeredAt *time.Time
	for _, e := range events {
		if e.Kind == carrier.Answered {
			answeredAt = &e.At
		}
	}
	guard, end := l.carrier.legStore.Guard(l.callID), next[len(next)-1].end
	switch {
	case end != nil:
		last := *end
		last.AnsweredAt = answeredAt
		guard = l.carrier.legStore.EndGuard(l.callID, last)
	case answeredAt != nil:
		guard = l.carrier.legStore.AnswerGuard(l.callID, *answeredAt)
	}
	err := l.carrier.calls.Apply(ctx, guard, events)
	if errors.Is(err, store.ErrLost) {
		return l.handleLost(ctx)
	}
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.appliedEvents = slices.DeleteFunc(events, func(e carrier.Event) bool {
			return e.Kind == carrier.Utterance || e.Kind == carrier.Ended
		})
	}
	return err
}

// handleLost is called when the database shows that this process does not own a live leg. If a
// failover lost the row of the leg, handleLost stores the row again and returns errRestored, so
// that the events are applied again. Otherwise it hangs up the leg.
func (l *leg) handleLost(ctx context.Context) error {
	l.mu.Lock()
	again, stored := l.record, l.isStored
	again.Teardown = l.state
	if !l.dialedAt.IsZero() {
		dialed := l.dialedAt
		again.DialedAt = &dialed
	}
	again.Channels = 0 // 0 skips the check for a free channel, because the call is already live
	l.mu.Unlock()
	_, err := l.carrier.legStore.Find(ctx, l.callID)
	if !errors.Is(err, pg.ErrNotFound) || !stored {
		if err == nil || errors.Is(err, pg.ErrNotFound) {
			l.giveUp()
			return nil
		}
		return err
	}
	if err := l.carrier.legStore.StoreOutbound(ctx, again); err != nil && !errors.Is(err, store.ErrLegExists) {
		return err
	}
	return errRestored
}

// dialTime returns the time at which the first INVITE of an outbound leg was sent. ok is false if
// the leg is not stored, or if another process owns it.
func (l *leg) dialTime() (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialedAt, l.isStored && !l.isLost && !l.dialedAt.IsZero()
}

// refresh applies the events of a live leg again if the leg was stored. If Originate still waits
// for the trunk, it stops waiting, and the trunk counts as having accepted the call.
func (l *leg) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.isStored || l.closed || l.isLost:
	case l.record.Inbound:
		l.enqueueLocked(entry{event: l.event(carrier.Ringing, l.ringingAt)})
	case !l.dialedAt.IsZero():
		l.accepted = true
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, l.dialedAt)})
		l.finishOriginateLocked(errNoAnswerYet)
	}
}

// errNoAnswerYet is the result of a call that the trunk has neither accepted nor refused when
// Originate must return. The call continues.
var errNoAnswerYet = errors.New("the trunk has not answered yet")

// giveUp hangs up a leg that another process owns, or that has ended in the database.
func (l *leg) giveUp() {
	l.mu.Lock()
	l.isLost = true
	l.mu.Unlock()
	l.hangUp(callstate.Unspecified)
}

func (l *leg) outboundObserver() sip.Observer {
	j, c, begun := l.carrier.legStore, l.record, false
	return sip.Observer{
		StoreState: func(state []byte) error {
			if begun {
				return l.storeState(state)
			}
			begun = true
			c.Teardown = state
			ctx, cancel := context.WithTimeout(context.Background(), journalTimeout)
			defer cancel()
			err := j.StoreOutbound(ctx, c)
			l.mu.Lock()
			l.isStored, l.state = err == nil, state
			l.mu.Unlock()
			return err
		},
		Sent: func(at time.Time) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.dialedAt = at.UTC().Truncate(time.Microsecond)
		},
		Accepted: func(at time.Time) {
			wait := shortRefusalWait
			l.mu.Lock()
			l.provisional = true
			if l.retryableTrunk != "" {
				wait = refusalWait
			}
			l.mu.Unlock()
			time.AfterFunc(wait, func() { l.onSlowTrunk(at) })
		},
		Rang: func(at time.Time, _ []byte) {
			l.recordAccepted(at)
			l.enqueueEvent(carrier.Ringing, at)
			go l.openAgent()
		},
		Answered: func(at time.Time, answer []byte) error {
			l.mu.Lock()
			l.answered = true
			l.mu.Unlock()
			l.recordAccepted(at)
			l.enqueueEvent(carrier.Answered, at)
			return l.conversation.Answer(
				answer,
				ConversationCallbacks{OptedOut: l.handleOptOut, HangUp: l.hangUp, Transfer: l.transfer},
			)
		},
		Offered: l.conversation.Offered,
		Agreed:  l.conversation.Agreed,
		Ended:   l.handleEnd,
	}
}

// storeState stores the teardown state. If this fails, storeState queues the newest state, so that
// it is stored later. Without the state, no other process could end the call after a crash.
func (l *leg) storeState(state []byte) error {
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), journalTimeout)
	defer cancel()
	err := l.carrier.legStore.StoreTeardown(ctx, l.callID, state)
	if err != nil {
		l.enqueue(entry{write: func(ctx context.Context) error {
			l.mu.Lock()
			newest := l.state
			l.mu.Unlock()
			return l.carrier.legStore.StoreTeardown(ctx, l.callID, newest)
		}})
	}
	return err
}

// openAgent opens the AI agent's session while the phone rings. If it cannot be opened, openAgent
// hangs up. Otherwise a person would answer a call that has no agent.
func (l *leg) openAgent() {
	if err := l.conversation.Ready(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
		l.carrier.warn("ringing call hung up: agent not available", l.callID, err)
		l.hangUp(callstate.AgentError)
	}
}

// handleOptOut stores an opt-out. It returns when the opt-out is stored, or after Run has returned.
func (l *leg) handleOptOut(quote string, at time.Time) {
	event := l.event(carrier.OptedOut, at)
	event.Text = quote
	l.mu.Lock()
	event.WorkspaceID = l.workspaceID
	l.mu.Unlock()
	l.carrier.optOuts.add(*event)
	l.carrier.storeOptOut(*event)
}

// handleEnd handles the end of the leg. If the trunk has refused the call, Originate returns the
// refusal, and no event is published. A missing response is not a refusal, because the phone can
// ring.
func (l *leg) handleEnd(e sip.End) {
	result, j := l.conversation.End(), l.carrier.legStore
	l.mu.Lock()
	picked, late := l.answerDone, l.trunkIsSlow
	l.mu.Unlock()
	// The caller can hang up while the call is being answered. The event Answered must be stored
	// before the end.
	if picked != nil {
		<-picked
	}
	result.limitTimes(e.At)
	l.logEnd(e)
	if refused := l.closeLeg(e); refused != nil {
		l.enqueue(entry{last: true, write: func(ctx context.Context) error {
			if err := j.DeleteRefused(ctx, l.record, refusalOf(e)); err != nil {
				return err
			}
			l.finishOriginate(refused)
			return nil
		}})
		return
	}
	if e.Status != 0 || late { // the trunk has responded without a refusal, so it accepted the call
		l.finishOriginate(nil)
	}
	l.enqueueEnd(e, result)
	l.finishOriginate(errNoResult)
}

// enqueueEnd queues the turns of the conversation and the end of the leg, so that they are stored
// in one transaction.
func (l *leg) enqueueEnd(e sip.End, result Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, turn := range result.Turns {
		utterance := l.event(carrier.Utterance, turn.At)
		utterance.Role, utterance.Text, utterance.SpokenUntil = turn.Role, turn.Text, turn.EndedAt
		l.enqueueLocked(entry{event: utterance})
	}
	ended := l.event(carrier.Ended, e.At)
	ended.Cause, ended.ByUs, ended.Disclosure = e.Cause, e.ByUs, result.Disclosure
	ended.Outcome, ended.Reached = result.Outcome, result.Reached
	l.enqueueLocked(entry{last: true, event: ended, end: &store.End{
		At: ended.At, Cause: e.Cause, ByUs: e.ByUs, CallbackAt: result.CallbackAt, Answer: answerTo(e),
	}})
}

// limitTimes replaces each time after the end of the call with the time of the end. A transcript
// can arrive after the end, and audio can be sent while the end is processed.
func (r *Result) limitTimes(end time.Time) {
	for i := range r.Turns {
		for _, at := range []*time.Time{&r.Turns[i].At, &r.Turns[i].EndedAt} {
			if at.After(end) {
				*at = end
			}
		}
	}
	if r.Disclosure == nil {
		return
	}
	for _, at := range []**time.Time{&r.Disclosure.StartedAt, &r.Disclosure.FinishedAt, &r.Disclosure.CutAt} {
		if *at != nil && (*at).After(end) {
			*at = &end
		}
	}
}

// closeLeg closes the leg. It returns the trunk's refusal, or nil if the trunk possibly accepted
// the call. A refusal after a 100 counts only if it concerns the operator's account, or if another
// trunk can be tried.
func (l *leg) closeLeg(e sip.End) *carrier.Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	offered := !l.accepted && l.result != nil && e.Status != 0
	if offered && e.LocalFault {
		err := fmt.Errorf("send the INVITE again after %d %s: the database or the dialer failed", e.Status, e.Reason)
		return &carrier.Refused{Cause: callstate.NormalTemporaryFailure, NotSent: true, OperatorFault: true, Err: err}
	}
	elsewhere := e.OtherTrunkAllowed && l.retryableTrunk != "" && !l.trunkIsSlow
	if offered && e.NotPermitted {
		return l.notPermittedRefusal(e, elsewhere)
	}
	ours := offered && l.health.isOperatorFault(e, l.request)
	suspected := offered && l.health.isAccountSuspected(e)
	elsewhere = elsewhere || ours && l.retryableTrunk != ""
	if offered && (elsewhere || ours || suspected || !l.provisional) {
		refused := &carrier.Refused{
			Cause: e.Cause, OperatorFault: ours, AccountSuspected: suspected,
			Err: &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason},
		}
		if elsewhere {
			refused.RefusedBy = l.retryableTrunk
		}
		return refused
	}
	if !l.accepted { // the trunk received the INVITE and possibly accepted the call
		l.accepted = true
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, e.At)})
	}
	return nil
}

// notPermittedRefusal returns the refusal of a call whose next INVITE was not permitted. After a
// 401 or 407, that INVITE would have contained the credentials. So the trunk has not rejected the
// operator's account.
func (l *leg) notPermittedRefusal(e sip.End, elsewhere bool) *carrier.Refused {
	response := &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason}
	refused := &carrier.Refused{Cause: e.Cause, Err: fmt.Errorf("%w: %w", response, l.notPermittedError())}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusProxyAuthRequired {
		refused.Cause = callstate.NormalTemporaryFailure
	}
	if elsewhere {
		refused.RefusedBy = l.retryableTrunk
	}
	return refused
}

func (l *leg) notPermittedError() error {
	if l.isTrunkPaused.Load() {
		return carrier.ErrTrunkPaused
	}
	return carrier.ErrNotPermitted
}

var (
	errNoTransfer = errors.New("this call cannot be transferred")
	errRestored   = errors.New("the row of the leg was missing and is stored again")
	errNoResult   = errors.New("the trunk did not respond to the INVITE")
)
