// Package policy owns a workspace's calling policy: its window and whose clock the window is read by. It
// checks what an operator asks for; it judges no call.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Recipient is the timezone of a policy whose window is read by the callee's own clock.
const Recipient = "recipient"

// Policy is what a workspace's calls are held to.
type Policy struct {
	Window window.Window `json:"window"`
	// Timezone is "recipient" or an IANA name.
	Timezone string `json:"timezone"`
	// Override is kept as given; it means something once packs can be loosened.
	Override *Override `json:"override,omitempty"`
}

const maxReason = 500 // characters (contract.md §6)

// Override is an operator's reason for a window looser than the law as we know it.
type Override struct {
	Reason string `json:"reason"`
}

// Default is the policy of a workspace that set none.
func Default() Policy { return Policy{Window: window.Default(), Timezone: Recipient} }

// AsksForZones says whether the callee's own time zones decide.
func (p Policy) AsksForZones() bool { return p.Timezone == Recipient && !p.Window.Always() }

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
func Parse(raw json.RawMessage) (Policy, error) {
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
	if len(b.Packs) > 0 {
		return p, apierr.Validation("calling_policy.packs", "are not known to this version; leave packs out and set a window.")
	}
	if b.Override != nil && utf8.RuneCountInString(b.Override.Reason) > maxReason {
		return p, apierr.Validation("calling_policy.override.reason", "may be at most %d characters long.", maxReason)
	}
	p.Override = b.Override
	if b.Timezone != nil {
		if _, err := window.LoadZone(*b.Timezone); err != nil && *b.Timezone != Recipient {
			return p, apierr.Validation("calling_policy.timezone", `must be "recipient" or an IANA time zone such as Europe/Berlin.`)
		}
		p.Timezone = *b.Timezone
	}
	return p, b.window(&p.Window)
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
