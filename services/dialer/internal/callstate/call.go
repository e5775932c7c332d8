// Package call owns what a call is and how it goes: its states, which only move forward, its one end, its timings, and the
// fact that every change publishes. It reads no clock and stores nothing; what happened, and when, is told to it.

package callstate

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/agent"
)

// Status is a state of contract.md §2, or one of the two that nobody outside sees: fenced and void.
type Status string

// Fenced: the fence is committed and nothing has left for the carrier as far as we know. Void: nothing ever left.
const (
	Fenced     Status = "fenced"
	Void       Status = "void"
	Initiated  Status = "initiated"
	Ringing    Status = "ringing"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Unanswered Status = "no_answer"
	Busy       Status = "busy"
	Failed     Status = "failed"
	Canceled   Status = "canceled"
)

// Direction of a call, seen from us.
type Direction string

// Directions.
const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Ending is why we ourselves are hanging up; empty while we are not.
type Ending string

// Endings. EndingRecovery: the process that held the call is gone. EndingUnknown: the carrier did not say whether it took the call. EndingWatchdog: nobody
// told us of an end in time. EndingLost: nor did anybody for one of the first two.
const (
	EndingNone     Ending = ""
	EndingRecovery Ending = "recovery"
	EndingLongest  Ending = "max_duration"
	EndingRing     Ending = "ring_timeout"
	EndingAgent    Ending = "agent_error"
	EndingWatchdog Ending = "watchdog"
	EndingUnknown  Ending = "dial_unknown"
	EndingLost     Ending = "lost"
)

// Anonymous is the from of a withheld number.
const Anonymous = "anonymous"

// Call is one call, scanned from its row.
type Call struct {
	CallID        uuid.UUID  `db:"call_id"`
	CallRequestID *uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID  `db:"workspace_id"`
	Direction     Direction  `db:"direction"`
	From          string     `db:"from_number"`
	To            string     `db:"to_e164"`
	AgentID       uuid.UUID  `db:"agent_id"`
	ContactID     *uuid.UUID `db:"contact_id"`
	// TimeZone is where the person is, as contacts-compliance said; empty: it is not known there.
	TimeZone       string       `db:"time_zone"`
	Status         Status       `db:"status"`
	Ending         Ending       `db:"ending"`
	HangupCause    Cause        `db:"hangup_cause"`
	Disposition    string       `db:"disposition"`
	ErrorCode      string       `db:"error_code"`
	ErrorDetail    string       `db:"error_detail"`
	QueuedAt       *time.Time   `db:"queued_at"`
	DialedAt       *time.Time   `db:"dialed_at"`
	RingingAt      *time.Time   `db:"ringing_at"`
	AnsweredAt     *time.Time   `db:"answered_at"`
	EndedAt        *time.Time   `db:"ended_at"`
	Turns          []agent.Turn `db:"turns"`
	MaxCallSeconds int32        `db:"max_call_seconds"`
	// Outcome is what the conversation of an agent that talks by itself came to; Analysing that its analysis is still to be told.
	Outcome   string `db:"outcome"`
	Analysing bool   `db:"analysing"`
	// RecordingKey is where the recording lies, once it does; empty: there is none, or none any more.
	RecordingKey string `db:"recording_key"`
	// Disclosure states what was played of the disclosure. It is nil before the end, and if that is not known.
	Disclosure  *agent.DisclosureRecord `db:"disclosure"`
	Traceparent string                  `db:"traceparent"`
	Version     int64                   `db:"version"`
	// Erased: the person was erased; of what is said nothing is kept or told once the call has ended.
	Erased bool `db:"erased"`

	facts  []Fact
	optOut *OptOut
}

// Zone is the time zone in which a person is spoken to and times are agreed on: the one told of them, else the first of their number's, else UTC.
func Zone(told string, person phone.Number) *time.Location {
	if told != "" {
		if zone, err := time.LoadLocation(told); err == nil {
			return zone
		}
	}
	if zones := person.Zones(); len(zones) > 0 {
		return zones[0]
	}
	return time.UTC
}

// Facts are those that the changes since the row was read publish, in order.
func (c *Call) Facts() []Fact { return c.facts }

// Final says that the watchdog has the call: it ends now, whatever the carrier says.
func (e Ending) Final() bool { return e == EndingWatchdog || e == EndingLost }

// Unheard is the end of a call that we are hanging up and that the carrier does not know (any more): it is no witness for a
// charge.
func (e Ending) Unheard(at time.Time) End {
	switch e {
	case EndingRecovery, EndingUnknown, EndingLost:
		return End{At: at, Cause: Unspecified, ByUs: true}
	}
	return End{At: at, Cause: RecoveryOnTimerExpire}
}

// Live says that the call has not ended.
func (c *Call) Live() bool { return c.EndedAt == nil }

// Initiate takes that the carrier has the call; dialedAt is the instant before it was asked. Only the first time counts.
func (c *Call) Initiate(dialedAt time.Time) bool {
	if c.Status != Fenced {
		return false
	}
	c.Status, c.DialedAt = Initiated, &dialedAt
	c.tell(dialing, dialedAt)
	return true
}

// Arrive begins an inbound call, which rings.
func (c *Call) Arrive() bool {
	if c.Direction != Inbound || c.Version > 0 || c.RingingAt == nil {
		return false
	}
	c.tell(ringing, *c.RingingAt)
	return true
}

// Ring takes that the callee's phone rings. It counts once, and not after an answer.
func (c *Call) Ring(at time.Time) bool {
	if c.Status != Initiated {
		return false
	}
	at = c.notBefore(at)
	c.Status, c.RingingAt = Ringing, &at
	c.tell(ringing, at)
	return true
}

// Answer takes that somebody or something picked up.
func (c *Call) Answer(at time.Time) bool {
	if c.Status != Initiated && c.Status != Ringing {
		return false
	}
	c.Arrive()
	at = c.notBefore(at)
	c.Status, c.AnsweredAt = InProgress, &at
	c.tell(answered, at)
	return true
}

// Doubt takes that the carrier did not say whether it took the call: it is to be hung up, whatever became of it.
func (c *Call) Doubt() {
	if c.Live() && c.Ending == EndingNone {
		c.Ending = EndingUnknown
	}
}

// Hear gives the agent one line of the person's. optOut is told for every line, also for one that comes after the end. When the agent breaks, the call's Ending says so
// and it is to be hung up.
func (c *Call) Hear(text string, at time.Time) (optOut bool) {
	session := agent.Resume(c.Turns)
	optOut, err := session.Hear(text, at)
	if c.Status != InProgress {
		return optOut
	}
	c.Turns = session.Turns()
	if errors.Is(err, agent.ErrBroken) && c.Ending == EndingNone {
		c.Ending = EndingAgent
	}
	return optOut
}

// Note adds a turn of a conversation that an agent held by itself.
func (c *Call) Note(turn agent.Turn) {
	if c.Status == InProgress {
		c.Turns = append(c.Turns, turn)
	}
}

// End is how a call ended.
type End struct {
	At    time.Time
	Cause Cause
	// ByUs says that we hung up; then the call's Ending tells how it counts.
	ByUs bool
	// AccountSuspected: a trunk refused the call, and the operator's account can be the reason. ErrorDetail then names
	// the account instead of the callee.
	AccountSuspected bool
	// Zone is the person's, for what the agent makes of the conversation.
	Zone *time.Location
	// Judged is what an agent made of it that talked by itself; nil: it is the scripted agent's to judge what was said. Its analysis waits for Analyse.
	Judged *agent.Judgement
	// Disclosure states what was played of the disclosure; nil: that is not known.
	Disclosure *agent.DisclosureRecord
}

// End ends the call. It returns false if the call had ended before. The events of a completed call
// carry what the agent made of the conversation. A call over a trunk that failed after the answer keeps
// its outcome and its transcript, but is not summarised.
func (c *Call) End(e End) bool {
	if !c.Live() {
		return false
	}
	c.Arrive()
	at := c.notBefore(e.At)
	c.EndedAt, c.Disclosure = &at, e.Disclosure
	c.settle(e)
	if c.Status != Completed && (c.AnsweredAt == nil || e.Judged == nil) {
		c.tell(ended, at)
		c.forget()
		return true
	}
	if c.Status != Completed {
		c.Disposition = e.Judged.Reached
		c.settleOutcome(e.Judged.Outcome, at)
		c.tell(ended, at)
		c.forget()
		c.analyse(*e.Judged, at)
		return true
	}
	if e.Judged != nil {
		c.Disposition, c.Analysing = e.Judged.Reached, true
		c.settleOutcome(e.Judged.Outcome, at)
		c.tell(ended, at)
		c.forget()
		return true
	}
	judged := agent.Resume(c.Turns).Judge(at, e.Zone)
	c.Disposition = judged.Reached
	c.settleOutcome(judged.Outcome, at)
	c.tell(ended, at)
	if c.Erased {
		judged.Summary = nil
	}
	c.forget()
	c.analyse(judged, at)
	return true
}

// Analyse tells what came of a conversation that an agent held by itself, once; a summary may be nil. False: there was nothing to tell.
func (c *Call) Analyse(summary *agent.Summary, at time.Time) bool {
	if !c.Analysing {
		return false
	}
	c.Analysing = false
	judged := agent.Judgement{Outcome: c.Outcome, Reached: c.Disposition}
	if summary != nil && !c.Erased {
		judged.Outcome, judged.Summary = summary.Outcome, summary
	}
	c.analyse(judged, c.notBefore(at))
	return true
}

// Record takes where the recording of an ended call lies; "": it lies there no more. Again, and of an erased person, it changes nothing.
func (c *Call) Record(key string, at time.Time) bool {
	if c.Live() || c.RecordingKey == key || c.Erased && key != "" {
		return false
	}
	c.RecordingKey = key
	c.tell(recorded, c.notBefore(at))
	return true
}

// Erase takes that the person of an inbound call was erased, and tells of it behind what was told before. What was said stays while the call
// goes on, since the agent answers by it. Again, it tells again.
func (c *Call) Erase(erasure uuid.UUID, at time.Time) {
	c.Erased = true
	if !c.Live() {
		c.forget()
	}
	if c.Direction == Inbound && c.Version > 0 {
		c.tellErased(erasure, at)
	}
}

// forget drops what was said in an ended call of an erased person.
func (c *Call) forget() {
	if c.Erased {
		c.Turns = nil
	}
}

// settle decides status, cause, disposition and the request's error.
func (c *Call) settle(e End) {
	cause, unknown := e.Cause, false
	switch c.Ending {
	case EndingNone: // whoever ended it for no reason of the call's had found it without an owner, before recovery had
		unknown = e.ByUs && cause == Unspecified
	case EndingAgent: // whoever hung up then: the agent had broken
		cause = AgentError
	case EndingRecovery, EndingUnknown, EndingLost: // the truth, when it ended before we touched it
		if e.ByUs {
			cause, unknown = Unspecified, true
		}
	case EndingLongest:
		if e.ByUs {
			cause = MaxDuration
		}
	case EndingRing:
		if e.ByUs && c.AnsweredAt == nil {
			cause = NoAnswer
		} else if e.ByUs {
			cause = OriginatorCancel // picked up in the instant in which we gave up
		}
	case EndingWatchdog:
		if e.ByUs {
			cause = RecoveryOnTimerExpire
		}
	}
	c.HangupCause, c.Status = cause, cause.status(c.AnsweredAt != nil)
	c.Disposition = cause.reached(c.Status)
	if c.Status != Failed && c.Status != Canceled || c.Direction == Inbound {
		return
	}
	c.ErrorCode, c.ErrorDetail = cause.code()
	if e.AccountSuspected && cause == CallRejected {
		c.ErrorDetail, c.Disposition = accountRefused, ProviderAuthFailed.reached(c.Status)
	}
	if unknown {
		c.ErrorCode, c.ErrorDetail = CodeDialStateUnknown, "It is not known how far this call got, so it was ended, is not charged and will not be dialled again."
	}
}

// notBefore keeps the instants of a call in order, whatever clock they were read from.
func (c *Call) notBefore(at time.Time) time.Time {
	for _, earlier := range []*time.Time{c.DialedAt, c.RingingAt, c.AnsweredAt} {
		if earlier != nil && at.Before(*earlier) {
			at = *earlier
		}
	}
	return at
}
