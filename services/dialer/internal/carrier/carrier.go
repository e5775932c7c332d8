// Package carrier defines what the dialer needs of a telephone carrier: to place, answer and end a
// call, and to find what is known of one. It also defines the events of calls. Each carrier is a
// package and passes the conformance suite in carriertest.
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
// any order, also for calls of another replica: before the first event of a call, a carrier stores
// what it needs besides the call's id. Every method ends within 10 s, and immediately when ctx
// ends. Originate can take longer if Originate.Waiting is set.
//
// Package calls applies the events of a call to its row. A carrier that runs in the dialer (SIP)
// passes the events of its legs. A carrier that outlives the dialer is an EventStream, which
// package calls reads.
//
// After an error that is not documented here, the state of the call is unknown. A carrier that
// cannot be reached must not return ErrUnknownCall, because that ends calls.
type Carrier interface {
	// Name is the carrier's name in fences and in the table carrier_cursors. It must never change.
	Name() string
	// Originate dials a number, at most once, whatever fails. dialedAt is when the first request
	// was sent that can make the phone ring. It is zero if none was sent, or if that is unknown.
	//
	// nil: the carrier has the call, and its end will be published. *Refused: no phone rang and
	// none will ring. ErrAlreadyOriginated: this process originated the call before; nothing was
	// sent now. ErrNotPermitted: nothing was sent. Any other error: it is unknown whether the phone
	// rings, and the call must never be originated again. Find may know it, and Hangup ends it.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer answers an inbound call. It changes nothing if the call was answered or has ended. It
	// returns ErrUnknownCall if the carrier never had the call.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call in any state and returns what the carrier knows of it. The end is reported
	// as an event. Hangup can be repeated: it does not change a call that has ended. It returns
	// ErrUnknownCall if the carrier never had the call. If an Originate is still in progress, the
	// phone can ring after Hangup. The carrier then reports events of that call.
	Hangup(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Find returns what the carrier knows of a call, at least what its events contain. It returns
	// ErrUnknownCall if the carrier never had the call.
	Find(ctx context.Context, callID uuid.UUID) (CallStatus, error)
	// Ready returns nil if the carrier can be reached. It does not change the carrier.
	Ready(ctx context.Context) error
}

// EventStream is a carrier that stores its events and outlives the dialer.
type EventStream interface {
	Carrier
	// Events returns the events after a position; 0 is the beginning. It returns immediately if
	// there are events, possibly not all of them. Otherwise it waits for at most wait. A repeated
	// call returns the same events, also in another replica and after a restart, unless the stream
	// has another name. No events follow a position that the stream has not reached.
	//
	// Seq increases. The events of one call are in the order in which they happened, each once.
	// Ended is the last one, except for an opt-out. Events that are late or repeated change
	// nothing.
	Events(ctx context.Context, after int64, wait time.Duration) (Batch, error)
}

// ErrUnknownCall is returned if the carrier never had the call, or does not remember it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAlreadyOriginated is returned if this process has originated the call before.
var ErrAlreadyOriginated = errors.New("this process has originated the call before")

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
	// NotSent reports that nothing was sent to the carrier.
	NotSent bool
	// OperatorFault reports that the operator must correct something first, for example the trunk's
	// password. The callee has no part in it, so the request is queued again.
	OperatorFault bool
	// AccountSuspected reports that the refusal can be about the operator's account: the trunk has
	// accepted no call since its last change.
	AccountSuspected bool
	// RefusedBy is the id of the trunk that refused, if another trunk can carry the call. The next
	// attempt is another call with its own fence. Its Originate excludes this trunk. If empty, no
	// other trunk is tried.
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
	// TrunkID is the trunk that was chosen with From. One of its calls per second has been taken
	// for this call. If empty, the carrier chooses a trunk.
	TrunkID string
	// ExcludeTrunks are the trunks that refused the request before, as in Refused.RefusedBy.
	ExcludeTrunks []string
	// Permit is called directly before each request that can make the phone ring, after everything
	// that takes time. Over SIP that is each INVITE transaction, but not a retransmission. If it
	// returns false, the request is not sent. If nil, each request is permitted.
	Permit func(context.Context) bool
	// Waiting is called at most once: if the trunk has sent only 100 for a time. Originate then
	// waits for the next response, or until the returned channel is closed. If nil, Originate does
	// not wait, and the trunk has the call.
	Waiting func() (stop <-chan struct{})
}

// Permitted calls Permit.
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
	// Seq is the position in the stream, from 1; 0 without a stream.
	Seq int64
	// At is the time by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound reports that the call is an inbound one.
	Inbound bool
	// Role is the speaker of Text. If it is empty, the person spoke, and the scripted agent has to
	// answer. The Text of OptedOut is the person's request not to be called again.
	Role, Text string
	// SpokenUntil is when the last of an agent's Text was played; zero: unknown.
	SpokenUntil time.Time
	Cause       callstate.Cause
	// Outcome and Reached are the agent's assessment of the conversation. They are set with Ended.
	// Reached is empty if there is none.
	Outcome, Reached string
	// Disclosure states what was played of the disclosure. It is set with Ended; nil: unknown.
	Disclosure *agent.DisclosureRecord
	// ByUs reports that the dialer hung up.
	ByUs bool
	// DialedAt is the time of the dial; nil for an inbound call.
	DialedAt *time.Time
}

// Batch is a part of a stream. A stream with another name is a new one: its positions are unrelated
// to the old ones, and calls without events in it are unknown. A carrier that restarts with its
// memory keeps the name, and publishes the end of every call that ended with the restart.
type Batch struct {
	Feed   string
	Events []Event
}

// CallStatus is what a carrier knows of one call. The times are those of the events; nil: it has
// not happened. Cause and ByUs are set with EndedAt.
type CallStatus struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    callstate.Cause
	ByUs                                     bool
}

// Replay applies the status to a call. It reports whether that ended the call. zone is the time
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
