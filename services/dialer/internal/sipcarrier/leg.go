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
	known   *care // what is known of the trunk of an outbound call
	record  store.Leg
	order   carrier.Originate
	// dialedAt is when the first INVITE left; zero for an inbound call. It is set before anything
	// else happens to the leg.
	dialedAt time.Time
	// ringingAt is when an inbound call arrived.
	ringingAt time.Time

	mu     sync.Mutex
	dialog *sip.Dialog
	wished callstate.Cause // somebody wanted the end before there was a dialog
	said   chan error      // what the originate waits for; nil once it has been told, or has left
	taken  bool
	tried  bool // the trunk has sent a provisional response
	// answered: an outbound call was answered.
	answered bool
	over     bool
	// hesitated is closed when the trunk has answered with nothing but 100 for a time and Originate
	// waits for the next response; late is then true.
	hesitated chan struct{}
	late      bool
	// refusable is the id of the trunk if another trunk could be tried.
	refusable string
	offer     []byte        // of a call that came in
	picked    chan struct{} // made when it is picked up, closed when that has been told, or has failed
	writing   bool
	waiting   []entry
	state     []byte // the newest teardown state
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
	if d == nil && l.wished == "" {
		l.wished = cause
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

// join gives the leg its dialog; who wanted it ended meanwhile is heard.
func (l *leg) join(d *sip.Dialog) {
	l.mu.Lock()
	l.dialog = d
	wished := l.wished
	l.mu.Unlock()
	if wished != "" {
		l.hangUp(wished)
	}
}

// transferring bounds a transfer: it rings there, too.
const transferring = time.Minute

// transfer hands the call on, to whom its workspace may call.
func (l *leg) transfer(ctx context.Context, to string) error {
	if l.carrier.cfg.MayReach == nil {
		return errNobodyElse
	}
	ctx, cancel := context.WithTimeout(ctx, transferring)
	defer cancel()
	if err := l.carrier.cfg.MayReach(ctx, l.callID, to); err != nil {
		return err
	}
	l.mu.Lock()
	d := l.dialog
	l.mu.Unlock()
	if d == nil {
		return errNobodyElse
	}
	return d.Refer(ctx, l.trunk.Write(to))
}

// answerOriginate tells the originate what came of it, unless it has been told, or has left.
func (l *leg) answerOriginate(said error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endOriginate(said)
}

// endOriginate is answerOriginate with the lock held.
func (l *leg) endOriginate(said error) {
	if l.said != nil {
		l.said <- said
		l.said = nil
	}
}

// take records that the trunk has the call, and ends the wait of Originate. Only the first call has
// an effect.
func (l *leg) take(at time.Time) {
	l.mu.Lock()
	first := !l.taken && !l.over
	l.taken = true
	if first { // before the events that follow
		l.put(entry{event: l.event(carrier.Accepted, at)})
	}
	l.mu.Unlock()
	if first {
		l.answerOriginate(nil)
	}
}

// hesitate is called when the trunk has answered with 100 for a time. Unless the trunk has sent more,
// Originate waits for the next response, or the trunk has the call.
func (l *leg) hesitate(at time.Time) {
	if l.order.Waiting == nil {
		l.take(at)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken && !l.over {
		l.late = true
		close(l.hesitated)
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

// tell stores an event after what waits already.
func (l *leg) tell(kind carrier.Kind, at time.Time) { l.later(entry{event: l.event(kind, at)}) }

// later stores a step after what waits already.
func (l *leg) later(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(one)
}

// put must be called with the lock held.
func (l *leg) put(one entry) {
	l.waiting = append(l.waiting, one)
	if !l.writing {
		l.writing = true
		go l.write()
	}
}

// begin stores a step before all that waits already. The leg must have been created with writing
// set.
func (l *leg) begin(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append([]entry{one}, l.waiting...)
	go l.write()
}

// write stores what waits, in order. While the database is away it repeats.
func (l *leg) write() {
	for {
		next := l.next()
		if len(next) == 0 {
			return
		}
		l.insist(next)
		if next[len(next)-1].last {
			l.carrier.leave(l)
		}
		l.carrier.wake()
	}
}

// next returns the entries that are stored together: events that follow each other, or one step
// that is no event.
func (l *leg) next() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.waiting) && l.waiting[n].event != nil && (n == 0 || !l.waiting[n-1].last) {
		n++
	}
	if n == 0 && len(l.waiting) > 0 {
		n = 1
	}
	next := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if n == 0 {
		l.writing = false
	}
	return next
}

// insist repeats a step until it is stored, or Run has ended.
func (l *leg) insist(next []entry) {
	for pause := glance; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := l.store(ctx, next)
		cancel()
		if err == nil {
			return
		}
		l.carrier.warn("events of a call wait for the database", l.callID, err)
		select {
		case <-l.carrier.over:
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
	guard, end := l.carrier.journal.Guard(l.callID), next[len(next)-1].end
	switch {
	case end != nil:
		last := *end
		last.AnsweredAt = answeredAt
		guard = l.carrier.journal.EndGuard(l.callID, last)
	case answeredAt != nil:
		guard = l.carrier.journal.AnswerGuard(l.callID, *answeredAt)
	}
	err := l.carrier.calls.Apply(ctx, guard, events)
	if errors.Is(err, store.ErrLost) {
		return l.notOwned(ctx)
	}
	if err == nil {
		l.history = slices.DeleteFunc(events, func(e carrier.Event) bool {
			return e.Kind == carrier.Utterance || e.Kind == carrier.Ended
		})
	}
	return err
}

// notOwned handles events whose guard failed. If the row of the leg is missing after a failover of
// the database, it stores the row again and returns errRestored, so that the events are applied
// again. If the row exists, another process owns the leg or the leg has ended, and this process
// gives it up.
func (l *leg) notOwned(ctx context.Context) error {
	l.mu.Lock()
	again, stored := l.record, l.stored
	again.Teardown = l.state
	again.Channels = 0 // the call is live, also if other calls use all channels of the trunk
	l.mu.Unlock()
	_, err := l.carrier.journal.Find(ctx, l.callID)
	if !errors.Is(err, pg.ErrNotFound) || !stored {
		if err == nil || errors.Is(err, pg.ErrNotFound) {
			l.lose()
			return nil
		}
		return err
	}
	if err := l.carrier.journal.Dial(ctx, again); err != nil && !errors.Is(err, store.ErrBegun) {
		return err
	}
	return errRestored
}

// dialed returns when the first INVITE of an outbound leg left, and whether the leg is live and has
// had a row in the journal.
func (l *leg) dialed() (at time.Time, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialedAt, l.stored && !l.over && !l.lost && !l.dialedAt.IsZero()
}

// refresh applies the events of the leg again if it is live and has had a row in the journal. If
// Originate still waits, the trunk has the call from now on.
func (l *leg) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.stored || l.over || l.lost:
	case l.record.Inbound:
		l.put(entry{event: l.event(carrier.Ringing, l.ringingAt)})
	case !l.dialedAt.IsZero():
		l.taken = true
		l.put(entry{event: l.event(carrier.Accepted, l.dialedAt)})
		l.endOriginate(errNoAnswerYet)
	}
}

// errNoAnswerYet ends the wait of Originate before the trunk has answered. The call goes on.
var errNoAnswerYet = errors.New("the trunk has not answered yet")

// lose hangs up a leg that belongs to another process, or has ended.
func (l *leg) lose() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	l.hangUp(callstate.Unspecified)
}

// observer stores what happens to an outbound leg.
func (l *leg) observer() sip.Observer {
	j, c, begun := l.carrier.journal, l.record, false
	return sip.Observer{
		Keep: func(state []byte) error {
			if begun {
				return l.keep(state)
			}
			begun = true
			c.Teardown = state
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := j.Dial(ctx, c)
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
			wait := shortHesitation
			l.mu.Lock()
			l.tried = true
			if l.refusable != "" {
				wait = hesitation
			}
			l.mu.Unlock()
			time.AfterFunc(wait, func() { l.hesitate(at) })
		},
		Rang: func(at time.Time, _ []byte) {
			l.take(at)
			l.tell(carrier.Ringing, at)
			go l.ready()
		},
		Answered: func(at time.Time, answer []byte) error {
			l.mu.Lock()
			l.answered = true
			l.mu.Unlock()
			l.take(at)
			l.tell(carrier.Answered, at)
			return l.talk.Answer(answer, Told{OptedOut: l.optedOut, Over: l.hangUp, Transfer: l.transfer})
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := l.carrier.journal.Keep(ctx, l.callID, state)
	if err != nil {
		l.later(entry{write: func(ctx context.Context) error {
			l.mu.Lock()
			newest := l.state
			l.mu.Unlock()
			return l.carrier.journal.Keep(ctx, l.callID, newest)
		}})
	}
	return err
}

// ready waits for whoever is to talk while it rings. When that cannot be, the ringing ends: nobody is to pick up into silence.
func (l *leg) ready() {
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
	l.later(entry{write: func(ctx context.Context) error {
		err := l.carrier.calls.Apply(ctx, nil, []carrier.Event{*event})
		if err == nil {
			close(stored)
		}
		return err
	}})
	select {
	case <-stored:
	case <-l.carrier.over:
	}
}

// ended takes the end of the leg. A trunk whose first response is a refusal has refused the call. A
// trunk that refused after a 100 has refused it too, if it refused our account or if another trunk
// can be tried. Originate returns the refusal then, and the call has no event. A trunk that sent no
// response has not refused: the phone can ring.
func (l *leg) ended(e sip.End) {
	talked, j := l.talk.End(), l.carrier.journal
	l.mu.Lock()
	picked, late := l.picked, l.late
	l.mu.Unlock()
	if picked != nil { // the caller may hang up in the moment of the answer, which comes first
		<-picked
	}
	talked.endBy(e.At)
	l.logEnd(e)
	if refused := l.refused(e); refused != nil {
		l.later(entry{last: true, write: func(ctx context.Context) error {
			if err := j.Forget(ctx, l.record, refusalOf(e)); err != nil {
				return err
			}
			l.answerOriginate(refused)
			return nil
		}})
		return
	}
	if e.Status != 0 || late { // it had it
		l.answerOriginate(nil)
	}
	l.end(e, talked)
	l.answerOriginate(errSilence)
}

// end stores the conversation and the end of the leg, in one transaction.
func (l *leg) end(e sip.End, talked Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, turn := range talked.Turns {
		said := l.event(carrier.Utterance, turn.At)
		said.Role, said.Text, said.SpokenUntil = turn.Role, turn.Text, turn.EndedAt
		l.put(entry{event: said})
	}
	ended := l.event(carrier.Ended, e.At)
	ended.Cause, ended.ByUs, ended.Disclosure = e.Cause, e.ByUs, talked.Disclosure
	ended.Outcome, ended.Reached = talked.Outcome, talked.Reached
	l.put(entry{last: true, event: ended, end: &store.End{
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
	l.over = true
	offered := !l.taken && l.said != nil && e.Status != 0
	if offered && e.Ours {
		err := fmt.Errorf("send the INVITE again after %d %s: the database or the dialer failed", e.Status, e.Reason)
		return &carrier.Refused{Cause: callstate.NormalTemporaryFailure, NotSent: true, OperatorFault: true, Err: err}
	}
	elsewhere := e.Elsewhere && l.refusable != "" && !l.late
	if offered && e.NotPermitted {
		return l.notPermitted(e, elsewhere)
	}
	ours := offered && l.known.operatorFault(e, l.order)
	suspected := offered && l.known.accountSuspected(e)
	elsewhere = elsewhere || ours && l.refusable != ""
	if offered && (elsewhere || ours || suspected || !l.tried) {
		refused := &carrier.Refused{
			Cause: e.Cause, OperatorFault: ours, AccountSuspected: suspected,
			Err: &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason},
		}
		if elsewhere {
			refused.RefusedBy = l.refusable
		}
		return refused
	}
	if !l.taken { // it was asked, and may have it
		l.taken = true
		l.put(entry{event: l.event(carrier.Accepted, e.At)})
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
		refused.RefusedBy = l.refusable
	}
	return refused
}

var (
	errNobodyElse = errors.New("this call cannot be handed on")
	errRestored   = errors.New("the row of the leg was missing and is stored again")
	errSilence    = errors.New("the trunk did not say whether it took the call")
)
