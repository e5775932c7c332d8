// Package gate owns the answer to "may this number be called, and when": pure functions over facts, the same
// at POST and at dial time. Facts and verdict are stored as they are, so that a decision can be made again and
// understood years later. It asks nobody and has no clock.
package gate

import (
	"fmt"
	"strings"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/contact"
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
	At      time.Time       `json:"at"`
	DND     contact.DND     `json:"dnd_status"`
	Consent contact.Consent `json:"consent_status"`
	Policy  policy.Policy   `json:"policy"`
	// NumberZones are the zones the number may ring in; read only when the policy asks for the callee's.
	NumberZones []window.Zone `json:"number_zones"`
	// ContactZone is the contact's own, if any.
	ContactZone *window.Zone `json:"contact_zone"`
	// Waits is the request's schedule_if_outside_hours.
	Waits bool `json:"schedule_if_outside_hours"`
}

// Result is what becomes of the call.
type Result string

// The results: placed at the time asked for, at the next opening, or not at all.
const (
	Open   Result = "open"
	Later  Result = "later"
	Closed Result = "closed"
)

// Rule names what decided.
type Rule string

// The rules, in the order they are asked.
const (
	RuleNone      Rule = ""
	RuleReference Rule = "reference" // the request names the wrong contact
	RuleDND       Rule = "dnd"
	RuleConsent   Rule = "consent"
	RuleZone      Rule = "zone_unknown"
	RuleWindow    Rule = "window"
	RuleNoOpening Rule = "no_opening"
)

// The specification's codes of a refusal (part 7).
const (
	CodeDND          = "recipient_dnd"
	CodeConsent      = "consent_withdrawn"
	CodeOutsideHours = "outside_calling_hours"
)

// Verdict is the decision.
type Verdict struct {
	Result Result
	Rule   Rule
	// Code and Message tell a Closed one to the customer.
	Code    string
	Message string
	// At is when to call: as asked when Open, the next opening when Later.
	At time.Time
}

// guard is how long the window must stay open after a dial begins (contract.md §3).
const guard = time.Minute

// Judge asks every gate in the contract's order; the first that refuses decides. A state that it does not
// know is refused.
func Judge(f Facts) Verdict {
	if f.DND != contact.Clean && f.DND != contact.DNDUnknown {
		return closed(RuleDND, CodeDND, "This number is opted out of calls. Remove the opt-out only if the person asks for it.")
	}
	if f.Consent != contact.Consented && f.Consent != contact.ConsentUnknown {
		return closed(RuleConsent, CodeConsent, "Consent to call this number was withdrawn. It can be called again once consent is on record.")
	}
	return f.hours()
}

func (f Facts) hours() Verdict {
	hours := f.Policy.Window
	if hours.Always() {
		return Verdict{Result: Open, At: f.At}
	}
	zones := f.zones()
	if len(zones) == 0 {
		return closed(RuleZone, CodeOutsideHours,
			"The time zone of this number is not known (rule: time zone). Set metadata.time_zone of its contact to an IANA name such as America/Denver.")
	}
	shutAt := f.At
	if hours.Open(zones, f.At) {
		if f.Stage == PreCheck || hours.Open(zones, f.At.Add(guard)) {
			return Verdict{Result: Open, At: f.At}
		}
		shutAt = f.At.Add(guard) // about to close: the opening sought is the one after
	}
	next, ok := hours.Next(zones, shutAt)
	switch {
	case !ok:
		return closed(RuleNoOpening, CodeOutsideHours, fmt.Sprintf(
			"The calling window (%s) does not open within 30 days in every time zone this number may be in (%s) (rule: calling window).", describe(hours), list(zones)))
	case f.Waits:
		return Verdict{Result: Later, Rule: RuleWindow, At: next}
	default:
		return closed(RuleWindow, CodeOutsideHours, fmt.Sprintf(
			"Outside the calling window (%s) in %s (rule: calling window). It next opens at %s; schedule_if_outside_hours true queues for it.",
			describe(hours), list(zones), next.UTC().Format(time.RFC3339)))
	}
}

// zones are those in which the window must be open: the policy's own, or every one the callee may be in.
func (f Facts) zones() []window.Zone {
	if f.Policy.Timezone != policy.Recipient {
		zone, err := window.LoadZone(f.Policy.Timezone)
		if err != nil {
			return nil
		}
		return []window.Zone{zone}
	}
	zones := f.NumberZones
	if f.ContactZone == nil {
		return zones
	}
	for _, z := range zones {
		if z.String() == f.ContactZone.String() {
			return zones
		}
	}
	return append(zones[:len(zones):len(zones)], *f.ContactZone)
}

func closed(rule Rule, code, message string) Verdict {
	return Verdict{Result: Closed, Rule: rule, Code: code, Message: message}
}

func describe(w window.Window) string {
	text := w.Start.String() + "–" + w.End.String()
	if w.Days == window.EveryDay {
		return text
	}
	names, _ := w.Days.MarshalJSON()
	return text + " on " + strings.NewReplacer("[", "", "]", "", `"`, "", ",", ", ").Replace(string(names))
}

// list names at most three zones: some numbers have a dozen.
func list(zones []window.Zone) string {
	names := make([]string, 0, 3)
	for i, z := range zones {
		if i == 3 {
			return fmt.Sprintf("%s and %d more time zones", strings.Join(names, ", "), len(zones)-3)
		}
		names = append(names, z.String())
	}
	return strings.Join(names, ", ")
}
