package callstate

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/agent"
)

// OptOut is a person's request not to be called again. A call has at most one opt-out.
type OptOut struct {
	CallID      uuid.UUID `db:"call_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	PhoneE164   string    `db:"phone_e164"`
	// Evidence contains the person's words. It is empty if they are not known.
	Evidence string    `db:"evidence"`
	HeardAt  time.Time `db:"heard_at"`
}

const maxEvidenceBytes = 1000

// Evidence returns the text in the form in which it is stored: valid UTF-8 without NUL, at most
// maxEvidenceBytes long.
func Evidence(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
	if len(text) > maxEvidenceBytes {
		text = strings.ToValidUTF8(text[:maxEvidenceBytes], "")
	}
	return text
}

// Person returns the number of the person: the caller of an inbound call, or the callee of an
// outbound call. It returns Anonymous if the caller withholds the number.
func (c *Call) Person() phone.Number {
	if c.Direction == Inbound {
		return phone.Number(c.From)
	}
	return phone.Number(c.To)
}

// RecordOptOut records that the person asked not to be called again. The opt-out is stored together
// with the call. Only the first opt-out of a call counts. A caller who withholds the number cannot
// opt out.
func (c *Call) RecordOptOut(evidence string, at time.Time) {
	number, known := phone.Parse(string(c.Person()))
	if !known || c.optOut != nil {
		return
	}
	c.optOut = &OptOut{
		CallID: c.CallID, WorkspaceID: c.WorkspaceID, PhoneE164: string(number), Evidence: Evidence(evidence), HeardAt: at,
	}
}

// OptOut returns the opt-out that was recorded after the row was read, or nil.
func (c *Call) OptOut() *OptOut { return c.optOut }

// setOutcome is the only method that sets the outcome. It also records an opt-out if the outcome
// is opted_out.
func (c *Call) setOutcome(outcome string, at time.Time) {
	c.Outcome = outcome
	if outcome == agent.OutcomeOptedOut {
		c.RecordOptOut(c.lastWords(at))
	}
}

// endedOutcome returns the outcome for the event `ended`. It is empty if only the summary, which
// follows later, can determine the outcome.
func (c *Call) endedOutcome() string {
	if c.Status == Completed && c.Outcome == agent.OutcomeUnknown {
		return ""
	}
	return c.Outcome
}

// lastWords returns the last words of the person, and their time. If the transcript contains no
// words of the person, it returns "" and the given time.
func (c *Call) lastWords(at time.Time) (string, time.Time) {
	if c.Erased {
		return "", at
	}
	for i := len(c.Turns) - 1; i >= 0; i-- {
		if turn := c.Turns[i]; turn.Role == agent.RolePerson {
			return turn.Text, turn.At
		}
	}
	return "", at
}
