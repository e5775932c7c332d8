// Package carrier defines what the dialer requires of a telephone carrier, which places, answers
// and ends calls and returns their states. It also defines the events of calls. Each carrier has
// its own package, which must pass the conformance suite in carriertest.
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

// Carrier places and ends calls. Every replica may call every method for every call, in any order
// and concurrently. Most methods receive only the id of a call. So a carrier must store all other
// data of a call before it publishes the call's first event.
//
// Every method must return within 10 s, and immediately when ctx ends. Only Originate can take
// longer, if Originate.Waiting is set.
//
// Package calls applies the events to the call's row. A SIP carrier runs in the dialer and passes
// its events to package calls. A carrier that outlives the dialer is an EventStream, from which
// package calls reads.
//
// After an error that is not documented here, the state of the call is unknown. An unreachable
// carrier must not return ErrUnknownCall, because the dialer then ends the call.
type Carrier interface {
	// Name is the name of the carrier in fences and in the table carrier_cursors. It must never
	// change, because stored rows contain it.
	Name() string
	// Originate dials a number, at most once, even after failures. dialedAt is the time of the
	// first request that can make the phone ring, or zero if none was sent or the time is unknown.
	//
	// The results are:
	//   - nil: the carrier accepted the call and will publish its end.
	//   - *Refused: no phone rang and no phone will ring.
	//   - ErrAlreadyOriginated: this process originated the call before, and sent nothing now.
	//   - ErrNotPermitted: nothing was sent.
	//
	// After any other error the phone may ring, so the call must never be originated again. Find
	// then returns its state, and Hangup ends it.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer answers an inbound call. If the call was already answered or has ended, Answer changes
	// nothing. It returns ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns the carrier's status of the call. The end is
	// published as an event. Hangup can be called again. It returns ErrUnknownCall if the carrier
	// never had the call.
	//
	// If Originate is still running for the call, the phone can ring after Hangup. The carrier then
	// publishes events, so that the caller can hang up again.
	Hangup(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Refuse ends an inbound call that was not answered, and the caller hears that the number is
	// busy. In all other respects Refuse is like Hangup.
	Refuse(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Find returns the carrier's status of a call. The status contains at least the times and the
	// cause that are in the call's events. Find returns ErrUnknownCall if the carrier never had the
	// call.
	Find(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Ready returns nil if the carrier can be reached. It does not change the state of the carrier.
	Ready(ctx context.Context) error
}

// EventStream is a carrier that stores its events and outlives the dialer.
type EventStream interface {
	Carrier
	// Events returns the events after a position in the stream. Position 0 is the beginning. If there
	// are no events yet, Events waits for at most maxWait. Another call with the same position returns
	// the same events, even in another replica or after a restart, unless the stream has a new name.
	//
	// Event.Seq increases. The events of one call are in the order in which they happened, and each is
	// in the stream once. Ended is the last event of a call; only an opt-out can follow it. The caller
	// must ignore late and repeated events.
	Events(ctx context.Context, after int64, maxWait time.Duration) (Batch, error)
}

// ErrUnknownCall is returned if the carrier never had the call, or has deleted it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAlreadyOriginated is returned if this process has already originated the call.
var ErrAlreadyOriginated = errors.New("this process has originated the call before")

// ErrNotPermitted is returned if Originate.Permit returned false for the first request that can
// make a phone ring. If Permit returned false for a later request, the error is a *Refused that
// wraps ErrNotPermitted.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

// ErrTrunkPaused wraps ErrNotPermitted. It is returned if a request was not sent because its trunk
// is paused. The call request can be dialed later.
var ErrTrunkPaused = fmt.Errorf("the trunk is paused: %w", ErrNotPermitted)

// ErrNoNumber is returned if the agent has no number, and no trunk has a caller ID for the call.
var ErrNoNumber = errors.New("the agent has no number, and no trunk has caller_ids")

// Refused means that the call was refused: no phone rang and no phone will ring.
type Refused struct {
	// Cause is the cause of the refusal. It is never empty.
	Cause callstate.Cause
	// NotSent is true if nothing was sent to the carrier.
	NotSent bool
	// OperatorFault is true if the operator must correct something first, for example the trunk's
	// password. The callee did not cause the refusal, so the call request is queued again.
	OperatorFault bool
	// AccountSuspected is true if the trunk has accepted no call since its last change. The
	// operator's account at the trunk can then be the cause of the refusal.
	AccountSuspected bool
	// RefusedBy is the id of the trunk that refused the call, if the dialer can try another trunk.
	// Otherwise RefusedBy is empty.
	RefusedBy string
	Err       error
}

func (r *Refused) Error() string { return fmt.Sprintf("carrier refused (%s): %v", r.Cause, r.Err) }

// Unwrap returns the error that caused the refusal, or nil.
func (r *Refused) Unwrap() error { return r.Err }

// Originate describes one dial.
type Originate struct {
	CallID uuid.UUID
	// WorkspaceID is the workspace of the call.
	WorkspaceID uuid.UUID
	// Test is true if the workspace is a test workspace. Such a call must never reach a phone.
	Test     bool
	From, To string
	// TrunkNumber is true if From is a caller_id of a trunk and not the number of the agent. Only
	// trunks with this caller_id may then be used.
	TrunkNumber bool
	// TrunkID is the id of the trunk that must be tried first. The rate limit of this trunk has
	// already counted the call. If TrunkID is empty, the carrier chooses a trunk.
	TrunkID string
	// ExcludeTrunks contains the ids of the trunks that have already refused the call request, as in
	// Refused.RefusedBy.
	ExcludeTrunks []string
	// Permit is called directly before each request that can make the phone ring. Over SIP, this is
	// each INVITE transaction, but not a retransmission. If Permit returns false, the request is not
	// sent. If Permit is nil, every request is sent.
	Permit func(context.Context) bool
	// Waiting is called once if the trunk is slow and has sent only 100 (Trying). Originate then
	// waits for the next response until stop is closed. If Waiting is nil, the call counts as
	// accepted.
	Waiting func() (stop <-chan struct{})
}

// Permitted calls Permit and returns its result. It returns true if Permit is nil.
func (o Originate) Permitted(ctx context.Context) bool { return o.Permit == nil || o.Permit(ctx) }

// Kind is the kind of an event.
type Kind string

// Values of Kind.
const (
	Accepted  Kind = "originate"
	Ringing   Kind = "ringing"
	Answered  Kind = "answer"
	Utterance Kind = "said"
	OptedOut  Kind = "opt_out"
	Ended     Kind = "hangup"
)

// Event is an event of a call.
type Event struct {
	// Seq is the position in the stream, starting at 1. It is 0 if the carrier has no stream.
	Seq int64
	// At is the time of the event by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound is true if the event belongs to an inbound call.
	Inbound bool
	// WorkspaceID is set only in an OptedOut event of a SIP call, so that the opt-out can be stored
	// even if the row of the call is missing.
	WorkspaceID uuid.UUID
	// Role is the speaker of Text. If it is empty, the person spoke and the scripted agent must
	// answer. In an OptedOut event, Text is the sentence with which the person opted out.
	Role, Text string
	// SpokenUntil is the time at which the last audio of an agent's Text was played. It is zero if
	// this is not known.
	SpokenUntil time.Time
	Cause       callstate.Cause
	// Outcome and Reached are the agent's assessment of the conversation, in the event Ended. Reached
	// is empty if there is no assessment.
	Outcome, Reached string
	// Disclosure states which part of the disclosure was played, in the event Ended. It is nil if this
	// is not known.
	Disclosure *agent.DisclosureRecord
	// ByUs is true if the dialer hung up.
	ByUs bool
	// DialedAt is the time of the dial. It is nil for an inbound call.
	DialedAt *time.Time
}

// Batch is a part of an event stream. Stream is the name of the stream. A new name means a new
// stream, which does not contain the old calls. If a carrier keeps its data in a restart, it also
// keeps the name.
type Batch struct {
	Stream string
	Events []Event
}

// CallStatus is the carrier's status of one call. It contains the times of the call's events. A
// time is nil if there was no such event. Cause and ByUs are set together with EndedAt.
type CallStatus struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    callstate.Cause
	ByUs                                     bool
}

// Replay applies the status to the call c, and reports whether it ended the call. zone is the time
// zone of the person.
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
