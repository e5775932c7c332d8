// Package carrier owns what the dialer needs of a telephone carrier, whichever it is: place, answer and end a call, say what is known of one, and tell the
// news in order. How that is done is each carrier's own package; that it is done is shown by the suite in carriertest, which every carrier passes.
package carrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
)

// Carrier is a trunk. All its methods may be called at once, in every replica and in any order, also for calls that another replica began: whatever a carrier
// needs beyond the call's id (a SIP dialog) it keeps itself, where the others find it, before it tells the first news of the call. Every method but News ends within
// 10 s, at once when ctx ends.
//
// An error is one of four: *Refused, ErrAsked, ErrUnknownCall, or any other, which says only that nobody knows. A carrier that cannot be reached knows
// nothing: it must not say ErrUnknownCall, by which calls are ended.
type Carrier interface {
	// Name tells the trunk in fences and feeds. It is the same for good.
	Name() string
	// Originate rings a number, at most once, whatever fails. dialedAt is when the first request
	// left that can make the phone ring; zero if none left, or if that is not known.
	//
	// nil: the carrier has the call, and its end will be published. *Refused: nothing rang and
	// nothing will. ErrAsked: this process asked before; nothing was sent now. ErrNotPermitted:
	// nothing was sent. Any other error: it is not known whether the phone rings, and the call must
	// never be originated again. Find may know it, and Hangup ends it.
	Originate(ctx context.Context, o Originate) (dialedAt time.Time, err error)
	// Answer picks up an inbound call. Again, or after the end, it changes nothing. ErrUnknownCall when the carrier never heard of it.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call, whatever state it is in, and answers what is known of it then. The end is told in the news. It may be asked again: a call that has
	// ended, by whomever, is left as it was. ErrUnknownCall when the carrier never heard of it; an originate that is still under way may
	// come to ring after that, and is told in the news.
	Hangup(ctx context.Context, callID uuid.UUID) (Knowledge, error)
	// Find tells what the carrier knows of a call, no less than its news; ErrUnknownCall when it never heard of it.
	Find(ctx context.Context, callID uuid.UUID) (Knowledge, error)
	// News answers what happened after a place in the feed, 0 being its beginning: at once what there is (a part of it, when it is much), else what comes
	// within wait, else nothing. Asked again it answers the same, also to another replica and after a restart, unless the feed has another name. A
	// place that the feed has not reached is no error: nothing comes after it.
	//
	// Seq rises. News of one call come in the order in which they happened, each once, and Ended is the last, but for an opt-out that was heard: so a carrier does it, and the
	// reader takes it as it comes: late and repeated news change nothing.
	News(ctx context.Context, after int64, wait time.Duration) (Batch, error)
	// Ready says whether the carrier can be reached. It has no effect there.
	Ready(ctx context.Context) error
}

// ErrUnknownCall says that the carrier never heard of the call, or has lost its memory of it.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// ErrAsked says that this process has asked the carrier to originate the call before.
var ErrAsked = errors.New("the carrier was asked to originate this call before")

// ErrNotPermitted is returned if Originate.Permit did not permit the first request: nothing was
// sent. It is in a *Refused if a request had left: the trunk did not take the call, and the next
// request was not permitted.
var ErrNotPermitted = errors.New("the dial is not permitted any more")

// ErrNoNumber is returned if the agent has no number and no trunk has a caller ID to show instead.
var ErrNoNumber = errors.New("the agent has no number, and no trunk has caller_ids")

// Refused is a definite refusal: no phone rang and none will ring.
type Refused struct {
	// Cause is never empty.
	Cause call.Cause
	// Unsent: nothing was sent to the carrier.
	Unsent bool
	// OperatorFault: the operator must repair something first, for example the trunk's password. The
	// callee has no part in it, so the request is queued again.
	OperatorFault bool
	// By is the id of the trunk that refused, if another trunk may carry the call. The next attempt is
	// another call with its own fence; its Originate excludes this trunk. Empty: no other trunk is tried.
	By  string
	Err error
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
	Over string
	// Without are the trunks that refused the call's request before, by their names in Refused.
	Without []string
	// Permit is called directly before each request that can make the phone ring, after everything
	// that takes time: over SIP before each INVITE transaction, but not before a retransmission. If
	// it returns false, the request does not leave. nil permits each request.
	Permit func(context.Context) bool
}

// Permitted reports whether a request may leave now.
func (o Originate) Permitted(ctx context.Context) bool { return o.Permit == nil || o.Permit(ctx) }

// Kind of news.
type Kind string

// Kinds.
const (
	Taken    Kind = "originate"
	Ringing  Kind = "ringing"
	Answered Kind = "answer"
	Said     Kind = "said"
	OptedOut Kind = "opt_out"
	Ended    Kind = "hangup"
)

// News is one thing that happened to a call.
type News struct {
	// Seq is the place in the feed, from 1.
	Seq int64
	// At is the instant by the carrier's clock.
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound marks a call that rings us.
	Inbound bool
	// Role says who said Text. Empty: the person, to whom nobody has answered yet. OptedOut quotes a person who asked not to be called again.
	Role, Text string
	// SpokenUntil is when the last of an agent's Text was played; zero: that is not known.
	SpokenUntil time.Time
	Cause       call.Cause
	// Outcome and Reached are what an agent that talked by itself made of the call, with its end. Reached empty: no such agent did.
	Outcome, Reached string
	// Disclosure is of Ended: what was played of the disclosure; nil: that is not known.
	Disclosure *agent.DisclosureRecord
	// ByUs says that we hung up.
	ByUs bool
	// DialedAt is the originate's; inbound calls have none.
	DialedAt *time.Time
}

// Batch is a part of the feed. A feed with another name was begun anew: its places have nothing to do with the old ones, and calls that it does not tell of are
// not known any more. A carrier that restarts with its memory keeps the name, and tells the end of every call that did not live through it.
type Batch struct {
	Feed string
	News []News
}

// Knowledge is what a carrier can say about one call: the instants are those of the news, nil is not yet, or never. Cause and ByUs go with EndedAt.
type Knowledge struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    call.Cause
	ByUs                                     bool
}

// Replay tells a call all that is known of it, and whether that ended it. zone is the person's.
func (k Knowledge) Replay(c *call.Call, zone *time.Location) (ended bool) {
	if k.DialedAt != nil {
		c.Initiate(*k.DialedAt)
	}
	if k.RingingAt != nil {
		c.Ring(*k.RingingAt)
	}
	if k.AnsweredAt != nil {
		c.Answer(*k.AnsweredAt)
	}
	return k.EndedAt != nil && c.End(call.End{At: *k.EndedAt, Cause: k.Cause, ByUs: k.ByUs, Zone: zone})
}
