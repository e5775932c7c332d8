// Package carrier defines what the dialer requires of a telephone carrier: it places, answers and
// ends calls, and returns the state of a call. The package also defines the events of calls. Each
// carrier is a package and passes the conformance suite in carriertest.
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
// any order, also for calls of another replica. Therefore a carrier stores all the data that it
// needs, except the call's id, before the first event of a call. Every method ends within 10 s, and
// immediately when ctx ends. Originate can take longer if Originate.Waiting is set.
//
// Package calls applies the events of a call to the call's row. A carrier that runs in the dialer
// (SIP) passes the events of its legs. A carrier that outlives the dialer is an EventStream, which
// package calls reads.
//
// After an error that is not documented here, the state of the call is unknown. A carrier that
// cannot be reached must not return ErrUnknownCall, because that error ends calls.
type Carrier interface {
	// Name is the carrier's name in fences and in the table carrier_cursors. It must never change.
	Name() string
	// Originate dials a number, at most once, even after failures. dialedAt is the time at which
	// the first request was sent that can make the phone ring. It is zero if no such request was
	// sent, or if the time is unknown.
	//
	// nil: the carrier has accepted the call, and will publish the end of the call. *Refused: no
	// phone rang and no phone will ring. ErrAlreadyOriginated: this process originated the call
	// before, and sent nothing now. ErrNotPermitted: nothing was sent. Any other error: it is
	// unknown whether the phone rings, and the call must never be originated again. Find can return
	// the state of the call, and Hangup ends the call.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer answers an inbound call. It changes nothing if the call was already answered or has
	// ended. It returns ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns the carrier's status of the call. The end is
	// reported as an event. Hangup can be repeated: it does not change a call that has ended. It
	// returns ErrUnknownCall if the carrier never had the call. If an Originate is still in
	// progress, the phone can ring after Hangup. The carrier then reports events of that call.
	Hangup(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Find returns the carrier's status of a call. The status contains at least the data of the
	// call's events. Find returns ErrUnknownCall if the carrier never had the call.
	Find(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Ready returns nil if the carrier can be reached. It does not change the state of the carrier.
	Ready(ctx context.Context) error
}

// EventStream is a carrier that stores its events and outlives the dialer.
type EventStream interface {
	Carrier
	// Events returns the events after a position; 0 is the beginning. It returns immediately if
	// there are events, possibly not all of them. Otherwise it waits for at most wait. A repeated
	// call returns the same events, also in another replica and after a restart, unless the name of
	// the stream has changed. If the stream has not reached the position, Events returns no events.
	//
	// Seq increases. The events of one call are in the order in which they happened, each once.
	// Ended is the last event of a call, except for an opt-out. Late or repeated events change
	// nothing.
	Events(ctx context.Context, after int64, wait time.Duration) (Batch, error)
}

// ErrUnknownCall is returned if the carrier never had the call, or has deleted it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAlreadyOriginated is returned if this process has originated the call before.
var ErrAlreadyOriginated = errors.New("this process has originated the call before")

// ErrNotPermitted is returned if Originate.Permit refused the first request. Nothing was then sent.
// If Permit refused a later request, a *Refused wraps ErrNotPermitted, because the trunk did not
// accept the call.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

// ErrNoNumber is returned if the agent has no number and no trunk has a caller ID for the call.
var ErrNoNumber = errors.New("the agent has no number, and no trunk has caller_ids")

// Refused is a definite refusal: no phone rang and no phone will ring.
type Refused struct {
	// Cause is the cause of the refusal. It is never empty.
	Cause callstate.Cause
	// NotSent reports that nothing was sent to the carrier.
	NotSent bool
	// OperatorFault reports that the operator must correct something first, for example the trunk's
	// password. The callee did not cause the refusal, so the request is queued again.
	OperatorFault bool
	// AccountSuspected reports that the refusal can concern the operator's account, because the
	// trunk has accepted no call since its last change.
	AccountSuspected bool
	// RefusedBy is the id of the trunk that refused the call, if another trunk can carry the call.
	// The next attempt is another call with its own fence, and its Originate excludes this trunk.
	// If RefusedBy is empty, no other trunk is tried.
	RefusedBy string
	Err       error
}

func (r *Refused) Error() string { return fmt.Sprintf("carrier refused (%s): %v", r.Cause, r.Err) }

// Unwrap returns the cause of the refusal, if there is one.
func (r *Refused) Unwrap() error { return r.Err }

// Originate describes one dial.
type Originate struct {
	CallID uuid.UUID
	// WorkspaceID is the workspace of the call.
	WorkspaceID uuid.UUID
	From, To    string
	// TrunkNumber reports that From is one of a trunk's caller_ids and not the number of the agent.
	// Only trunks whose caller_ids contain it may carry the call.
	TrunkNumber bool
	// TrunkID is the trunk that was chosen together with From. The choice has taken a token of this
	// trunk's calls per second for this call. If TrunkID is empty, the carrier chooses a trunk.
	TrunkID string
	// ExcludeTrunks are the trunks that refused the call request before, as in Refused.RefusedBy.
	ExcludeTrunks []string
	// Permit is called directly before each request that can make the phone ring, after all slow
	// steps. Over SIP these requests are each INVITE transaction, but not a retransmission. If
	// Permit returns false, the request is not sent. If Permit is nil, each request is permitted.
	Permit func(context.Context) bool
	// Waiting is called at most once, if the trunk has sent only 100 for a time. Originate then
	// waits for the next response, or until the returned channel is closed. If Waiting is nil,
	// Originate does not wait, and the trunk counts as having accepted the call.
	Waiting func() (stop <-chan struct{})
}

// Permitted calls Permit and returns its result. It returns true if Permit is nil.
func (o Originate) Permitted(ctx context.Context) bool { return o.Permit == nil || o.Permit(ctx) }

// Kind is the kind of an event.
type Kind string

// These are the values of Kind.
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
	// Seq is the position in the stream, from 1. It is 0 if the carrier has no stream.
	Seq int64
	// At is the time of the event by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound reports that the event belongs to an inbound call.
	Inbound bool
	// WorkspaceID is set with OptedOut of an outbound call. The opt-out can then be stored although
	// the row of the call is missing.
	WorkspaceID uuid.UUID
	// Role is the speaker of Text. If Role is empty, the person spoke, and the scripted agent has
	// to answer. The Text of OptedOut is the person's request not to be called again.
	Role, Text string
	// SpokenUntil is the time at which the last part of an agent's Text was played. It is zero if
	// the time is unknown.
	SpokenUntil time.Time
	Cause       callstate.Cause
	// Outcome and Reached are the agent's assessment of the conversation. They are set with Ended.
	// Reached is empty if there is no assessment.
	Outcome, Reached string
	// Disclosure states which part of the disclosure was played. It is set with Ended. It is nil if
	// that is unknown.
	Disclosure *agent.DisclosureRecord
	// ByUs reports that the dialer hung up.
	ByUs bool
	// DialedAt is the time of the dial. It is nil for an inbound call.
	DialedAt *time.Time
}

// Batch is a part of a stream. If the name changes, the stream is a new one. Its positions are
// unrelated to the old positions, and calls without events in the new stream are unknown. A carrier
// that restarts without losing its memory keeps the name. It publishes the end of every call that
// the restart ended.
type Batch struct {
	Feed   string
	Events []Event
}

// CallStatus is the carrier's status of one call. The times are those of the events. A time is nil
// if the event has not happened. Cause and ByUs are set with EndedAt.
type CallStatus struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    callstate.Cause
	ByUs                                     bool
}

// Replay applies the status to a call. It reports whether the status ended the call. zone is the
// time zone of the person.
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
