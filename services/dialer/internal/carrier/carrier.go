// Package carrier defines what the dialer requires of a telephone carrier. A carrier places,
// answers and ends calls, and returns the state of a call. The package also defines the events of
// calls. Each carrier is a separate package and passes the conformance suite in carriertest.
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
// and concurrently. Most methods get only the call's id, so a carrier must store all other data of
// a call before it publishes the call's first event.
//
// Every method returns within 10 s, and immediately when ctx ends. Originate can take longer if
// Originate.Waiting is set.
//
// Package calls applies the events to the call's row. A SIP carrier runs in the dialer and passes
// its events to package calls. A carrier that outlives the dialer is an EventStream, from which
// package calls reads.
//
// After an error that is not documented here, the state of the call is unknown. An unreachable
// carrier must not return ErrUnknownCall, because the dialer then ends the call.
type Carrier interface {
	// Name is the carrier's name in fences (the rows that permit a dial) and in the table
	// carrier_cursors. Name must never change, because stored rows contain it.
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
	// Answer answers an inbound call. Answer changes nothing if the call was already answered or
	// has ended. Answer returns ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns the carrier's status of the call. The end is
	// published as an event. Hangup can be repeated, and returns ErrUnknownCall if the carrier
	// never had the call.
	//
	// If an Originate is in progress, the phone can ring after Hangup. The carrier then publishes
	// events, so the caller can hang up again.
	Hangup(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Find returns the carrier's status of a call. The status contains at least the times and the
	// cause that the events of the call contain. Find returns ErrUnknownCall if the carrier never
	// had the call.
	Find(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Ready returns nil if the carrier can be reached. Ready does not change the state of the
	// carrier.
	Ready(ctx context.Context) error
}

// EventStream is a carrier that stores its events and outlives the dialer.
type EventStream interface {
	Carrier
	// Events returns the events after a position in the stream. Position 0 is the beginning. If
	// there are no events, Events waits for at most maxWait. A call with the same position returns
	// the same events again, also in another replica and after a restart, unless the stream has a
	// new name.
	//
	// Event.Seq increases. The events of one call are in the order in which they happened, and each
	// is in the stream once. Ended is the last event of a call, except that an opt-out can follow.
	// The caller must ignore late and repeated events.
	Events(ctx context.Context, after int64, maxWait time.Duration) (Batch, error)
}

// ErrUnknownCall is returned if the carrier never had the call, or has deleted it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAlreadyOriginated is returned if this process has originated the call before.
var ErrAlreadyOriginated = errors.New("this process has originated the call before")

// ErrNotPermitted is returned if Originate.Permit refused the first request that can make a phone
// ring. If Permit refused a later request, the error is a *Refused that wraps ErrNotPermitted.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

// ErrTrunkPaused is the form of ErrNotPermitted for a request that was not sent because its trunk
// is paused. The call request can be dialed later.
var ErrTrunkPaused = fmt.Errorf("the trunk is paused: %w", ErrNotPermitted)

// ErrNoNumber is returned if the agent has no number and no trunk has a caller ID for the call.
var ErrNoNumber = errors.New("the agent has no number, and no trunk has caller_ids")

// Refused is a definite refusal: no phone rang and no phone will ring.
type Refused struct {
	// Cause is the cause of the refusal. Cause is never empty.
	Cause callstate.Cause
	// NotSent reports that nothing was sent to the carrier.
	NotSent bool
	// OperatorFault reports that the operator must correct something first, for example the trunk's
	// password. The callee did not cause the refusal, so the call request is queued again.
	OperatorFault bool
	// AccountSuspected reports that the trunk has accepted no call since its last change, so the
	// refusal can concern the operator's account. The error of the call request then names the
	// account and does not blame the callee.
	AccountSuspected bool
	// RefusedBy is the id of the trunk that refused the call, if another trunk can carry it. The
	// dialer then makes another attempt without this trunk, with a new call id. If RefusedBy is
	// empty, no other trunk is tried.
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
	// Test reports that the workspace is a test workspace. Such a call must never reach a phone.
	Test     bool
	From, To string
	// TrunkNumber reports that From is one of a trunk's caller_ids and not the number of the agent.
	// Only a trunk whose caller_ids contain From may carry the call.
	TrunkNumber bool
	// TrunkID is the id of the trunk that was chosen together with From. That choice has already
	// taken a token of the trunk's calls per second. If TrunkID is empty, the carrier chooses a
	// trunk.
	TrunkID string
	// ExcludeTrunks are the ids of the trunks that have already refused the call request, as in
	// Refused.RefusedBy.
	ExcludeTrunks []string
	// Permit is called directly before each request that can make the phone ring. Over SIP, that is
	// each INVITE transaction, but not a retransmission. If Permit returns false, the request is
	// not sent. A nil Permit permits every request.
	Permit func(context.Context) bool
	// Waiting is called at most once, when the trunk has sent only 100 for some time. Originate
	// then waits for the next response or until stop is closed. If Waiting is nil, the trunk counts
	// as having accepted the call.
	Waiting func() (stop <-chan struct{})
}

// Permitted calls Permit and returns its result. Permitted returns true if Permit is nil.
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
	// Seq is the position in the stream, from 1. Seq is 0 if the carrier has no stream.
	Seq int64
	// At is the time of the event by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound reports that the event belongs to an inbound call.
	Inbound bool
	// WorkspaceID is set only in an OptedOut event of a SIP call. With it, the opt-out can be stored
	// even if the row of the call is missing.
	WorkspaceID uuid.UUID
	// Role is the speaker of Text. If Role is empty, the person spoke and the scripted agent has to
	// answer. In an OptedOut event, Text is the sentence with which the person opted out.
	Role, Text string
	// SpokenUntil is the time at which the last audio of an agent's Text was played. SpokenUntil is
	// zero if the time is unknown.
	SpokenUntil time.Time
	Cause       callstate.Cause
	// Outcome and Reached are the agent's assessment of the conversation. They are set in the event
	// Ended. Reached is empty if there is no assessment.
	Outcome, Reached string
	// Disclosure states which part of the disclosure was played. Disclosure is set in the event
	// Ended. Disclosure is nil if the part is unknown.
	Disclosure *agent.DisclosureRecord
	// ByUs reports that the dialer hung up.
	ByUs bool
	// DialedAt is the time of the dial. DialedAt is nil for an inbound call.
	DialedAt *time.Time
}

// Batch is a part of a stream of events. Feed is the name of the stream. A new name means a new
// stream, without the old calls. A carrier that keeps its data keeps the name after a restart.
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

// Replay applies the status to the call c, and reports whether the status ended the call. zone is
// the time zone of the person.
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
