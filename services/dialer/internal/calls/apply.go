// Package calls applies what happens at a carrier to calls, and answers inbound calls. The states
// of a call are in package call.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

// Listeners are called after a commit whose events concern them. They must not block.
type Listeners struct {
	// Ended: calls ended. Arrived: inbound calls ring. OptedOut: persons opted out. HangUp: calls
	// are to be hung up.
	Ended, Arrived, OptedOut, HangUp func()
}

// Applier applies the events of calls. It is the only code that does so, for every carrier.
type Applier struct {
	store *store.Store
	relay *outbox.Relay
	// find returns what a carrier knows of a call; nil: the events are complete.
	find   func(context.Context, uuid.UUID) (carrier.CallStatus, error)
	listen Listeners
}

// NewApplier returns an applier without listeners. If the carrier's events can leave out the answer
// of a call, find is asked for it when the call ends; nil: they cannot.
func NewApplier(
	st *store.Store, relay *outbox.Relay, find func(context.Context, uuid.UUID) (carrier.CallStatus, error),
) *Applier {
	none := func() {}
	return &Applier{
		store: st, relay: relay, find: find, listen: Listeners{Ended: none, Arrived: none, OptedOut: none, HangUp: none},
	}
}

// Listen sets the listeners. It must be called before the first event.
func (a *Applier) Listen(to Listeners) { a.listen = to }

// Apply applies events in order, in one transaction with the guard: the changes of the calls and
// their outbox rows commit together. Events that are late or repeated change nothing. It returns
// store.ErrLost, and applies nothing, if the guard is not fulfilled: the calls belong to another
// process.
func (a *Applier) Apply(ctx context.Context, guard store.Guard, events []carrier.Event) error {
	f := &folding{events: events, known: map[uuid.UUID]carrier.CallStatus{}, complete: a.find == nil}
	failpoint.Inject("dialer: before events")
	for {
		err := a.store.ApplyEvents(ctx, store.Events{
			Guard: guard, Arrived: f.arrived(), Calls: f.calls(), Fold: f.fold,
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errUnanswered) {
			return err
		}
		for _, id := range f.unanswered {
			known, err := a.find(ctx, id)
			if err != nil {
				slog.WarnContext(ctx, "carrier does not know whether an ended call was answered", "call_id", id, "error", err)
			}
			f.known[id] = known
		}
	}
	failpoint.Inject("dialer: after events")
	a.notify(f)
	return nil
}

// notify calls the listeners whose work is in events that have committed.
func (a *Applier) notify(f *folding) {
	a.relay.Wake()
	if f.ends > 0 {
		a.listen.Ended()
	}
	if f.arrivals > 0 {
		a.listen.Arrived()
	}
	if f.optOuts > 0 {
		a.listen.OptedOut()
	}
	if f.breaks > 0 || len(f.orphans) > 0 {
		a.listen.HangUp()
	}
}

// folding applies events to locked calls. fold runs again if its transaction does.
type folding struct {
	events                          []carrier.Event
	ends, arrivals, optOuts, breaks int
	orphans                         map[uuid.UUID]bool
	// unanswered are the calls about which the carrier is to be asked, known is what it answered.
	// complete: it is not asked.
	unanswered []uuid.UUID
	known      map[uuid.UUID]carrier.CallStatus
	complete   bool
}

// errUnanswered: the carrier is to be asked before the events are applied.
var errUnanswered = errors.New("a call ended as if answered, without an answer")

// arrived returns the inbound calls that begin to ring.
func (f *folding) arrived() (calls []store.Arrived) {
	for _, e := range f.events {
		if e.Inbound && e.Kind == carrier.Ringing {
			from := e.From
			if from == "" {
				from = callstate.Anonymous
			}
			calls = append(calls, store.Arrived{CallID: e.CallID, From: from, To: e.To, RingingAt: e.At})
		}
	}
	f.arrivals = len(calls)
	return calls
}

func (f *folding) calls() (ids []uuid.UUID) {
	for _, e := range f.events {
		ids = append(ids, e.CallID)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// fold applies the events in order.
func (f *folding) fold(calls map[uuid.UUID]*callstate.Call) (folded store.Folded, err error) {
	f.ends, f.optOuts, f.breaks, f.orphans, f.unanswered = 0, 0, 0, map[uuid.UUID]bool{}, nil
	for _, e := range f.events {
		c := calls[e.CallID]
		if e.Kind == carrier.Ended {
			delete(f.orphans, e.CallID)
		} else if e.Kind != carrier.OptedOut && (c == nil || !c.Live()) {
			f.orphans[e.CallID] = true // it is alive at the carrier and not here
		}
		if c != nil {
			f.apply(c, e)
		}
	}
	for _, c := range calls {
		if c.OptOut() != nil {
			f.optOuts++
		}
	}
	if len(f.unanswered) > 0 {
		return store.Folded{}, errUnanswered
	}
	folded.Orphans = slices.Collect(maps.Keys(f.orphans))
	return folded, nil
}

// apply applies one event to its call.
func (f *folding) apply(c *callstate.Call, e carrier.Event) {
	if e.Kind != carrier.Utterance && e.Kind != carrier.OptedOut && !e.Inbound && c.Live() {
		c.Initiate(dialedAt(e)) // the process that dialed can be gone before it stored that
	}
	switch e.Kind {
	case carrier.Ringing:
		c.Ring(e.At)
	case carrier.Answered:
		c.Answer(e.At)
	case carrier.OptedOut:
		c.RecordOptOut(e.Text, e.At)
	case carrier.Utterance:
		f.say(c, e)
	case carrier.Ended:
		f.lostAnswer(c, e)
		ended := c.End(callstate.End{
			At: e.At, Cause: e.Cause, ByUs: e.ByUs, Zone: zone(c), Judged: judged(e), Disclosure: e.Disclosure,
		})
		if ended {
			f.ends++
		}
	}
}

// say adds what was said to the transcript. If Role is empty, the scripted agent answers.
func (f *folding) say(c *callstate.Call, e carrier.Event) {
	text := storable(e.Text)
	if e.Role != "" {
		c.Note(agent.Turn{Role: e.Role, Text: text, At: e.At, EndedAt: e.SpokenUntil})
		return
	}
	was := c.Ending
	if c.Hear(text, e.At) {
		c.RecordOptOut(text, e.At)
	}
	if c.Ending != was {
		f.breaks++
	}
}

// storable returns text without what no column can store.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// lostAnswer applies an answer that the events left out.
func (f *folding) lostAnswer(c *callstate.Call, e carrier.Event) {
	if f.complete || !c.Live() || c.AnsweredAt != nil || !e.Cause.Conversed() {
		return
	}
	known, asked := f.known[c.CallID]
	if !asked {
		f.unanswered = append(f.unanswered, c.CallID)
		return
	}
	known.EndedAt = nil // the event has it
	known.Replay(c, time.UTC)
}

// judged returns an agent's judgement of the conversation, or nil.
func judged(e carrier.Event) *agent.Judgement {
	if e.Reached == "" {
		return nil
	}
	return &agent.Judgement{Outcome: e.Outcome, Reached: e.Reached}
}

func dialedAt(e carrier.Event) time.Time {
	if e.DialedAt != nil {
		return *e.DialedAt
	}
	return e.At
}

// zone returns the time zone of the person.
func zone(c *callstate.Call) *time.Location { return callstate.Zone(c.TimeZone, c.Person()) }
