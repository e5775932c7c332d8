// Package gate owns the answer to "may this number be called, and when": pure functions over facts, the same
// at POST and at dial time. Facts and verdict are stored as they are, so that a decision can be made again and
// understood years later. It asks nobody and has no clock.
package gate

import (
	"fmt"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/policy"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Stage is when the gates are asked.
type Stage string

// The stages, and the kind of the decision that is stored.
const (
	PreCheck Stage = "precheck"
	Dial     Stage = "dial"
)

// Facts are all that a decision rests on.
type Facts struct {
	Stage Stage `json:"stage"`
	// At is the instant of the call: scheduled_for at POST, now at dial time.
	At      time.Time        `json:"at"`
	DND     contacts.DND     `json:"dnd_status"`
	Consent contacts.Consent `json:"consent_status"`
	Policy  policy.Policy    `json:"policy"`
	// NumberZones are the zones the number may ring in; read only when the policy asks for the callee's.
	NumberZones []window.Zone `json:"number_zones"`
	// ContactZone is the contact's own, if any.
	ContactZone *window.Zone `json:"contact_zone"`
	// Waits is the request's schedule_if_outside_hours.
	DeferIfClosed bool `json:"schedule_if_outside_hours"`
	// Place is where the number was given out; nil: the policy has no packs.
	Place *phone.Place `json:"number_place,omitempty"`
	// Rules are those that the policy's packs have for it, as they read at the time.
	Rules []countryrules.Rule `json:"rules,omitempty"`
	// Named is what the request's contact_id leads to; "": no contact was named, or that of the number.
	Named Named `json:"named_contact,omitempty"`
	// Dials are when other requests for the number were let through to be dialled: as many and as far back as the rules' caps look.
	Dials []time.Time `json:"recent_dials,omitempty"`
}

// Named is what is wrong with the contact that a request names.
type Named string

// A contact that the workspace has not, or one that has another number.
const (
	NamedNobody Named = "unknown"
	NamedOther  Named = "other_number"
)

// Result is what becomes of the call.
type Result string

// The results: placed at the time asked for, at the next opening, or not at all.
const (
	Open     Result = "open"
	Deferred Result = "later"
	Denied   Result = "closed"
)

// Rule names what decided.
type Rule string

// The rules, in the order they are asked.
const (
	RuleNone      Rule = ""
	RuleReference Rule = "reference"   // the request names the wrong contact
	RuleKind      Rule = "destination" // numbers of its kind are never dialled
	RuleDND       Rule = "dnd"
	RuleConsent   Rule = "consent"
	RuleNeeded    Rule = "consent_needed" // a pack wants consent on record, and none is
	RuleZone      Rule = "zone_unknown"
	RuleWindow    Rule = "window"       // the workspace's own
	RulePack      Rule = "pack_hours"   // those of a pack
	RuleHoliday   Rule = "holiday"      // closed or shortened by one
	RuleExpired   Rule = "pack_expired" // nobody has looked at the law of that day
	RuleFrequency Rule = "frequency_cap"
	RuleNoOpening Rule = "no_opening"
)

// The specification's codes of a refusal (part 7).
const (
	CodeContact      = "invalid_contact"
	CodeMismatch     = "contact_phone_mismatch"
	CodeDND          = "recipient_dnd"
	CodeConsent      = "consent_withdrawn"
	CodeOutsideHours = "outside_calling_hours"
)

// Outcome is the decision.
type Outcome struct {
	Result Result
	Rule   Rule
	// Code and Message tell a Closed one to the customer.
	Code    string
	Message string
	// At is when to call: as asked when Open, the next opening when Later.
	At time.Time
	// Source is what the rule rests on; "" when it is the workspace's own.
	Source string
}

// guard is how long the window must stay open after a dial begins (contract.md §3).
const guard = time.Minute

// Judge asks every gate in the contract's order; the first that refuses decides. A state that it does not
// know is refused.
func Judge(f Facts) Outcome {
	switch f.Named {
	case "":
	case NamedOther:
		return closed(RuleReference, CodeMismatch, "contact_id names a contact with another number than to. Leave it out to find the contact by number.")
	default:
		return closed(RuleReference, CodeContact, "contact_id names no contact of this workspace. Leave it out to find the contact by number.")
	}
	if f.DND != contacts.Clean && f.DND != contacts.DNDUnknown {
		return closed(RuleDND, CodeDND, "This number is opted out of calls. Remove the opt-out only if the person asks for it.")
	}
	if f.Consent != contacts.Consented && f.Consent != contacts.ConsentUnknown {
		return closed(RuleConsent, CodeConsent, "Consent to call this number was withdrawn. It can be called again once consent is on record.")
	}
	for _, r := range f.Rules {
		if r.Consent != countryrules.NoConsent && binds(r, f.At) && f.Consent != contacts.Consented {
			v := closed(RuleNeeded, CodeConsent, fmt.Sprintf(
				"Calls to %s need %s consent on record, and there is none for this number (rule: consent, %s). Record the person's consent first.",
				r.Where(), r.Consent, r.Source()))
			v.Source = r.Source()
			return v
		}
	}
	return f.hours()
}

// destination is the code by which the dialer blocks what calls refuses as a validation_error (contract.md §2); here a preview tells it.
const destination = "destination_not_allowed"

// Forbidden is the verdict on a number of a kind that is never dialled.
func Forbidden(kind string) Outcome {
	return closed(RuleKind, destination, "Numbers of this kind ("+kind+") are never dialled. Use another number.")
}

func closed(rule Rule, code, message string) Outcome {
	return Outcome{Result: Denied, Rule: rule, Code: code, Message: message}
}
