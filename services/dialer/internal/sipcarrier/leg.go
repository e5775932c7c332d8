package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// leg is one call of this process. Its events are applied to the call in order. The signalling does
// not wait for them. It waits only for the state that ends the call.
type leg struct {
	carrier *Carrier
	callID  uuid.UUID
	talk    Talk
	trunk   trunks.Trunk
	health  *trunkHealth // what is known of the trunk of an outbound call
	record  store.Leg
	request carrier.Originate
	// dialedAt is when the first INVITE left; zero for an inbound call. It is set before anything
	// else happens to the leg.
	dialedAt time.Time
	// ringingAt is when an inbound call arrived.
	ringingAt time.Time

	mu          sync.Mutex
	dialog      *sip.Dialog
	hangupCause callstate.Cause // somebody wanted the end before there was a dialog
	result      chan error      // what the originate waits for; nil once it has been told, or has left
	accepted    bool
	provisional bool // the trunk has sent a provisional response
	// answered: an outbound call was answered.
	answered bool
	closed   bool
	// hesitated is closed when the trunk has answered with nothing but 100 for a time and Originate
	// waits for the next response; late is then true.
	slowTrunk   chan struct{}
	trunkIsSlow bool
	// refusable is the id of the trunk if another trunk could be tried.
	retryableTrunk string
	offer          []byte        // of a call that came in
	answerDone     chan struct{} // made when it is picked up, closed when that has been told, or has failed
	writing        bool
	queue          []entry
	state          []byte // the newest teardown state
	// stored: the leg has had a row in the journal.
	stored bool
	// history are the applied events that change the state of the call. They are applied again with
	// each event: after a failover of the database, events that were applied can be missing.
	history []carrier.Event
	// lost: the leg belongs to another process, or has ended. It stores nothing any more, except
	// opt-outs.
	lost bool
}

// entry is one step that waits to be stored.
type entry struct {
	// event is applied to the call. The events of entries that wait together are applied in one
	// transaction.
	event *carrier.Event
	// end is set with the last event.
	end *store.End
	// write is a step that is not an event; nil: event is set.
	write func(ctx context.Context) error
	last  bool
}

// hangUp ends the leg. It does not wait.
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
			l.carrier.warn("a call could not be hung up", l.callID, err)
		}
	}()
}

// stopCause returns the cause with which a process that stops hangs up. It cancels an outbound call that is not
// answered. Every other call fails.
func (l *leg) stopCause() callstate.Cause {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record.Inbound || l.answered {
		return callstate.NormalTemporaryFailure
	}
	return callstate.OriginatorCancel
}

// attachDialog gives the leg its dialog; who wanted it ended meanwhile is heard.
func (l *leg) attachDialog(d *sip.Dialog) {
	l.mu.Lock()
	l.dialog = d
	wished := l.hangupCause
	l.mu.Unlock()
	if wished != "" {
		l.hangUp(wished)
	}
}

// transferTimeout bounds a transfer: it rings there, too.
const transferTimeout = time.Minute

// transfer hands the call on, to whom its workspace may call.
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

// finishOriginate tells the originate what came of it, unless it has been told, or has left.
func (l *leg) finishOriginate(said error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishOriginateLocked(said)
}

// finishOriginateLocked is answerOriginate with the lock held.
func (l *leg) finishOriginateLocked(said error) {
	if l.result != nil {
		l.result <- said
		l.result = nil
	}
}

// accept records that the trunk has the call, and ends the wait of Originate. Only the first call has
// an effect.
func (l *leg) accept(at time.Time) {
	l.mu.Lock()
	first := !l.accepted && !l.closed
	l.accepted = true
	if first { // before the events that follow
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, at)})
	}
	l.mu.Unlock()
	if first {
		l.finishOriginate(nil)
	}
}

// onSlowTrunk is called when the trunk has answered with 100 for a time. Unless the trunk has sent more,
// Originate waits for the next response, or the trunk has the call.
func (l *leg) onSlowTrunk(at time.Time) {
	if l.request.Waiting == nil {
		l.accept(at)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.accepted && !l.closed {
		l.trunkIsSlow = true
		close(l.slowTrunk)
	}
}

// event returns an event of the leg.
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

// enqueueEvent stores an event after what waits already.
func (l *leg) enqueueEvent(kind carrier.Kind, at time.Time) {
	l.enqueue(entry{event: l.event(kind, at)})
}

// enqueue stores a step after what waits already.
func (l *leg) enqueue(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueueLocked(one)
}

// enqueueLocked must be called with the lock held.
func (l *leg) enqueueLocked(one entry) {
	l.queue = append(l.queue, one)
	if !l.writing {
		l.writing = true
		go l.write()
	}
}

// enqueueFirst stores a step before all that waits already. The leg must have been created with writing
// set.
func (l *leg) enqueueFirst(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append([]entry{one}, l.queue...)
	go l.write()
}

// write stores what waits, in order. While the database is away it repeats.
func (l *leg) write() {
	for {
		next := l.next()
		if len(next) == 0 {
			return
		}
		l.storeUntilDone(next)
		if next[len(next)-1].last {
			l.carrier.removeLeg(l)
		}
		l.carrier.signalChange()
	}
}

// next returns the entries that are stored together: events that follow each other, or one step
// that is no event.
func (l *leg) next() []entry {
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
		l.writing = false
	}
	return next
}

// storeUntilDone repeats a step until it is stored, or Run has ended.
func (l *leg) storeUntilDone(next []entry) {
	for pause := pollInterval; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), journalTimeout)
		err := l.store(ctx, next)
		cancel()
		if err == nil {
			return
		}
		l.carrier.warn("events of a call wait for the database", l.callID, err)
		select {
		case <-l.carrier.stopped:
			return
		case <-time.After(pause):
		}
	}
}

// store stores one step. Events are applied only while the leg is this process's. Otherwise the
// call is hung up: another process considered this one dead, took the call over and ends it.
func (l *leg) store(ctx context.Context, next []entry) error {
	if write := next[0].write; write != nil {
		return write(ctx)
	}
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	if lost {
		return nil
	}
	events := slices.Clone(l.history)
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
		l.history = slices.DeleteFunc(events, func(e carrier.Event) bool {
			return e.Kind == carrier.Utterance || e.Kind == carrier.Ended
		})
	}
	return err
}

// handleLost handles events whose guard failed. If the row of the leg is missing after a failover of
// the database, it stores the row again and returns errRestored, so that the events are applied
// again. If the row exists, another process owns the leg or the leg has ended, and this process
// gives it up.
func (l *leg) handleLost(ctx context.Context) error {
	l.mu.Lock()
	again, stored := l.record, l.stored
	again.Teardown = l.state
	again.Channels = 0 // the call is live, also if other calls use all channels of the trunk
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

// dialed returns when the first INVITE of an outbound leg left, and whether the leg is live and has
// had a row in the journal.
func (l *leg) dialed() (at time.Time, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialedAt, l.stored && !l.closed && !l.lost && !l.dialedAt.IsZero()
}

// refresh applies the events of the leg again if it is live and has had a row in the journal. If
// Originate still waits, the trunk has the call from now on.
func (l *leg) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.stored || l.closed || l.lost:
	case l.record.Inbound:
		l.enqueueLocked(entry{event: l.event(carrier.Ringing, l.ringingAt)})
	case !l.dialedAt.IsZero():
		l.accepted = true
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, l.dialedAt)})
		l.finishOriginateLocked(errNoAnswerYet)
	}
}

// errNoAnswerYet ends the wait of Originate before the trunk has answered. The call goes on.
var errNoAnswerYet = errors.New("the trunk has not answered yet")

// giveUp hangs up a leg that belongs to another process, or has ended.
func (l *leg) giveUp() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	l.hangUp(callstate.Unspecified)
}

// outboundObserver stores what happens to an outbound leg.
func (l *leg) outboundObserver() sip.Observer {
	j, c, begun := l.carrier.legStore, l.record, false
	return sip.Observer{
		Keep: func(state []byte) error {
			if begun {
				return l.keep(state)
			}
			begun = true
			c.Teardown = state
			ctx, cancel := context.WithTimeout(context.Background(), journalTimeout)
			defer cancel()
			err := j.StoreOutbound(ctx, c)
			l.mu.Lock()
			l.stored, l.state = err == nil, state
			l.mu.Unlock()
			return err
		},
		Sent: func(at time.Time) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.dialedAt = at.UTC().Truncate(time.Microsecond)
		},
		Taken: func(at time.Time) {
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
			l.accept(at)
			l.enqueueEvent(carrier.Ringing, at)
			go l.openAgent()
		},
		Answered: func(at time.Time, answer []byte) error {
			l.mu.Lock()
			l.answered = true
			l.mu.Unlock()
			l.accept(at)
			l.enqueueEvent(carrier.Answered, at)
			return l.talk.Answer(answer, TalkCallbacks{OptedOut: l.optedOut, HangUp: l.hangUp, Transfer: l.transfer})
		},
		Offered: l.talk.Offered,
		Agreed:  l.talk.Agreed,
		Ended:   l.ended,
	}
}

// keep stores the state that ends the call from now on. If that fails, it is repeated: without the
// state no process could end the call after a crash.
func (l *leg) keep(state []byte) error {
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

// openAgent waits for whoever is to talk while it rings. When that cannot be, the ringing ends: nobody is to pick up into silence.
func (l *leg) openAgent() {
	if err := l.talk.Ready(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
		l.carrier.warn("a call is given up while it rings: its agent is not there", l.callID, err)
		l.hangUp(callstate.AgentError)
	}
}

// optedOut stores an opt-out and waits until that is done. It counts also if the leg belongs to
// another process, or has ended.
func (l *leg) optedOut(quote string, at time.Time) {
	stored := make(chan struct{})
	event := l.event(carrier.OptedOut, at)
	event.Text = quote
	l.enqueue(entry{write: func(ctx context.Context) error {
		err := l.carrier.calls.Apply(ctx, nil, []carrier.Event{*event})
		if err == nil {
			close(stored)
		}
		return err
	}})
	select {
	case <-stored:
	case <-l.carrier.stopped:
	}
}

// ended takes the end of the leg. A trunk whose first response is a refusal has refused the call. A
// trunk that refused after a 100 has refused it too, if it refused our account or if another trunk
// can be tried. Originate returns the refusal then, and the call has no event. A trunk that sent no
// response has not refused: the phone can ring.
func (l *leg) ended(e sip.End) {
	talked, j := l.talk.End(), l.carrier.legStore
	l.mu.Lock()
	picked, late := l.answerDone, l.trunkIsSlow
	l.mu.Unlock()
	if picked != nil { // the caller may hang up in the moment of the answer, which comes first
		<-picked
	}
	talked.endBy(e.At)
	l.logEnd(e)
	if refused := l.refused(e); refused != nil {
		l.enqueue(entry{last: true, write: func(ctx context.Context) error {
			if err := j.DeleteRefused(ctx, l.record, refusalOf(e)); err != nil {
				return err
			}
			l.finishOriginate(refused)
			return nil
		}})
		return
	}
	if e.Status != 0 || late { // it had it
		l.finishOriginate(nil)
	}
	l.end(e, talked)
	l.finishOriginate(errNoResult)
}

// end stores the conversation and the end of the leg, in one transaction.
func (l *leg) end(e sip.End, talked Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, turn := range talked.Turns {
		said := l.event(carrier.Utterance, turn.At)
		said.Role, said.Text, said.SpokenUntil = turn.Role, turn.Text, turn.EndedAt
		l.enqueueLocked(entry{event: said})
	}
	ended := l.event(carrier.Ended, e.At)
	ended.Cause, ended.ByUs, ended.Disclosure = e.Cause, e.ByUs, talked.Disclosure
	ended.Outcome, ended.Reached = talked.Outcome, talked.Reached
	l.enqueueLocked(entry{last: true, event: ended, end: &store.End{
		At: ended.At, Cause: e.Cause, ByUs: e.ByUs, CallbackAt: talked.CallbackAt, Answer: answerTo(e),
	}})
}

// endBy moves the times of the result to the end of the call if they are later. The person's last
// words can be transcribed after the end, and a frame can be sent while the end is being processed.
func (r *Result) endBy(end time.Time) {
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

// refused closes the leg: it is the refusal that its end is, and nil when the trunk had the call, or may have.
func (l *leg) refused(e sip.End) *carrier.Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	offered := !l.accepted && l.result != nil && e.Status != 0
	if offered && e.Ours {
		err := fmt.Errorf("send the INVITE again after %d %s: the database or the dialer failed", e.Status, e.Reason)
		return &carrier.Refused{Cause: callstate.NormalTemporaryFailure, NotSent: true, OperatorFault: true, Err: err}
	}
	elsewhere := e.Elsewhere && l.retryableTrunk != "" && !l.trunkIsSlow
	if offered && e.NotPermitted {
		return l.notPermitted(e, elsewhere)
	}
	ours := offered && l.health.operatorFault(e, l.request)
	suspected := offered && l.health.accountSuspected(e)
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
	if !l.accepted { // it was asked, and may have it
		l.accepted = true
		l.enqueueLocked(entry{event: l.event(carrier.Accepted, e.At)})
	}
	return nil
}

// notPermitted is the refusal of a trunk that was to receive another INVITE, which was not
// permitted any more. A 401 or 407 was not answered, so it does not mean that the trunk rejected
// our account.
func (l *leg) notPermitted(e sip.End, elsewhere bool) *carrier.Refused {
	response := &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason}
	refused := &carrier.Refused{Cause: e.Cause, Err: fmt.Errorf("%w: %w", response, carrier.ErrNotPermitted)}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusProxyAuthRequired {
		refused.Cause = callstate.NormalTemporaryFailure
	}
	if elsewhere {
		refused.RefusedBy = l.retryableTrunk
	}
	return refused
}

var (
	errNoTransfer = errors.New("this call cannot be handed on")
	errRestored   = errors.New("the row of the leg was missing and is stored again")
	errNoResult   = errors.New("the trunk did not say whether it took the call")
)
