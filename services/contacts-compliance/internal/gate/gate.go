// Package gate decides whether and when a number may be called. It consists of pure functions
// without a clock or I/O, used for both the pre-check and the dial-time check. Facts and outcome
// are stored, so that a decision can be explained and evaluated again years later.
//
// The package also parses a workspace's calling policy: its calling window, the time zone of the
// window, and its policy packs.
package gate

import (
	"fmt"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Stage is the check that evaluates the gates.
type Stage string

// These are the stages. The stage is stored as the kind of the decision.
const (
	PreCheck Stage = "precheck"
	Dial     Stage = "dial"
)

// Facts are the inputs of a decision.
type Facts struct {
	Stage Stage `json:"stage"`
	// At is the time of the call: scheduled_for at POST /v1/calls, the current time at the
	// dial-time check.
	At      time.Time        `json:"at"`
	DND     contacts.DND     `json:"dnd_status"`
	Consent contacts.Consent `json:"consent_status"`
	Policy  Policy           `json:"policy"`
	// NumberZones are the possible time zones of the number. The list is empty if the policy does
	// not need the recipient's zone.
	NumberZones []window.Zone `json:"number_zones"`
	// ContactZone is the time zone of the contact, or nil.
	ContactZone *window.Zone `json:"contact_zone"`
	// DeferIfClosed is the request's schedule_if_outside_hours.
	DeferIfClosed bool `json:"schedule_if_outside_hours"`
	// Place is the country and the regions of the number. It is nil if the policy has no policy packs.
	Place *phone.Place `json:"number_place,omitempty"`
	// Rules are the rules of the policy packs that applied to the number at the time of the decision.
	Rules []countryrules.Rule `json:"rules,omitempty"`
	// Named is the fault of the request's contact_id, or "" if the contact_id has no fault.
	Named Named `json:"named_contact,omitempty"`
	// Dials are the recent times at which the dial-time check allowed other requests to dial this
	// number. Dials goes back as far as the frequency caps need.
	Dials []time.Time `json:"recent_dials,omitempty"`
	// Destinations are the number prefixes that the workspace may call. If the list is empty, every
	// number is allowed. Evaluate ignores this field, because RefusedDestination checks the
	// destination.
	Destinations []string `json:"destinations,omitempty"`
}

type Named string

// These are the faults of a contact_id: the contact does not exist, or the contact has another
// number.
const (
	NamedUnknown Named = "unknown"
	NamedOther   Named = "other_number"
)

type Result string

// These are the results: the call may be placed at the wanted time, at a later time, or not at all.
const (
	Open     Result = "open"
	Deferred Result = "later"
	Denied   Result = "closed"
)

// Rule is the name of the gate that decided.
type Rule string

// These are the rules, in the order of evaluation.
const (
	RuleNone          Rule = ""
	RuleKind          Rule = "destination" // calls to this kind of number or to this prefix are refused
	RuleReference     Rule = "reference"   // the contact_id of the request is wrong
	RuleDND           Rule = "dnd"
	RuleConsent       Rule = "consent"
	RuleConsentNeeded Rule = "consent_needed" // a policy pack requires consent, and none is recorded
	RuleZone          Rule = "zone_unknown"
	RuleWindow        Rule = "window"       // the workspace's calling window
	RulePack          Rule = "pack_hours"   // the calling hours of a policy pack
	RuleHoliday       Rule = "holiday"      // a holiday in a policy pack
	RuleExpired       Rule = "pack_expired" // the day is after the policy pack's covers_until
	RuleFrequency     Rule = "frequency_cap"
	RuleNoOpening     Rule = "no_opening"
)

// These are the error codes of a refusal (docs/reference/errors.md).
const (
	CodeContact      = "invalid_contact"
	CodeMismatch     = "contact_phone_mismatch"
	CodeDND          = "recipient_dnd"
	CodeConsent      = "consent_withdrawn"
	CodeOutsideHours = "outside_calling_hours"
)

// Outcome is the result of the gates.
type Outcome struct {
	Result Result
	Rule   Rule
	// Code and Message explain a denied call to the customer. They are empty otherwise.
	Code    string
	Message string
	// At is the time at which the call may be placed: the wanted time if Open, the next opening if
	// Deferred.
	At time.Time
	// Source is the citation of the policy pack's rule that decided. It is empty if the decision was
	// not made by a rule of a policy pack.
	Source string
}

// dialMargin is the time for which the hours must still be open after the dial
// (docs/reference/api/compliance.md#evaluation-time).
const dialMargin = time.Minute

// Evaluate evaluates the gates one after the other. The first gate that refuses the call decides.
// If a state is unknown to this build, its gate refuses the call.
func Evaluate(f Facts) Outcome {
	switch f.Named {
	case "":
	case NamedOther:
		return denied(RuleReference, CodeMismatch,
			"contact_id names a contact with another number than to. Leave it out to find the contact by number.")
	default:
		return denied(RuleReference, CodeContact,
			"contact_id names no contact of this workspace. Leave it out to find the contact by number.")
	}
	if f.DND != contacts.Clean && f.DND != contacts.DNDUnknown {
		return denied(RuleDND, CodeDND,
			"This number is opted out of calls. Remove the opt-out only if the person asks for it.")
	}
	if f.Consent != contacts.Consented && f.Consent != contacts.ConsentUnknown {
		return denied(RuleConsent, CodeConsent,
			"Consent to call this number was withdrawn. It can be called again once consent is on record.")
	}
	for _, r := range f.Rules {
		if r.Consent != countryrules.NoConsent && mayBeInForce(r, f.At) && f.Consent != contacts.Consented {
			v := denied(RuleConsentNeeded, CodeConsent, fmt.Sprintf(
				"Calls to %s need %s consent on record, and there is none for this number (rule: consent, %s). Record the person's consent first.",
				r.Where(), r.Consent, r.Source()))
			v.Source = r.Source()
			return v
		}
	}
	return f.evaluateHours()
}

// codeDestination is the error code of a decision that refuses the destination. POST /v1/calls
// responds with validation_error instead.
const codeDestination = "destination_not_allowed"

func denied(rule Rule, code, message string) Outcome {
	return Outcome{Result: Denied, Rule: rule, Code: code, Message: message}
}
