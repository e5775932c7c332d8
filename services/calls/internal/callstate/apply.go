package callstate

import (
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

// Apply applies the call of a dial event and returns whether anything changed. A version that was
// applied before, an earlier status and a second end change nothing. Statuses may be skipped. The
// first end is applied with any version: a dialer whose database lost its last commits counts again
// from a lower version.
func (c *Call) Apply(reported Call) bool {
	ends := reported.Status.Terminal() && !c.Status.Terminal()
	if !ends && (reported.Version <= c.Version || reported.Status.rank() < c.Status.rank()) {
		return false
	}
	if c.Status.Terminal() && reported.Status != c.Status {
		return false // the first end is final
	}
	c.Status, c.Version = reported.Status, reported.Version
	c.From, c.To, c.AgentID, c.ContactID = reported.From, reported.To, reported.AgentID, reported.ContactID
	c.HangupCause, c.Disposition = reported.HangupCause, reported.Disposition
	c.QueuedAt, c.DialedAt, c.RingingAt = reported.QueuedAt, reported.DialedAt, reported.RingingAt
	c.AnsweredAt, c.EndedAt = reported.AnsweredAt, reported.EndedAt
	c.RingSeconds, c.TalkSeconds, c.TotalSeconds = reported.RingSeconds, reported.TalkSeconds, reported.TotalSeconds
	c.BillableSeconds, c.Disclosure = reported.BillableSeconds, reported.Disclosure
	if reported.Outcome != nil && !c.Analysed {
		c.Outcome = reported.Outcome
	}
	if c.ErasedAt == nil {
		c.RecordingKey = reported.RecordingKey
	}
	return true
}

// Analyse adds the analysis, once. For an erased person it adds the outcome alone. late is true if
// call.completed was already published without the analysis. No other event waits for it.
func (c *Call) Analyse(a Analysis) (changed, late bool) {
	if c.Analysed {
		return false, false
	}
	c.Analysed = true
	if outcome := text(a.Outcome); outcome != nil {
		c.Outcome = outcome
	}
	if c.ErasedAt == nil {
		c.Summary, c.Transcript = a.Summary, a.Transcript
	}
	return true, c.Closed && c.Status == Completed
}

// Erase deletes the transcript, the summary and the key of the recording. It returns false if the
// call was erased before.
func (c *Call) Erase(at time.Time) (changed bool) {
	if c.ErasedAt != nil {
		return false
	}
	c.ErasedAt, c.Summary, c.Transcript, c.RecordingKey = &at, nil, nil, nil
	return true
}

// Settle stores the result of the hold, once: the captured amount, or nil for a release. late is
// true if call.completed was already published without the amount.
func (c *Call) Settle(amount *money.Micro) (changed, late bool) {
	if c.ChargeSettled {
		return false, false
	}
	c.ChargeSettled, c.Credits = true, amount
	return true, c.Closed && amount != nil
}

// charged reports whether the call waits for no charge: the charge is known, or there will be none,
// because the call is inbound or has no billable seconds.
func (c *Call) charged() bool {
	return c.ChargeSettled || c.CallRequestID == nil || c.BillableSeconds == 0
}

// Announce returns the public event that follows from the change of status since before, and counts
// it in Sequence. before is "" for a new call. It returns "" if there is no event.
//
// call.completed waits for charge and analysis. Both waits start when the end was received. While
// one of them is missing and not overdue, Announce returns "" and sets CompletesAt to the time at
// which to call it again.
func (c *Call) Announce(before Status, now time.Time, waits Waits) openapi.EventType {
	if c.Closed {
		return ""
	}
	if c.Status == Completed {
		if c.EndLearnedAt == nil {
			c.EndLearnedAt = &now
		}
		if due := c.completesAt(waits); now.Before(due) {
			c.CompletesAt = &due
			return ""
		}
		return c.emit(openapi.EventTypeCallCompleted)
	}
	if c.Status == before {
		return ""
	}
	switch c.Status {
	case Ringing:
		return c.emit(openapi.EventTypeCallRinging)
	case InProgress:
		return c.emit(openapi.EventTypeCallAnswered)
	case NoAnswer:
		return c.emit(openapi.EventTypeCallNoAnswer)
	case Busy:
		return c.emit(openapi.EventTypeCallBusy)
	case Failed, Canceled:
		return c.emit(openapi.EventTypeCallFailed)
	default: // initiated has no event
		return ""
	}
}

func (c *Call) emit(event openapi.EventType) openapi.EventType {
	c.Sequence++
	c.Closed, c.CompletesAt = c.Status.Terminal(), nil
	return event
}

func (c *Call) completesAt(waits Waits) time.Time {
	due := *c.EndLearnedAt
	if !c.charged() {
		due = later(due, c.EndLearnedAt.Add(waits.Charge))
	}
	if !c.Analysed {
		due = later(due, c.EndLearnedAt.Add(waits.Analysis))
	}
	return due
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
