package agent

// Outcomes (contract.md §2). An agent may define its own list.
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

// Outcomes are those of an agent that defines none of its own.
func Outcomes() []string {
	return []string{
		OutcomeInterested, OutcomeNotInterested, OutcomeCallbackRequested, OutcomeAppointmentBooked, OutcomeQualified, OutcomeNotQualified,
		OutcomeTransferred, OutcomeInformationGiven, OutcomeOptedOut, OutcomeWrongNumber, OutcomeNoConversation, OutcomeUnknown,
	}
}

// Who was reached, as far as the conversation tells.
const (
	ReachedHuman     = "human"
	ReachedVoicemail = "voicemail"
	ReachedScreening = "call_screening"
	ReachedIVR       = "ivr"
	ReachedFax       = "fax"
	ReachedAbandoned = "abandoned"
	ReachedError     = "error"
)

// Summary is the summary object of the specification, part 2.2a. None of its keys is null: what was not said is left out.
type Summary struct {
	Outcome       string   `json:"outcome"`
	Confidence    float64  `json:"confidence"`
	NextAction    string   `json:"next_action"`
	BusinessType  *string  `json:"business_type,omitempty"`
	CustomerName  *string  `json:"customer_name,omitempty"`
	KeyInterests  []string `json:"key_interests"`
	KeyObjections []string `json:"key_objections"`
	// ScheduledFor is a date-time with its UTC offset.
	ScheduledFor *string `json:"scheduled_for,omitempty"`
}

// Judgement is what the agent makes of an ended call that was answered. Summary is nil when nobody talked.
type Judgement struct {
	Outcome string
	Reached string
	Summary *Summary
}
