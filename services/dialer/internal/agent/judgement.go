package agent

// Outcomes of conversations (docs/reference/api/calls.md#disposition-and-outcome). An agent can
// define its own list.
const (
	OutcomeInterested        = "interested"
	OutcomeNotInterested     = "not_interested"
	OutcomeCallbackRequested = "callback_requested"
	OutcomeAppointmentBooked = "appointment_booked"
	OutcomeQualified         = "qualified"
	OutcomeNotQualified      = "not_qualified"
	OutcomeTransferred       = "transferred"
	OutcomeInformationGiven  = "information_given"
	OutcomeOptedOut          = "opted_out"
	OutcomeWrongNumber       = "wrong_number"
	OutcomeNoConversation    = "no_conversation"
	OutcomeUnknown           = "unknown"
)

// Outcomes returns the permitted outcomes of an agent that does not define its own list.
func Outcomes() []string {
	return []string{
		OutcomeInterested, OutcomeNotInterested, OutcomeCallbackRequested, OutcomeAppointmentBooked, OutcomeQualified, OutcomeNotQualified,
		OutcomeTransferred, OutcomeInformationGiven, OutcomeOptedOut, OutcomeWrongNumber, OutcomeNoConversation, OutcomeUnknown,
	}
}

// Dispositions of an answered call.
const (
	ReachedHuman     = "human"
	ReachedVoicemail = "voicemail"
	ReachedScreening = "call_screening"
	ReachedIVR       = "ivr"
	ReachedFax       = "fax"
	ReachedAbandoned = "abandoned"
	ReachedError     = "error"
)

// TimeLayout is the layout of Summary.ScheduledFor: RFC 3339 with exactly three decimals and a UTC
// offset.
const TimeLayout = "2006-01-02T15:04:05.000-07:00"

// Summary is the summary of a conversation in the API. JSON fields without a value are omitted,
// never null.
type Summary struct {
	Outcome       string   `json:"outcome"`
	Confidence    float64  `json:"confidence"`
	NextAction    string   `json:"next_action"`
	BusinessType  *string  `json:"business_type,omitempty"`
	CustomerName  *string  `json:"customer_name,omitempty"`
	KeyInterests  []string `json:"key_interests"`
	KeyObjections []string `json:"key_objections"`
	// ScheduledFor is the agreed time of the next contact, in the format TimeLayout.
	ScheduledFor *string `json:"scheduled_for,omitempty"`
}

// Judgement is the result of an answered call: its outcome, its disposition (Reached) and its
// summary. If there was no conversation, Summary is nil.
type Judgement struct {
	Outcome string
	Reached string
	Summary *Summary
}
