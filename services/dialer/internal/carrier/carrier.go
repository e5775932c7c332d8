// Package carrier owns what the dialer needs of a telephone carrier, whichever it is: place, answer and end a call, say what
// is known of one, and tell the news in order. How that is done is each carrier's own package.
package carrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/call"
)

// Carrier is a trunk. Every method but News ends within a few seconds.
type Carrier interface {
	// Name tells the trunk in fences and feeds.
	Name() string
	// Originate rings a number. nil: the carrier has it. *Refused: nothing rang and nothing will. Any other error: nobody knows, and the call must never be
	// originated again.
	Originate(ctx context.Context, o Originate) error
	// Answer picks up an inbound call; one that has ended is left alone. ErrUnknownCall when the carrier never heard of it.
	Answer(ctx context.Context, callID uuid.UUID) error
	// Hangup ends a call. It may be asked again. ErrUnknownCall when the carrier never heard of it.
	Hangup(ctx context.Context, callID uuid.UUID) (Knowledge, error)
	// Find tells what the carrier knows of a call; ErrUnknownCall when it never heard of it.
	Find(ctx context.Context, callID uuid.UUID) (Knowledge, error)
	// News answers what happened after a place in the feed, in order, waiting up to wait when there is none yet.
	News(ctx context.Context, after int64, wait time.Duration) (Batch, error)
	// Ready says whether the carrier can be reached.
	Ready(ctx context.Context) error
}

// ErrUnknownCall says that the carrier never heard of the call.
var ErrUnknownCall = errors.New("the carrier does not know this call")

// Refused is a definite no: nothing rang. Unsent says that not even the question left.
type Refused struct {
	Cause  call.Cause
	Unsent bool
	Err    error
}

func (r *Refused) Error() string { return fmt.Sprintf("carrier refused (%s): %v", r.Cause, r.Err) }

// Unwrap is the fault behind it, if any.
func (r *Refused) Unwrap() error { return r.Err }

// Originate is one dial.
type Originate struct {
	CallID   uuid.UUID
	From, To string
	// DialedAt is echoed with the news of the call.
	DialedAt time.Time
}

// Kind of news.
type Kind string

// Kinds.
const (
	Taken    Kind = "originate"
	Ringing  Kind = "ringing"
	Answered Kind = "answer"
	Said     Kind = "said"
	Ended    Kind = "hangup"
)

// News is one thing that happened to a call.
type News struct {
	Seq      int64
	At       time.Time
	Kind     Kind
	CallID   uuid.UUID
	From, To string
	// Inbound marks a call that rings us.
	Inbound bool
	Text    string
	Cause   call.Cause
	// ByUs says that we hung up.
	ByUs     bool
	DialedAt *time.Time
}

// Batch is a part of the feed. A feed with another name was begun anew.
type Batch struct {
	Feed string
	News []News
}

// Knowledge is what a carrier can say about one call.
type Knowledge struct {
	DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Cause                                    call.Cause
	ByUs                                     bool
}
