// Package callstate contains the states of call requests and calls. It defines how events of the
// dialer and of billing-wallet change these states, and which public events follow. The package has
// no storage, no network and no clock.
package callstate

import (
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

// Status is the state of a call. It only moves forward, and a terminal status never changes.
type Status string

// These are the states of a call in their order (docs/reference/api/calls.md#call-states).
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

// Statuses returns all states, for the status filter of lists.
func Statuses() []string {
	return []string{
		string(Initiated), string(Ringing), string(InProgress), string(Completed), string(NoAnswer),
		string(Busy), string(Failed), string(Canceled),
	}
}

// rank returns the position of the status in the order of the states. It is 0 for an unknown
// status.
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

// Known reports whether the status is one of the states that this build defines.
func (s Status) Known() bool { return s.rank() > 0 }

// Terminal reports whether the status means that the call has ended.
func (s Status) Terminal() bool { return s.rank() == 4 }

// These are the directions of a call.
const (
	Inbound  = "inbound"
	Outbound = "outbound"
)

// Call is one conversation, or one attempt to reach a person. The dialer reports the fields from ID
// to Disclosure.
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
	// BillableSeconds are the seconds that billing-wallet charges. The call is free if
	// BillableSeconds is 0.
	BillableSeconds int32 `db:"billable_seconds"`
	// Version is the dialer's version of the call. An event with the same or a lower version
	// changes nothing, except the first event that reports the end of the call.
	Version int64 `db:"version"`

	// RecordingKey is the recording's key in object storage. It is nil if the recording does not
	// exist or was deleted.
	RecordingKey *string `db:"recording_key"`
	// RecordingURL is a signed link to the recording. It is empty if there is no recording, or if the
	// workspace does not show recordings. It is not stored, because it expires.
	RecordingURL string `db:"-"`

	// Outcome, Summary and Transcript (JSON) are set when the analysis arrives. Transcript is nil
	// if the SQL statement did not select the transcript, or if the workspace does not show
	// transcripts.
	Analysed   bool    `db:"analysed"`
	Outcome    *string `db:"outcome"`
	Summary    []byte  `db:"summary"`
	Transcript []byte  `db:"transcript"`
	// Disclosure records which part of the disclosure was played. It is nil before the end of the
	// call, and if the dialer did not report the disclosure.
	Disclosure *openapi.CallDisclosure `db:"disclosure"`

	ChargeSettled bool         `db:"charge_settled"`
	Credits       *money.Micro `db:"credits_micro"`

	// Sequence is the number of public events so far. Closed is true if the terminal event was
	// published. RecordingAnnounced is true if call.recording_ready was published.
	Sequence           int32 `db:"sequence"`
	Closed             bool  `db:"closed"`
	RecordingAnnounced bool  `db:"recording_announced"`
	// AnalysisDue is true if an outcome or a summary was added after call.completed was published.
	// NextOptIn then returns call.analyzed.
	AnalysisDue bool `db:"-"`
	// EndLearnedAt is the time at which this service received the end of a completed call. CompletesAt
	// is the latest time at which call.completed is published. CompletesAt is nil if the call does not
	// wait for the charge or the analysis.
	EndLearnedAt *time.Time `db:"end_learned_at"`
	CompletesAt  *time.Time `db:"completes_at"`
	// ErasedAt is the time at which the person was erased. After that, no transcript, summary or
	// recording of the call is stored or published.
	ErasedAt *time.Time `db:"erased_at"`
	// Traceparent identifies the trace of the call. The trace continues after the wait for the
	// charge and the analysis.
	Traceparent string `db:"traceparent"`
}

// Analysis is the dialer's analysis of a conversation. Summary and Transcript are JSON or nil.
type Analysis struct {
	Outcome    string
	Summary    []byte
	Transcript []byte
}
