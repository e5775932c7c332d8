package sip

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/store/journal"
	"ringfence.dev/services/dialer/internal/trunk"
)

// leg is one call of this process. What happens to it is written to the journal in order, behind the signalling, which waits for nothing but the state that ends the call.
type leg struct {
	carrier *Carrier
	callID  uuid.UUID
	talk    Talk
	trunk   trunk.Trunk
	known   *care // what is known of the trunk of an outbound call
	record  journal.Call
	order   carrier.Originate
	// dialedAt is when the first INVITE left; zero for an inbound call. It is set before anything
	// else happens to the leg.
	dialedAt time.Time

	mu     sync.Mutex
	dialog *signal.Dialog
	wished call.Cause // somebody wanted the end before there was a dialog
	said   chan error // what the originate waits for; nil once it has been told, or has left
	taken  bool
	tried  bool // the trunk said that it tries
	over   bool
	// refusable names the trunk when it may still refuse, since another could be asked.
	refusable string
	offer     []byte        // of a call that came in
	picked    chan struct{} // made when it is picked up, closed when that has been told, or has failed
	writing   bool
	waiting   []entry
	state     []byte // what would end the call, as it was kept last
}

// entry is one thing to be written. It says whether it counted.
type entry struct {
	write func(ctx context.Context) (told bool, err error)
	last  bool
}

// hangUp ends the leg. It does not wait.
func (l *leg) hangUp(cause call.Cause) {
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

// join gives the leg its dialog; who wanted it ended meanwhile is heard.
func (l *leg) join(d *signal.Dialog) {
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
	if l.said != nil {
		l.said <- said
		l.said = nil
	}
}

// take takes it, once, that the trunk has the call.
func (l *leg) take(at time.Time) {
	l.mu.Lock()
	first := !l.taken && !l.over
	l.taken = true
	if first { // in order with what is told of it next
		l.put(l.takeEntry(at))
	}
	l.mu.Unlock()
	if first {
		l.answerOriginate(nil)
	}
}

func (l *leg) takeEntry(at time.Time) entry {
	return entry{write: func(ctx context.Context) (bool, error) {
		return l.carrier.journal.Take(ctx, l.callID, l.dialedAt, at)
	}}
}

// later writes something behind what waits already.
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

// begin writes something before all that waits already, of a leg whose writing was held back.
func (l *leg) begin(one entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append([]entry{one}, l.waiting...)
	go l.write()
}

// write brings what waits into the journal, in order. While the database is away it goes on trying: nothing that happened to a call is left out.
func (l *leg) write() {
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.writing = false
			l.mu.Unlock()
			return
		}
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		l.insist(next)
		if next.last {
			l.carrier.leave(l)
		}
		l.carrier.wake()
	}
}

// insist writes one thing, however often it takes; not beyond the end of Run.
func (l *leg) insist(one entry) {
	for pause := glance; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		told, err := one.write(ctx)
		cancel()
		switch {
		case err != nil:
			l.carrier.warn("a call's news wait for the journal", l.callID, err)
			select {
			case <-l.carrier.over:
				return
			case <-time.After(pause):
				continue
			}
		case !told && !one.last:
			l.disowned()
		}
		return
	}
}

// disowned looks why something did not count: a call that another process took over, thinking us dead, is not ours to talk in any more.
func (l *leg) disowned() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if found, err := l.carrier.journal.Find(ctx, l.callID); err == nil && (found.EndedAt != nil || !l.carrier.journal.Owns(found)) {
		l.hangUp(call.Unspecified)
	}
}

// observer writes down what happens to the leg.
func (l *leg) observer() signal.Observer {
	j, c, begun := l.carrier.journal, l.record, false
	return signal.Observer{
		Keep: func(state []byte) error {
			if begun {
				return l.keep(state)
			}
			begun = true
			c.Teardown = state
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return j.Dial(ctx, c)
		},
		Sent: func(at time.Time) { l.dialedAt = at.UTC().Truncate(time.Microsecond) },
		Taken: func(at time.Time) {
			l.mu.Lock()
			l.tried = true
			l.mu.Unlock()
			wait := shortHesitation
			switch {
			case !l.known.hasAccepted():
				wait = newHesitation
			case l.refusable != "":
				wait = hesitation
			}
			time.AfterFunc(wait, func() { l.take(at) })
		},
		Rang: func(at time.Time, _ []byte) {
			l.take(at)
			l.tell(func(ctx context.Context) (bool, error) { return j.Ring(ctx, l.callID, at) })
			go l.ready()
		},
		Answered: func(at time.Time, answer []byte) error {
			l.take(at)
			l.tell(func(ctx context.Context) (bool, error) { return j.Answer(ctx, l.callID, at) })
			return l.talk.Answer(answer, Told{OptedOut: l.optedOut, Over: l.hangUp, Transfer: l.transfer})
		},
		Offered: l.talk.Offered,
		Agreed:  l.talk.Agreed,
		Ended:   l.ended,
	}
}

// keep notes what would end the call now. What cannot be written is, as soon as it can be: without it nobody could end the call after a crash.
func (l *leg) keep(state []byte) error {
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := l.carrier.journal.Keep(ctx, l.callID, state)
	if err != nil {
		l.tell(func(ctx context.Context) (bool, error) {
			l.mu.Lock()
			newest := l.state
			l.mu.Unlock()
			return true, l.carrier.journal.Keep(ctx, l.callID, newest)
		})
	}
	return err
}

// ready waits for whoever is to talk while it rings. When that cannot be, the ringing ends: nobody is to pick up into silence.
func (l *leg) ready() {
	if err := l.talk.Ready(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
		l.carrier.warn("a call is given up while it rings: its agent is not there", l.callID, err)
		l.hangUp(call.AgentError)
	}
}

func (l *leg) tell(write func(ctx context.Context) (bool, error)) { l.later(entry{write: write}) }

// optedOut waits until it stands in the journal.
func (l *leg) optedOut(quote string, at time.Time) {
	written := make(chan struct{})
	l.tell(func(ctx context.Context) (bool, error) {
		told, err := l.carrier.journal.OptOut(ctx, l.callID, at, quote)
		if err == nil {
			close(written)
		}
		return told, err
	})
	select {
	case <-written:
	case <-l.carrier.over:
	}
}

// ended takes the leg's end. A trunk that said no before anything else has refused, and so has one that only said that it tries, when another may be asked: whoever asked is told so, and
// nothing is known of the call. Silence is no refusal: the phone may ring all the same.
func (l *leg) ended(e signal.End) {
	talked, j := l.talk.End(), l.carrier.journal
	l.mu.Lock()
	picked := l.picked
	l.mu.Unlock()
	if picked != nil { // the caller may hang up in the moment of the answer, which comes first
		<-picked
	}
	talked.endBy(e.At)
	l.logEnd(e)
	if refused := l.refused(e); refused != nil {
		l.later(entry{last: true, write: func(ctx context.Context) (bool, error) {
			if err := j.Forget(ctx, l.record, refusalOf(e)); err != nil {
				return false, err
			}
			l.answerOriginate(refused)
			return true, nil
		}})
		return
	}
	if e.Status != 0 { // it had it
		l.answerOriginate(nil)
	}
	l.known.refusedLate(e)
	l.tell(func(ctx context.Context) (bool, error) { return true, j.Say(ctx, l.callID, talked.Turns) })
	l.later(entry{last: true, write: func(ctx context.Context) (bool, error) {
		return j.End(ctx, l.callID, journal.End{
			At: e.At, Cause: e.Cause, ByUs: e.ByUs, Outcome: talked.Outcome, Reached: talked.Reached,
			CallbackAt: talked.CallbackAt, Disclosure: talked.Disclosure, Answer: answerTo(e),
		})
	}})
	l.answerOriginate(errSilence)
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
func (l *leg) refused(e signal.End) *carrier.Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	offered := !l.taken && l.said != nil && e.Status != 0
	if offered && e.Ours {
		err := fmt.Errorf("send the INVITE again after %d %s: the database or the dialer failed", e.Status, e.Reason)
		return &carrier.Refused{Cause: call.NormalTemporaryFailure, Unsent: true, OperatorFault: true, Err: err}
	}
	elsewhere := e.Elsewhere && l.refusable != ""
	if offered && e.NotPermitted {
		return l.notPermitted(e, elsewhere)
	}
	ours := offered && l.known.operatorFault(e, l.order)
	if offered && (elsewhere || ours || !l.tried) {
		refused := &carrier.Refused{
			Cause: e.Cause, OperatorFault: ours, Err: &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason},
		}
		if elsewhere {
			refused.By = l.refusable
		}
		return refused
	}
	if !l.taken { // it was asked, and may have it
		l.taken = true
		l.put(l.takeEntry(e.At))
	}
	return nil
}

// notPermitted is the refusal of a trunk that was to receive another INVITE, which was not
// permitted any more. A 401 or 407 was not answered, so it does not mean that the trunk rejected
// our account.
func (l *leg) notPermitted(e signal.End, elsewhere bool) *carrier.Refused {
	response := &Response{Trunk: l.trunk.Name, Status: e.Status, Reason: e.Reason}
	refused := &carrier.Refused{Cause: e.Cause, Err: fmt.Errorf("%w: %w", response, carrier.ErrNotPermitted)}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusProxyAuthRequired {
		refused.Cause = call.NormalTemporaryFailure
	}
	if elsewhere {
		refused.By = l.refusable
	}
	return refused
}

var (
	errNobodyElse = errors.New("this call cannot be handed on")
	errSilence    = errors.New("the trunk did not say whether it took the call")
)
