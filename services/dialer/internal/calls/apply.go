// Package calls changes stored calls. It applies the events of carriers, answers inbound calls,
// ends the calls of dead processes, and reports opt-outs. Package callstate defines the states of a
// call.
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

// Listeners contains functions that the Applier calls after a commit. They must not block.
type Listeners struct {
	// Ended is called after calls ended. Arrived is called after inbound calls began to ring.
	// OptedOut is called after opt-outs were stored. HangUp is called after calls were marked to be
	// hung up.
	Ended, Arrived, OptedOut, HangUp func()
	// The applier calls Spoken with the new turns of calls that the scripted agent handles.
	Spoken func(...Turn)
}

// Applier applies the events of all carriers to calls. No other code applies events (ADR 13).
type Applier struct {
	store *store.Store
	relay *outbox.Relay
	// findCall returns the carrier's status of a call. It is nil if the carrier's event stream never
	// loses an event.
	findCall  func(context.Context, uuid.UUID) (carrier.CallStatus, error)
	listeners Listeners
}

// NewApplier returns an applier without listeners. If the carrier can lose the answer event of a
// call, find must return the carrier's status of a call. Otherwise find is nil.
func NewApplier(
	st *store.Store, relay *outbox.Relay, find func(context.Context, uuid.UUID) (carrier.CallStatus, error),
) *Applier {
	none := func() {}
	return &Applier{
		store: st, relay: relay, findCall: find,
		listeners: Listeners{Ended: none, Arrived: none, OptedOut: none, HangUp: none, Spoken: func(...Turn) {}},
	}
}

// Listen sets the listeners. It must be called before the first event.
func (a *Applier) Listen(to Listeners) { a.listeners = to }

// Apply applies events in order, in one transaction. The statement guard in this transaction checks
// that this process owns the calls. Late and repeated events change nothing.
//
// If Apply returns an error, it has applied no event. store.ErrLost means that another process owns
// the calls, or that an opt-out belongs to no known call or workspace. store.ErrServerChanged means
// that the reconciliation can still insert a missing call.
func (a *Applier) Apply(ctx context.Context, guard store.Guard, events []carrier.Event) error {
	f := &eventBatch{events: events, carrierStatus: map[uuid.UUID]carrier.CallStatus{}, skipQueries: a.findCall == nil}
	failpoint.Inject("dialer: before events")
	for {
		err := a.store.ApplyEvents(ctx, store.Events{
			Guard: guard, Arrived: f.arrived(), Calls: f.calls(), Fold: f.foldEvents,
		})
		if err == nil {
			break
		}
		if !errors.Is(err, errUnanswered) {
			return err
		}
		for _, id := range f.callsToQuery {
			known, err := a.findCall(ctx, id)
			if err != nil {
				slog.WarnContext(ctx, "carrier query failed for a call whose answer event is missing",
					"call_id", id, "error", err)
			}
			f.carrierStatus[id] = known
		}
	}
	failpoint.Inject("dialer: after events")
	a.notify(f)
	return nil
}

func (a *Applier) notify(f *eventBatch) {
	a.relay.Wake()
	if f.ends > 0 {
		a.listeners.Ended()
	}
	if f.arrivals > 0 {
		a.listeners.Arrived()
	}
	if f.optOuts > 0 {
		a.listeners.OptedOut()
	}
	if f.agentFailures > 0 || len(f.orphans) > 0 {
		a.listeners.HangUp()
	}
	a.listeners.Spoken(f.spoken...)
}

// eventBatch contains the state of one transaction. foldEvents resets it, because the transaction
// can run again.
type eventBatch struct {
	events                                 []carrier.Event
	ends, arrivals, optOuts, agentFailures int
	orphans                                map[uuid.UUID]bool
	spoken                                 []Turn
	// carrierStatus contains the results of the queries for callsToQuery. If skipQueries is true,
	// the carrier is not queried.
	callsToQuery  []uuid.UUID
	carrierStatus map[uuid.UUID]carrier.CallStatus
	skipQueries   bool
}

var errUnanswered = errors.New("a call ended as if answered, without an answer")

func (f *eventBatch) arrived() (calls []store.Arrived) {
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

func (f *eventBatch) calls() (ids []uuid.UUID) {
	for _, e := range f.events {
		ids = append(ids, e.CallID)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

func (f *eventBatch) foldEvents(calls map[uuid.UUID]*callstate.Call, reconciled bool) (folded store.Folded, err error) {
	f.ends, f.optOuts, f.agentFailures, f.orphans, f.callsToQuery = 0, 0, 0, map[uuid.UUID]bool{}, nil
	f.spoken = nil
	for _, e := range f.events {
		c := calls[e.CallID]
		switch {
		case c != nil:
		case e.Kind == carrier.OptedOut && e.WorkspaceID == uuid.Nil:
			return store.Folded{}, store.ErrLost
		case e.Kind == carrier.OptedOut:
			if o := newOptOut(e); o != nil {
				folded.OptOuts = append(folded.OptOuts, o)
			}
		// The events must wait, because the reconciliation can still insert the row of an outbound call.
		case !reconciled && !e.Inbound:
			return store.Folded{}, store.ErrServerChanged
		}
		if e.Kind == carrier.Ended {
			delete(f.orphans, e.CallID)
		} else if e.Kind != carrier.OptedOut && (c == nil || !c.Live()) {
			// The call is live at the carrier, but its row has ended or does not exist.
			f.orphans[e.CallID] = true
		}
		if c != nil {
			f.applyEvent(c, e)
		}
	}
	f.optOuts = len(folded.OptOuts)
	for _, c := range calls {
		if c.OptOut() != nil {
			f.optOuts++
		}
	}
	if len(f.callsToQuery) > 0 {
		return store.Folded{}, errUnanswered
	}
	folded.Orphans = slices.Collect(maps.Keys(f.orphans))
	return folded, nil
}

func (f *eventBatch) applyEvent(c *callstate.Call, e carrier.Event) {
	if e.Kind != carrier.Utterance && e.Kind != carrier.OptedOut && !e.Inbound && c.Live() {
		// The process that dialed can have died before it stored that the carrier accepted the call.
		// Initiate then records the acceptance.
		c.Initiate(dialedAt(e))
	}
	switch e.Kind {
	case carrier.Ringing:
		c.Ring(e.At)
	case carrier.Answered:
		c.Answer(e.At)
	case carrier.OptedOut:
		c.RecordOptOut(e.Text, e.At)
	case carrier.Utterance:
		f.recordSpeech(c, e)
	case carrier.Ended:
		f.restoreAnswer(c, e)
		ended := c.End(callstate.End{
			At: e.At, Cause: e.Cause, ByUs: e.ByUs, Zone: personZone(c), Judged: newJudgement(e), Disclosure: e.Disclosure,
		})
		if ended {
			f.ends++
		}
	}
}

// newOptOut returns the opt-out of a call that has no row. It returns nil if the person's number is
// not valid.
func newOptOut(e carrier.Event) *callstate.OptOut {
	c := callstate.Call{
		CallID: e.CallID, WorkspaceID: e.WorkspaceID, Direction: callstate.Outbound, From: e.From, To: e.To,
	}
	if e.Inbound {
		c.Direction = callstate.Inbound
	}
	c.RecordOptOut(e.Text, e.At)
	return c.OptOut()
}

// recordSpeech handles the words of the person or the agent. If the event has no Role, the person
// spoke and the scripted agent must reply.
func (f *eventBatch) recordSpeech(c *callstate.Call, e carrier.Event) {
	text := removeInvalid(e.Text)
	if e.Role != "" {
		c.Note(agent.Turn{Role: e.Role, Text: text, At: e.At, EndedAt: e.SpokenUntil})
		return
	}
	before, turns := c.Ending, len(c.Turns)
	if c.Hear(text, e.At) {
		c.RecordOptOut(text, e.At)
	}
	if c.Ending != before {
		f.agentFailures++
	}
	for i := turns; i < len(c.Turns); i++ {
		f.spoken = append(f.spoken, Turn{CallID: c.CallID, Number: i + 1, Turn: c.Turns[i]})
	}
}

// removeInvalid removes NUL bytes and replaces invalid UTF-8, because Postgres cannot store them.
func removeInvalid(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// restoreAnswer handles the end of a call that must have been answered, although no event reported
// the answer. It uses the carrier's status of the call. If the status is not known yet, it adds the
// call to callsToQuery.
func (f *eventBatch) restoreAnswer(c *callstate.Call, e carrier.Event) {
	if f.skipQueries || !c.Live() || c.AnsweredAt != nil || !e.Cause.Conversed() {
		return
	}
	known, asked := f.carrierStatus[c.CallID]
	if !asked {
		f.callsToQuery = append(f.callsToQuery, c.CallID)
		return
	}
	known.EndedAt = nil // the end time is taken from the end event
	known.Replay(c, time.UTC)
}

func newJudgement(e carrier.Event) *agent.Judgement {
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

func personZone(c *callstate.Call) *time.Location { return callstate.Zone(c.TimeZone, c.Person()) }
