// Package callstate knows what a call request and a call are: their states, how the dialer's and the
// wallet's news change them, which public events they owe, and how those look. It asks nobody, stores
// nothing and has no clock.
package callstate

import (
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

// Status is where a call is. It only ever moves forward; a terminal one is final.
type Status string

// The states of a call (contract.md §2), in their order.
const (
	Initiated  Status = "initiated"
	Ringing    Status = "ringing"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	NoAnswer   Status = "no_answer"
	Busy       Status = "busy"
	Failed     Status = "failed"
	Canceled   Status = "canceled"
)

// Statuses lists every state, for the status filter.
func Statuses() []string {
	return []string{
		string(Initiated), string(Ringing), string(InProgress), string(Completed), string(NoAnswer),
		string(Busy), string(Failed), string(Canceled),
	}
}

// rank orders the states; 0 is unknown to this build.
func (s Status) rank() int {
	switch s {
	case Initiated:
		return 1
	case Ringing:
		return 2
	case InProgress:
		return 3
	case Completed, NoAnswer, Busy, Failed, Canceled:
		return 4
	}
	return 0
}

// Known says whether this build knows the state.
func (s Status) Known() bool { return s.rank() > 0 }

// Terminal says whether the call has ended.
func (s Status) Terminal() bool { return s.rank() == 4 }

// The directions of a call.
const (
	Inbound  = "inbound"
	Outbound = "outbound"
)

// Call is one conversation, or one try at it. All but the last group is the dialer's account.
type Call struct {
	ID            uuid.UUID  `db:"id"`
	WorkspaceID   uuid.UUID  `db:"workspace_id"`
	CallRequestID *uuid.UUID `db:"call_request_id"`
	Direction     string     `db:"direction"`
	From          string     `db:"from_number"`
	To            string     `db:"to_e164"`
	AgentID       uuid.UUID  `db:"agent_id"`
	ContactID     *uuid.UUID `db:"contact_id"`
	ExternalRef   *string    `db:"external_ref"`
	Status        Status     `db:"status"`
	HangupCause   *string    `db:"hangup_cause"`
	Disposition   *string    `db:"disposition"`
	QueuedAt      *time.Time `db:"queued_at"`
	DialedAt      *time.Time `db:"dialed_at"`
	RingingAt     *time.Time `db:"ringing_at"`
	AnsweredAt    *time.Time `db:"answered_at"`
	EndedAt       *time.Time `db:"ended_at"`
	RingSeconds   *int32     `db:"ring_seconds"`
	TalkSeconds   *int32     `db:"talk_seconds"`
	TotalSeconds  *int32     `db:"total_seconds"`
	// BillableSeconds is what billing-wallet prices; 0: nothing will be charged.
	BillableSeconds int32 `db:"billable_seconds"`
	// Version is the dialer's; a fact that does not raise it is old news.
	Version int64 `db:"version"`

	// RecordingKey is where the recording lies; nil: there is none, or none any more.
	RecordingKey *string `db:"recording_key"`

	// Outcome, Summary and Transcript (JSON) come with the analysis. The transcript is nil unless it is wanted and may be shown.
	Analysed   bool    `db:"analysed"`
	Outcome    *string `db:"outcome"`
	Summary    []byte  `db:"summary"`
	Transcript []byte  `db:"transcript"`
	// Disclosure states what was played of the disclosure; nil before the end, and if that is not known.
	Disclosure *openapi.CallDisclosure `db:"disclosure"`

	ChargeSettled bool         `db:"charge_settled"`
	Credits       *money.Micro `db:"credits_micro"`

	// Sequence counts the public events so far; Closed says that the terminal one is among them.
	Sequence int32 `db:"sequence"`
	Closed   bool  `db:"closed"`
	// EndLearnedAt is when we heard that the call completed; CompletesAt, when its event goes out with what there is.
	EndLearnedAt *time.Time `db:"end_learned_at"`
	CompletesAt  *time.Time `db:"completes_at"`
	// ErasedAt is when the person was erased: of what was said nothing is kept or told any more.
	ErasedAt *time.Time `db:"erased_at"`
	// Traceparent carries the trace over the wait for charge and analysis.
	Traceparent string `db:"traceparent"`
}

// Analysis is what the dialer's analysis made of a conversation.
type Analysis struct {
	Outcome    string
	Summary    []byte
	Transcript []byte
}

// Waits bounds how long call.completed waits for what is still to come.
type Waits struct {
	Charge   time.Duration
	Analysis time.Duration
}
