// Package callstate defines the states of a call, its times, and the event that each change
// publishes. The state of a call only moves forward, and a call ends once. The package reads no
// clock and stores nothing. Callers pass what happened, and when.
package callstate

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/agent"
)

// Status is the state of a call: one of the states in docs/reference/api/calls.md#call-states, or
// one of the internal states fenced and void.
type Status string

// Fenced means that the fence of the call is committed, and that a message may have been sent to
// the carrier. Void means that no message was sent, or that a trunk refused the call before the
// phone rang. The API returns neither state.
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

// Direction is inbound or outbound.
type Direction string

const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Ending is the reason for which the dialer hangs up a call. It is empty if the dialer does not
// hang up the call.
type Ending string

// EndingRecovery means that the process that owned the call is dead. EndingUnknown means that the
// carrier did not report whether it accepted the call. EndingWatchdog means that no end event
// arrived in time. EndingLost means that no end event arrived in time after EndingRecovery or
// EndingUnknown, or that a failover of the database lost the call. EndingRequested means that a
// client or an operator requested the hang-up. EndingBusy means that an inbound call is refused,
// because of a limit of the workspace or because the credit is not sufficient.
const (
	EndingNone      Ending = ""
	EndingRecovery  Ending = "recovery"
	EndingLongest   Ending = "max_duration"
	EndingRing      Ending = "ring_timeout"
	EndingAgent     Ending = "agent_error"
	EndingWatchdog  Ending = "watchdog"
	EndingUnknown   Ending = "dial_unknown"
	EndingLost      Ending = "lost"
	EndingRequested Ending = "requested"
	EndingBusy      Ending = "busy"
)

// Anonymous is stored as the caller's number if the caller withholds the number.
const Anonymous = "anonymous"

// Call is one call, with the values of its row.
type Call struct {
	CallID        uuid.UUID  `db:"call_id"`
	CallRequestID *uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID  `db:"workspace_id"`
	Direction     Direction  `db:"direction"`
	From          string     `db:"from_number"`
	To            string     `db:"to_e164"`
	AgentID       uuid.UUID  `db:"agent_id"`
	ContactID     *uuid.UUID `db:"contact_id"`
	// TimeZone is the time zone of the person, as contacts-compliance returned it. It is empty if
	// contacts-compliance returned no time zone.
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
	// Outcome is the result of the conversation. Analysing is true from the end of a conversation
	// until the analysis is published.
	Outcome   string `db:"outcome"`
	Analysing bool   `db:"analysing"`
	// RecordingKey is the object key of the recording. It is empty if there is no recording, or if the
	// recording was deleted.
	RecordingKey string `db:"recording_key"`
	// Disclosure states which part of the disclosure was played to the person. It is nil before the
	// end of the call, and if it is not known which part was played.
	Disclosure  *agent.DisclosureRecord `db:"disclosure"`
	Traceparent string                  `db:"traceparent"`
	Version     int64                   `db:"version"`
	// Erased is true if the data of the person must be erased. The transcript is then deleted after
	// the end of the call, and is not published.
	Erased bool `db:"erased"`
	// Priced is true for an inbound call that has a price: billing-wallet can have a hold for it.
	// Admitted is true for an inbound call that counts as one of the workspace's concurrent calls.
	Priced   bool `db:"priced"`
	Admitted bool `db:"admitted"`

	facts  []Fact
	optOut *OptOut
}

// Zone returns the time zone with the given name. If there is no such zone, it returns the first
// time zone of the person's number. If the number has no time zone, it returns UTC.
func Zone(name string, person phone.Number) *time.Location {
	if name != "" {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone
		}
	}
	if zones := person.Zones(); len(zones) > 0 {
		return zones[0]
	}
	return time.UTC
}

// Facts returns the events of all changes since the row was read, oldest first.
func (c *Call) Facts() []Fact { return c.facts }

// Final reports whether the dialer ends the call in the database without waiting for the carrier's
// response to the hangup.
func (e Ending) Final() bool { return e == EndingWatchdog || e == EndingLost }

// Unheard returns the end of a call that does not exist at the carrier. Such a call is not charged.
func (e Ending) Unheard(at time.Time) End {
	switch e {
	case EndingRecovery, EndingUnknown, EndingLost:
		return End{At: at, Cause: Unspecified, ByUs: true}
	case EndingBusy:
		return End{At: at, Cause: UserBusy, ByUs: true}
	}
	return End{At: at, Cause: RecoveryOnTimerExpire}
}

// Live reports whether the call has not ended.
func (c *Call) Live() bool { return c.EndedAt == nil }

// Initiate records that the carrier accepted the call. dialedAt must be the time directly before
// the first message to the carrier. Later calls of Initiate have no effect.
func (c *Call) Initiate(dialedAt time.Time) bool {
	if c.Status != Fenced {
		return false
	}
	c.Status, c.DialedAt = Initiated, &dialedAt
	c.publish(dialing, dialedAt)
	return true
}

// Arrive publishes that an inbound call rings. Later calls of Arrive have no effect.
func (c *Call) Arrive() bool {
	if c.Direction != Inbound || c.Version > 0 || c.RingingAt == nil {
		return false
	}
	c.publish(ringing, *c.RingingAt)
	return true
}

// Refuse marks an inbound call to be refused as busy. It has no effect if the call was answered,
// has ended, or is already being hung up.
func (c *Call) Refuse() {
	if c.Direction == Inbound && c.Live() && c.AnsweredAt == nil && c.Ending == EndingNone {
		c.Ending, c.Admitted = EndingBusy, false
	}
}

// Ring records that the callee's phone rings. It has no effect if the phone already rang or the
// call was answered.
func (c *Call) Ring(at time.Time) bool {
	if c.Status != Initiated {
		return false
	}
	at = c.clampTime(at)
	c.Status, c.RingingAt = Ringing, &at
	c.publish(ringing, at)
	return true
}

// Answer records that a person or a machine answered.
func (c *Call) Answer(at time.Time) bool {
	if c.Status != Initiated && c.Status != Ringing {
		return false
	}
	c.Arrive()
	at = c.clampTime(at)
	c.Status, c.AnsweredAt = InProgress, &at
	c.publish(answered, at)
	return true
}

// Doubt records that the carrier did not report whether it accepted the call. The caller of Doubt
// must hang up the call.
func (c *Call) Doubt() {
	if c.Live() && (c.Ending == EndingNone || c.Ending == EndingRequested) {
		c.Ending = EndingUnknown
	}
}

// Hear passes an utterance of the person to the scripted agent. It reports whether the utterance is
// an opt-out, even if the call has ended. If the scripted agent fails, Hear sets Ending, so that
// the call is hung up.
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

// Note adds a turn of the agent or the person to the transcript.
func (c *Call) Note(turn agent.Turn) {
	if c.Status == InProgress {
		c.Turns = append(c.Turns, turn)
	}
}

// End describes how a call ended.
type End struct {
	At    time.Time
	Cause Cause
	// ByUs is true if the dialer hung up. The call's field Ending then determines the status.
	ByUs bool
	// AccountSuspected is true if a trunk refused the call and the operator's account can be the
	// reason. ErrorDetail then names the account, not the callee.
	AccountSuspected bool
	// Zone is the person's time zone. The scripted agent interprets times of day in this zone.
	Zone *time.Location
	// Judged is the agent's judgement of the conversation. If it is nil, the scripted agent judges the
	// transcript. If it is not nil, Analyse publishes the analysis later.
	Judged *agent.Judgement
	// Disclosure states which part of the disclosure was played to the person. It is nil if this is
	// not known.
	Disclosure *agent.DisclosureRecord
}

// End ends the call. It returns false if the call has already ended. If the trunk or the agent
// failed after the answer, the call keeps its outcome and its transcript, but gets no summary.
func (c *Call) End(e End) bool {
	if !c.Live() {
		return false
	}
	c.Arrive()
	at := c.clampTime(e.At)
	c.EndedAt, c.Disclosure = &at, e.Disclosure
	c.settleEnd(e)
	if c.Status != Completed && (c.AnsweredAt == nil || e.Judged == nil) {
		c.publish(ended, at)
		c.dropTranscript()
		return true
	}
	if c.Status != Completed {
		c.Disposition = e.Judged.Reached
		c.setOutcome(e.Judged.Outcome, at)
		c.publish(ended, at)
		c.dropTranscript()
		c.publishAnalysis(*e.Judged, at)
		return true
	}
	if e.Judged != nil {
		c.Disposition, c.Analysing = e.Judged.Reached, true
		c.setOutcome(e.Judged.Outcome, at)
		c.publish(ended, at)
		c.dropTranscript()
		return true
	}
	judged := agent.Resume(c.Turns).Judge(at, e.Zone)
	c.Disposition = judged.Reached
	c.setOutcome(judged.Outcome, at)
	c.publish(ended, at)
	if c.Erased {
		judged.Summary = nil
	}
	c.dropTranscript()
	c.publishAnalysis(judged, at)
	return true
}

// Analyse publishes the analysis of a conversation. summary is nil if there is no summary. Analyse
// returns false if no analysis is due, so an analysis is published once.
func (c *Call) Analyse(summary *agent.Summary, at time.Time) bool {
	if !c.Analysing {
		return false
	}
	c.Analysing = false
	judged := agent.Judgement{Outcome: c.Outcome, Reached: c.Disposition}
	if summary != nil && !c.Erased {
		judged.Outcome, judged.Summary = summary.Outcome, summary
	}
	c.publishAnalysis(judged, c.clampTime(at))
	return true
}

// Record sets the object key of an ended call's recording and publishes it. An empty key means that
// the recording was deleted. Record has no effect if the call already has this key. It also has no
// effect if the person was erased and the key is not empty.
func (c *Call) Record(key string, at time.Time) bool {
	if c.Live() || c.RecordingKey == key || c.Erased && key != "" {
		return false
	}
	c.RecordingKey = key
	c.publish(recorded, c.clampTime(at))
	return true
}

// Erase marks the person of an inbound call as erased. Each call of Erase publishes an event. While
// the call is live, the transcript is kept, because the agent needs it.
func (c *Call) Erase(erasure uuid.UUID, at time.Time) {
	c.Erased = true
	if !c.Live() {
		c.dropTranscript()
	}
	if c.Direction == Inbound && c.Version > 0 {
		c.publishErased(erasure, at)
	}
}

func (c *Call) dropTranscript() {
	if c.Erased {
		c.Turns = nil
	}
}

// causeOf returns the cause of the end. If unknown is true, it is not known whether the phone rang
// or the call was answered.
func (c *Call) causeOf(e End) (cause Cause, unknown bool) {
	switch {
	// unknown is true if the dialer hung up without a stored reason, because the owner of the call
	// died.
	case c.Ending == EndingNone:
		return e.Cause, e.ByUs && e.Cause == Unspecified
	case c.Ending == EndingAgent: // even if the person hung up after the agent had failed
		return AgentError, false
	case !e.ByUs: // the other side ended the call before the dialer hung up
		return e.Cause, false
	}
	answered := c.AnsweredAt != nil
	switch c.Ending {
	case EndingRecovery, EndingUnknown, EndingLost:
		return Unspecified, true
	case EndingLongest:
		return MaxDuration, false
	case EndingWatchdog:
		return RecoveryOnTimerExpire, false
	case EndingRing:
		if answered { // the callee answered just as the ring limit ended
			return OriginatorCancel, false
		}
		return NoAnswer, false
	case EndingBusy:
		if !answered {
			return UserBusy, false
		}
	case EndingRequested:
		if answered {
			return NormalClearing, false
		}
		return OriginatorCancel, false
	}
	return e.Cause, false
}

func (c *Call) settleEnd(e End) {
	cause, unknown := c.causeOf(e)
	c.HangupCause, c.Status = cause, cause.status(c.AnsweredAt != nil)
	c.Disposition = cause.disposition(c.Status)
	if c.Status != Failed && c.Status != Canceled || c.Direction == Inbound {
		return
	}
	c.ErrorCode, c.ErrorDetail = cause.errorCode()
	if e.AccountSuspected && cause == CallRejected {
		c.ErrorDetail, c.Disposition = accountRefused, ProviderAuthFailed.disposition(c.Status)
	}
	if unknown {
		c.ErrorCode, c.ErrorDetail = CodeDialStateUnknown, "It is not known how far this call got, so it was ended, is "+
			"not charged and will not be dialled again."
	}
}

// clampTime returns the latest of eventTime and the times of the call's previous steps. The clocks
// of two processes can differ.
func (c *Call) clampTime(eventTime time.Time) time.Time {
	for _, earlier := range []*time.Time{c.DialedAt, c.RingingAt, c.AnsweredAt} {
		if earlier != nil && eventTime.Before(*earlier) {
			eventTime = *earlier
		}
	}
	return eventTime
}
