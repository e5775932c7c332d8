// Package carrier defines what the dialer needs of a telephone carrier: place, answer and end a
// call, and find what is known of one. It defines the events of calls too. Each carrier is a
// package, and passes the conformance suite in carriertest.
package carrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

// Carrier places and ends calls. All methods are safe for concurrent use, in every replica and in
// any order, also for calls that another replica began: a carrier stores what it needs besides the
// call's id before the first event of the call. Every method ends within 10 s, and immediately when
// ctx ends. Originate can take longer if Originate.Waiting is set.
//
// What happens to a call reaches its row through package calls. A carrier that runs in the dialer
// (SIP) applies the events of its legs. A carrier that outlives the dialer is a Feed, which
// package carrierevents reads.
//
// After any error that is not documented here, the state of the call is unknown. A carrier that
// cannot be reached must not return ErrUnknownCall, because that ends calls.
type Carrier interface {
	// Name is the carrier's name in fences and feeds. It never changes.
	Name() string
	// Originate rings a number, at most once, whatever fails. dialedAt is when the first request
	// left that can make the phone ring; zero if none left, or if that is not known.
	//
	// nil: the carrier has the call, and its end will be published. *Refused: nothing rang and
	// nothing will. ErrAsked: this process asked before; nothing was sent now. ErrNotPermitted:
	// nothing was sent. Any other error: it is not known whether the phone rings, and the call must
	// never be originated again. Find may know it, and Hangup ends it.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer answers an inbound call. Again, or after the end, it changes nothing. It returns
	// ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns what the carrier knows of it. The end is reported
	// as an event. Hangup can be repeated: it does not change a call that has ended. It returns
	// ErrUnknownCall if the carrier never had the call. If an Originate is still in progress, the
	// phone can ring after Hangup. The carrier then reports events of that call.
	Hangup(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Find returns what the carrier knows of a call, at least what its events contain. It returns
	// ErrUnknownCall if the carrier never had the call.
	Find(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Ready returns nil if the carrier can be reached. It has no effect on the carrier.
	Ready(ctx context.Context) error
}

// EventStream is a carrier that stores its events itself and outlives the dialer.
type EventStream interface {
	Carrier
	// Events returns what happened after a place in the feed; 0 is its beginning. It returns
	// immediately if there are events, possibly not all of them. Otherwise it waits for at most
	// wait. Repeated, also by another replica and after a restart, it returns the same, unless the
	// feed has another name. No events follow a place that the feed has not reached.
	//
	// Seq rises. The events of one call are in the order in which they happened, each once. Ended
	// is the last one, except for an opt-out. Events that are late or repeated change nothing.
	Events(ctx context.Context, after int64, wait time.Duration) (Batch, error)
}

// ErrUnknownCall is returned if the carrier never had the call, or does not remember it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAlreadyOriginated says that this process has asked the carrier to originate the call before.
var ErrAlreadyOriginated = errors.New("the carrier was asked to originate this call before")

// ErrNotPermitted is returned if Originate.Permit refused the first request: nothing was sent. If
// Permit refused a later request, a *Refused wraps ErrNotPermitted: the trunk did not accept the
// call.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

// ErrNoNumber is returned if the agent has no number and no trunk has a caller ID to show instead.
var ErrNoNumber = errors.New("the agent has no number, and no trunk has caller_ids")

// Refused is a definite refusal: no phone rang and none will ring.
type Refused struct {
	// Cause is never empty.
	Cause callstate.Cause
	// Unsent: nothing was sent to the carrier.
	NotSent bool
	// OperatorFault: the operator must repair something first, for example the trunk's password. The
	// callee has no part in it, so the request is queued again.
	OperatorFault bool
	// AccountSuspected: the trunk has taken no call since its last change, and its refusal can be about the
	// operator's account.
	AccountSuspected bool
	// By is the id of the trunk that refused, if another trunk may carry the call. The next attempt is
	// another call with its own fence; its Originate excludes this trunk. Empty: no other trunk is tried.
	RefusedBy string
	Err       error
}

func (r *Refused) Error() string { return fmt.Sprintf("carrier refused (%s): %v", r.Cause, r.Err) }

// Unwrap is the fault behind it, if any.
func (r *Refused) Unwrap() error { return r.Err }

// Originate is one dial.
type Originate struct {
	CallID uuid.UUID
	// WorkspaceID is whose call it is.
	WorkspaceID uuid.UUID
	From, To    string
	// TrunkNumber: From is one of a trunk's caller_ids and not the number of the agent. Only trunks whose caller_ids
	// contain it may carry the call.
	TrunkNumber bool
	// Over is the trunk that was chosen with From; its pace has been taken for this call. Empty: the carrier chooses.
	TrunkID string
	// Without are the trunks that refused the call's request before, by their names in Refused.
	ExcludeTrunks []string
	// Permit is called directly before each request that can make the phone ring, after everything
	// that takes time: over SIP before each INVITE transaction, but not before a retransmission. If
	// it returns false, the request does not leave. nil permits each request.
	Permit func(context.Context) bool
	// Waiting is called at most once: if the trunk has answered with nothing but 100 for a time.
	// Originate then waits for the next response, or until the returned channel is closed. nil:
	// Originate does not wait, and the trunk has the call.
	Waiting func() (stop <-chan struct{})
}

// Permitted reports whether a request may leave now.
func (o Originate) Permitted(ctx context.Context) bool { return o.Permit == nil || o.Permit(ctx) }

// Kind of an event.
type Kind string

// Kinds.
const (
	Accepted  Kind = "originate"
	Ringing   Kind = "ringing"
	Answered  Kind = "answer"
	Utterance Kind = "said"
	OptedOut  Kind = "opt_out"
	Ended     Kind = "hangup"
)

// Event is one thing that happened to a call.
type Event struct {
	// Seq is the place in the feed, from 1; 0 without a feed.
	Seq int64
	// At is the time by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound marks a call that rings us.
	Inbound bool
	// Role is the speaker of Text. If it is empty, the person spoke and the scripted agent has to
	// answer. The Text of OptedOut is the person's request not to be called again.
	Role, Text string
	// SpokenUntil is when the last of an agent's Text was played; zero: that is not known.
	SpokenUntil time.Time
	Cause       callstate.Cause
	// Outcome and Reached are an agent's judgement of its conversation, with Ended. Reached is
	// empty without one.
	Outcome, Reached string
	// Disclosure is of Ended: what was played of the disclosure; nil: that is not known.
	Disclosure *agent.DisclosureRecord
	// ByUs: this side hung up.
	ByUs bool
	// DialedAt is the time of the dial; nil for an inbound call.
	DialedAt *time.Time
}

// Batch is a part of a feed. A feed with another name is a new one: its places are unrelated to the
// old ones, and calls without events in it are unknown. A carrier that restarts with its memory
// keeps the name, and publishes the end of every call that ended with the restart.
type Batch struct {
	Feed   string
	Events []Event
}

// CallStatus is what a carrier knows of one call. The times are those of the events; nil: it has not
// happened. Cause and ByUs belong to EndedAt.
type CallStatus struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    callstate.Cause
	ByUs                                     bool
}

// Replay applies to a call what is known of it. It returns whether that ended the call. zone is the
// person's.
func (k CallStatus) Replay(c *callstate.Call, zone *time.Location) (ended bool) {
	if k.DialedAt != nil {
		c.Initiate(*k.DialedAt)
	}
	if k.RingingAt != nil {
		c.Ring(*k.RingingAt)
	}
	if k.AnsweredAt != nil {
		c.Answer(*k.AnsweredAt)
	}
	return k.EndedAt != nil && c.End(callstate.End{At: *k.EndedAt, Cause: k.Cause, ByUs: k.ByUs, Zone: zone})
}
