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

// Carrier places and ends calls. All methods are safe for concurrent use. Every replica may call
// every method for every call, in any order. Most methods get only the call's id. So a carrier must
// store all other data of a call before it publishes the call's first event. Every method returns
// within 10 s, and immediately when ctx ends. Originate can take longer if Originate.Waiting is
// set.
//
// Package calls applies the events of a call to the call's row. A carrier that runs in the dialer
// (SIP) passes the events of its legs to package calls. A carrier that outlives the dialer is an
// EventStream, from which package calls reads.
//
// After an error that is not documented here, the state of the call is unknown. A carrier that
// cannot be reached must not return ErrUnknownCall, because the dialer ends a call after that
// error.
type Carrier interface {
	// Name is the carrier's name in fences (the rows that permit a dial) and in the table
	// carrier_cursors. Name must never change, because stored rows contain it.
	Name() string
	// Originate dials a number, at most once, even after failures. dialedAt is the time at which
	// the first request was sent that can make the phone ring. dialedAt is zero if no such request
	// was sent, or if the time is unknown.
	//
	// If the error is nil, the carrier has accepted the call, and will publish the end of the call.
	// A *Refused means that no phone rang and no phone will ring. ErrAlreadyOriginated means that
	// this process originated the call before, and sent nothing now. ErrNotPermitted means that
	// nothing was sent. After any other error it is unknown whether the phone rings, and the call
	// must never be originated again. Find can return the state of such a call, and Hangup ends
	// such a call.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer answers an inbound call. Answer changes nothing if the call was already answered or
	// has ended. Answer returns ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns the carrier's status of the call. The carrier
	// publishes an event for the end. Hangup can be repeated: a call that has ended is not changed.
	// Hangup returns ErrUnknownCall if the carrier never had the call. If an Originate is still in
	// progress, the phone can ring after Hangup has returned. The carrier then publishes events of
	// that call, so the caller can hang up the call again.
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
	// Events returns the events after a position in the stream. Position 0 is the beginning. Events
	// returns immediately if there are events, and can return only some of them. Otherwise Events
	// waits for events, at most for the duration wait. If Events is called again with the same
	// position, it returns the same events. This is also true in another replica and after a
	// restart, unless the name of the stream has changed. If the position is after the end of the
	// stream, Events returns no events.
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
// ring. Nothing was sent then. If Permit refused a later request, the error is a *Refused that
// wraps ErrNotPermitted, because the trunk did not accept the call.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

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
	// AccountSuspected reports that the refusal can concern the operator's account, because the
	// trunk has accepted no call since its last change. The error of the call request then names
	// the account and does not blame the callee.
	AccountSuspected bool
	// RefusedBy is the id of the trunk that refused the call, if another trunk can carry the call.
	// The dialer then makes another attempt and excludes this trunk. That attempt has a new call id
	// and a new fence (the row that permits one dial). If RefusedBy is empty, the dialer tries no
	// other trunk.
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
	From, To    string
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
	// Permit is called directly before each request that can make the phone ring, after all slow
	// steps. Over SIP, each INVITE transaction is such a request, but a retransmission is not. If
	// Permit returns false, the request is not sent. If Permit is nil, each request is permitted.
	Permit func(context.Context) bool
	// Waiting is called at most once, when the trunk has sent only 100 for some time. Originate
	// then waits for the next response, or until the returned channel is closed. If Waiting is nil,
	// Originate does not wait, and the trunk counts as having accepted the call.
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
	// WorkspaceID is set only in an OptedOut event of an outbound call. With it, the opt-out can be
	// stored even if the row of the call is missing.
	WorkspaceID uuid.UUID
	// Role is the speaker of Text. If Role is empty, the person spoke, and the scripted agent (a
	// fixed script instead of a model) has to answer. In an OptedOut event, Text is the sentence
	// with which the person asked not to be called again.
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

// Batch is a part of a stream of events. Feed is the name of the stream. If the name changes, the
// stream is a new one. Its positions are unrelated to the old positions, and the carrier does not
// have the calls of the old stream. A carrier that restarts without losing its memory keeps the
// name. Such a carrier publishes the end of every call that the restart ended.
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

// Replay applies the status to the call c. Replay reports whether the status ended the call. The
// parameter zone is the time zone of the person.
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
