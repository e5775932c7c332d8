package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// RecipientTimezone is the value of timezone for a window in the recipient's local time.
const RecipientTimezone = "recipient"

// Policy is the calling policy of a workspace.
type Policy struct {
	// Window is the workspace's own window. If the policy has packs and sets no window, the window
	// is always open.
	Window window.Window `json:"window"`
	// Timezone is the time zone of Window: "recipient" or an IANA name. The hours of packs are
	// always in the recipient's local time.
	Timezone string `json:"timezone"`
	// Packs are the names of the packs: "us" for marketing, or "us:service" for another purpose.
	Packs []string `json:"packs,omitempty"`
	// Override contains the reason for which Window replaces the hours of the packs. It has no
	// effect without packs.
	Override *Override `json:"override,omitempty"`
}

const (
	maxOverrideReason = 500 // characters
	maxPacks          = 20
)

// Override states why a workspace calls outside the hours of its packs, and which operator
// permitted it.
type Override struct {
	Reason   string `json:"reason"`
	Operator string `json:"operator,omitempty"`
}

// DefaultPolicy returns the policy of a workspace that has not set a policy.
func DefaultPolicy() Policy { return Policy{Window: window.Default(), Timezone: RecipientTimezone} }

// WithOperator returns the policy with the operator's name in its override.
func (p Policy) WithOperator(operator string) Policy {
	if p.Override != nil {
		p.Override = &Override{Reason: p.Override.Reason, Operator: operator}
	}
	return p
}

// Choices returns the packs with their purposes.
func (p Policy) Choices() []countryrules.Choice {
	choices := make([]countryrules.Choice, 0, len(p.Packs))
	for _, text := range p.Packs {
		choices = append(choices, countryrules.ParseChoice(text))
	}
	return choices
}

// PackHours reports whether the hours of the packs apply.
func (p Policy) PackHours() bool { return len(p.Packs) > 0 && p.Override == nil }

// NeedsZones reports whether the recipient's time zones are needed.
func (p Policy) NeedsZones() bool {
	return p.PackHours() || p.Timezone == RecipientTimezone && !p.Window.Always()
}

// policyBody is the JSON form of a policy. Optional fields are pointers, so that the error can name
// a missing field.
type policyBody struct {
	Window *struct {
		Start *string   `json:"start"`
		End   *string   `json:"end"`
		Days  *[]string `json:"days"`
	} `json:"window"`
	Timezone *string   `json:"timezone"`
	Packs    []string  `json:"packs"`
	Override *Override `json:"override"`
}

// ParsePolicy parses a calling_policy. For null or an empty value it returns the default policy. If
// the policy is invalid, it returns a validation_error that names the field.
func ParsePolicy(raw json.RawMessage, packs countryrules.Library) (Policy, error) {
	p := DefaultPolicy()
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return p, nil
	}
	if raw[0] != '{' {
		return p, apierr.Validation("calling_policy", "must be an object or null.")
	}
	var b policyBody
	if err := json.Unmarshal(raw, &b); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return p, apierr.Validation("calling_policy."+wrong.Field, "must not be a %.20s.", wrong.Value)
		}
		return p, apierr.Validation("calling_policy", "cannot be read as JSON.")
	}
	if b.Override != nil && utf8.RuneCountInString(b.Override.Reason) > maxOverrideReason {
		return p, apierr.Validation("calling_policy.override.reason", "may be at most %d characters long.",
			maxOverrideReason)
	}
	if b.Override != nil && b.Override.Operator != "" {
		return p, apierr.Validation("calling_policy.override.operator", "must be left out: it is whoever asks.")
	}
	p.Override = b.Override
	if b.Timezone != nil {
		if _, err := window.LoadZone(*b.Timezone); err != nil && *b.Timezone != RecipientTimezone {
			return p, apierr.Validation("calling_policy.timezone",
				`must be "recipient" or an IANA time zone such as Europe/Berlin.`)
		}
		p.Timezone = *b.Timezone
	}
	if err := b.window(&p.Window); err != nil {
		return p, err
	}
	return b.validatePacks(p, packs)
}

// validatePacks validates the packs. A window that is wider than the hours of a pack needs an
// override with a reason (docs/reference/api/compliance.md#policy-packs).
func (b policyBody) validatePacks(p Policy, packs countryrules.Library) (Policy, error) {
	if len(b.Packs) == 0 {
		return p, nil
	}
	if len(b.Packs) > maxPacks {
		return p, apierr.Validation("calling_policy.packs", "may list at most %d packs.", maxPacks)
	}
	for i, text := range b.Packs {
		if err := packs.Check(countryrules.ParseChoice(text)); err != nil {
			return p, apierr.Validation(fmt.Sprintf("calling_policy.packs[%d]", i), "%s.", err)
		}
		if slices.Contains(p.Packs, text) {
			return p, apierr.Validation(fmt.Sprintf("calling_policy.packs[%d]", i), "is there twice.")
		}
		p.Packs = append(p.Packs, text)
	}
	switch {
	case b.Override != nil && strings.TrimSpace(b.Override.Reason) == "":
		return p, apierr.Validation("calling_policy.override.reason",
			"is required: why this workspace calls at other hours than its packs allow.")
	case b.Window == nil && b.Override != nil:
		return p, apierr.Validation("calling_policy.window",
			"is required with an override: the hours to call at in the place of the packs'.")
	case b.Window == nil:
		p.Window = window.Window{Start: 0, End: window.Midnight, Days: window.EveryDay}
		return p, nil
	case b.Override != nil, p.Timezone != RecipientTimezone:
		// hours in different time zones cannot be compared, so both the window and the policy packs apply
		return p, nil
	}
	for _, c := range p.Choices() {
		for _, r := range packs.Base(c) {
			if day, looser := dayOutside(p.Window, r); looser {
				return p, apierr.Validation("calling_policy.window",
					"reaches beyond the hours of pack %s on %s (%s). Narrow it, leave it out to call at the packs' hours, or say why in override.reason.",
					c.Pack, time.Weekday(day), formatRanges(r.Week[day]))
			}
		}
	}
	return p, nil
}

// dayOutside returns a weekday on which the window is open and the rule is closed.
func dayOutside(w window.Window, r countryrules.Rule) (day int, looser bool) {
	for day := range r.Week {
		if !w.Days.Has(time.Weekday(day)) {
			continue
		}
		if !slices.ContainsFunc(r.Week[day], func(open window.Range) bool {
			return open.Start <= w.Start &&
				w.End <= open.End
		}) {
			return day, true
		}
	}
	return 0, false
}

func formatRanges(open []window.Range) string {
	if len(open) == 0 {
		return "closed"
	}
	texts := make([]string, 0, len(open))
	for _, r := range open {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

func (b policyBody) window(w *window.Window) error {
	if b.Window == nil {
		return nil
	}
	if err := parseMinute(b.Window.Start, "start", &w.Start); err != nil {
		return err
	}
	if err := parseMinute(b.Window.End, "end", &w.End); err != nil {
		return err
	}
	if w.Start >= w.End {
		return apierr.Validation("calling_policy.window.start", "must be before window.end (24:00 ends a day).")
	}
	if b.Window.Days == nil {
		return nil
	}
	days, err := window.ParseDays(*b.Window.Days)
	if err != nil {
		return apierr.Validation("calling_policy.window.days", "%s.", err)
	}
	w.Days = days
	return nil
}

func parseMinute(text *string, name string, into *window.Minute) error {
	field := "calling_policy.window." + name
	if text == nil {
		return apierr.Validation(field, "is required: a time as HH:MM.")
	}
	if err := into.UnmarshalText([]byte(*text)); err != nil {
		return apierr.Validation(field, "%s.", err)
	}
	return nil
}
