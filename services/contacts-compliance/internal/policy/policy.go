// Package policy owns a workspace's calling policy: its window, whose clock the window is read by, and the packs it is held to. It
// checks what an operator asks for; it judges no call.
package policy

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

// Recipient is the timezone of a policy whose window is read by the callee's own clock.
const Recipient = "recipient"

// Policy is what a workspace's calls are held to.
type Policy struct {
	// Window is the workspace's own; with packs and no window of its own it leaves no hour out.
	Window window.Window `json:"window"`
	// Timezone is "recipient" or an IANA name; it says by which clock Window is read. Packs are always read by the callee's.
	Timezone string `json:"timezone"`
	// Packs are as written: "us", or "us:service" for another purpose than marketing.
	Packs []string `json:"packs,omitempty"`
	// Override lets Window stand in the place of the packs' hours; without packs it is kept as given and means nothing.
	Override *Override `json:"override,omitempty"`
}

const (
	maxReason = 500 // characters (contract.md §6)
	maxPacks  = 20
)

// Override is why a workspace calls at other hours than the law as we know it, and who said so.
type Override struct {
	Reason   string `json:"reason"`
	Operator string `json:"operator,omitempty"`
}

// Default is the policy of a workspace that set none.
func Default() Policy { return Policy{Window: window.Default(), Timezone: Recipient} }

// By names the operator who answers for a loosened window.
func (p Policy) By(operator string) Policy {
	if p.Override != nil {
		p.Override = &Override{Reason: p.Override.Reason, Operator: operator}
	}
	return p
}

// Choices are the packs with their purposes.
func (p Policy) Choices() []countryrules.Choice {
	choices := make([]countryrules.Choice, 0, len(p.Packs))
	for _, text := range p.Packs {
		choices = append(choices, countryrules.ParseChoice(text))
	}
	return choices
}

// PackHours says whether the hours of the packs bind.
func (p Policy) PackHours() bool { return len(p.Packs) > 0 && p.Override == nil }

// AsksForZones says whether the callee's own time zones decide.
func (p Policy) AsksForZones() bool {
	return p.PackHours() || p.Timezone == Recipient && !p.Window.Always()
}

// body is a policy as an operator writes it, everything optional so that faults can be named.
type body struct {
	Window *struct {
		Start *string   `json:"start"`
		End   *string   `json:"end"`
		Days  *[]string `json:"days"`
	} `json:"window"`
	Timezone *string   `json:"timezone"`
	Packs    []string  `json:"packs"`
	Override *Override `json:"override"`
}

// Parse reads a calling_policy; null or nothing is the default. Faults are 422 validation_error naming the field.
func Parse(raw json.RawMessage, packs countryrules.Library) (Policy, error) {
	p := Default()
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return p, nil
	}
	if raw[0] != '{' {
		return p, apierr.Validation("calling_policy", "must be an object or null.")
	}
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return p, apierr.Validation("calling_policy."+wrong.Field, "must not be a %.20s.", wrong.Value)
		}
		return p, apierr.Validation("calling_policy", "cannot be read as JSON.")
	}
	if b.Override != nil && utf8.RuneCountInString(b.Override.Reason) > maxReason {
		return p, apierr.Validation("calling_policy.override.reason", "may be at most %d characters long.", maxReason)
	}
	if b.Override != nil && b.Override.Operator != "" {
		return p, apierr.Validation("calling_policy.override.operator", "must be left out: it is whoever asks.")
	}
	p.Override = b.Override
	if b.Timezone != nil {
		if _, err := window.LoadZone(*b.Timezone); err != nil && *b.Timezone != Recipient {
			return p, apierr.Validation("calling_policy.timezone", `must be "recipient" or an IANA time zone such as Europe/Berlin.`)
		}
		p.Timezone = *b.Timezone
	}
	if err := b.window(&p.Window); err != nil {
		return p, err
	}
	return b.packs(p, packs)
}

// packs checks the chosen packs, and that a window which reaches beyond their hours says why (contract.md §3).
func (b body) packs(p Policy, packs countryrules.Library) (Policy, error) {
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
		return p, apierr.Validation("calling_policy.override.reason", "is required: why this workspace calls at other hours than its packs allow.")
	case b.Window == nil && b.Override != nil:
		return p, apierr.Validation("calling_policy.window", "is required with an override: the hours to call at in the place of the packs'.")
	case b.Window == nil:
		p.Window = window.Window{Start: 0, End: window.Midnight, Days: window.EveryDay}
		return p, nil
	case b.Override != nil, p.Timezone != Recipient:
		return p, nil // the hours of another clock cannot be compared; both bind
	}
	for _, c := range p.Choices() {
		for _, r := range packs.Base(c) {
			if day, looser := beyond(p.Window, r); looser {
				return p, apierr.Validation("calling_policy.window",
					"reaches beyond the hours of pack %s on %s (%s). Narrow it, leave it out to call at the packs' hours, or say why in override.reason.",
					c.Pack, time.Weekday(day), ranges(r.Week[day]))
			}
		}
	}
	return p, nil
}

// beyond finds a weekday on which the window is open and the rule is not.
func beyond(w window.Window, r countryrules.Rule) (day int, looser bool) {
	for day := range r.Week {
		if !w.Days.Has(time.Weekday(day)) {
			continue
		}
		if !slices.ContainsFunc(r.Week[day], func(open window.Range) bool { return open.Start <= w.Start && w.End <= open.End }) {
			return day, true
		}
	}
	return 0, false
}

func ranges(open []window.Range) string {
	if len(open) == 0 {
		return "closed"
	}
	texts := make([]string, 0, len(open))
	for _, r := range open {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

func (b body) window(w *window.Window) error {
	if b.Window == nil {
		return nil
	}
	if err := minute(b.Window.Start, "start", &w.Start); err != nil {
		return err
	}
	if err := minute(b.Window.End, "end", &w.End); err != nil {
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

func minute(text *string, name string, into *window.Minute) error {
	field := "calling_policy.window." + name
	if text == nil {
		return apierr.Validation(field, "is required: a time as HH:MM.")
	}
	if err := into.UnmarshalText([]byte(*text)); err != nil {
		return apierr.Validation(field, "%s.", err)
	}
	return nil
}
