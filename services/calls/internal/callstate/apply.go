package callstate

import (
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

// Apply updates the call from the state that a dial event reports. It returns true if the call
// changed. A report with an old version, or with an earlier status, changes nothing.
//
// The first report that the call has ended is final. It is applied even if its version is old,
// because a dialer whose database lost its last commits continues with a lower version.
func (c *Call) Apply(reported Call) bool {
	ends := reported.Status.Terminal() && !c.Status.Terminal()
	if !ends && (reported.Version <= c.Version || reported.Status.rank() < c.Status.rank()) {
		return false
	}
	if c.Status.Terminal() && reported.Status != c.Status {
		return false // only the first report of the end is applied
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

// Analyse adds the first analysis to the call and ignores later ones. If the person was erased,
// Analyse adds only the outcome. late is true if call.completed was already published without the
// analysis.
func (c *Call) Analyse(a Analysis) (changed, late bool) {
	if c.Analysed {
		return false, false
	}
	c.Analysed, late = true, c.Closed && c.Status == Completed
	if outcome := nonEmptyText(a.Outcome); outcome != nil {
		c.Outcome, c.AnalysisDue = outcome, late
	}
	if c.ErasedAt == nil {
		c.Summary, c.Transcript = a.Summary, a.Transcript
		c.AnalysisDue = c.AnalysisDue || late && a.Summary != nil
	}
	return true, late
}

// Erase deletes the transcript, the summary and the key of the recording. It returns false if the
// call was already erased.
func (c *Call) Erase(at time.Time) (changed bool) {
	if c.ErasedAt != nil {
		return false
	}
	c.ErasedAt, c.Summary, c.Transcript, c.RecordingKey = &at, nil, nil, nil
	return true
}

// Settle stores the result of the call's wallet hold. Only the first result is stored. amount is
// the captured amount, or nil if the hold was released. late is true if call.completed was already
// published without the amount.
func (c *Call) Settle(amount *money.Micro) (changed, late bool) {
	if c.ChargeSettled {
		return false, false
	}
	c.ChargeSettled, c.Credits = true, amount
	return true, c.Closed && amount != nil
}

// chargeKnown returns true if the charge is known, or if the call has no charge because it has no
// billable seconds. An inbound call has billable seconds only if it has a price.
func (c *Call) chargeKnown() bool { return c.ChargeSettled || c.BillableSeconds == 0 }

// Announce returns the public event for the change from oldStatus, or "" if there is none. For a
// new call, oldStatus is "".
//
// Announce sets CompletesAt while call.completed waits for the charge or the analysis. The caller
// must call Announce again at that time.
func (c *Call) Announce(oldStatus Status, now time.Time, waits Waits) openapi.EventType {
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
	if c.Status == oldStatus {
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
	default: // the status initiated has no public event
		return ""
	}
}

// NextOptIn returns the next opt-in event of the call, or "" if there is none. After Announce, the
// caller must call NextOptIn until it returns "".
//
// The opt-in events follow the terminal event. So the other events of a call always have the
// sequence numbers 1, 2 and 3.
func (c *Call) NextOptIn() openapi.EventType {
	switch {
	case c.Closed && c.AnalysisDue:
		c.AnalysisDue = false
		c.Sequence++
		return openapi.EventTypeCallAnalyzed
	case c.Closed && c.RecordingKey != nil && !c.RecordingAnnounced:
		c.RecordingAnnounced = true
		c.Sequence++
		return openapi.EventTypeCallRecordingReady
	default:
		return ""
	}
}

func (c *Call) emit(event openapi.EventType) openapi.EventType {
	c.Sequence++
	c.Closed, c.CompletesAt = c.Status.Terminal(), nil
	return event
}
