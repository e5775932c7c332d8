package countryrules

import (
	"fmt"
	"strings"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Purpose is the purpose of a workspace's calls.
type Purpose string

// These are the purposes, from the strictest to the least strict.
const (
	Marketing Purpose = "marketing"
	Service   Purpose = "service"
	Emergency Purpose = "emergency"
)

func purposes() []Purpose { return []Purpose{Marketing, Service, Emergency} }

// Consent is the consent that a rule requires before a call.
type Consent string

// These are the levels of consent. The gates treat Express and Written in the same way.
const (
	NoConsent Consent = "none"
	Express   Consent = "express"
	Written   Consent = "written"
)

// Cap limits the calls to one number in the preceding hours.
type Cap struct {
	Calls int `json:"calls"`
	Hours int `json:"hours"`
}

// Rule is one rule of a pack. The rules are stored with each decision, so that the decision can be
// evaluated again after the pack has changed.
type Rule struct {
	Pack    string `json:"pack"`
	Version int    `json:"version"`
	// Region is a state or province ("US-FL"), or "" for all regions.
	Region   string    `json:"region,omitempty"`
	Purpose  Purpose   `json:"purpose"`
	Week     Week      `json:"hours"`
	Holidays []Holiday `json:"holidays,omitempty"`
	// HolidayHours are the open hours on a holiday. If the list is empty, no call is allowed on a
	// holiday.
	HolidayHours []window.Range `json:"holiday_hours,omitempty"`
	Caps         []Cap          `json:"caps,omitempty"`
	Consent      Consent        `json:"consent"`
	// From is the first local day on which the rule is in force. Until is the first later day on
	// which it is no longer in force. A zero date means no limit.
	From  window.Date `json:"from,omitzero"`
	Until window.Date `json:"until,omitzero"`
	// CoversUntil is a copy of Pack.CoversUntil.
	CoversUntil window.Date `json:"covers_until"`
	Citation    string      `json:"citation"`

	purposes []Purpose
}

// Week contains the open hours of each weekday, Sunday first.
type Week [7][]window.Range

func dayNames() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// MarshalJSON returns an object with the open hours of each day. The list of a closed day is empty.
func (w Week) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	for i := range w {
		day := (i + 1) % 7 // Monday first
		b.WriteString(map[bool]string{true: `{"`, false: `,"`}[i == 0] + dayNames()[day] + `":[`)
		for j, r := range w[day] {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + r.String() + `"`)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// On returns the open hours of a local day. If the rule is not in force on that day, the
// whole day is open. If the day is after CoversUntil, it is closed.
func (r Rule) On(day window.Date) []window.Range {
	switch {
	case r.Expired(day):
		return nil
	case !r.InForce(day):
		return []window.Range{{Start: 0, End: window.Midnight}}
	case r.Holiday(day) != "":
		return r.HolidayHours
	default:
		return r.Week[day.Weekday()]
	}
}

// InForce reports whether the rule is in force on a local day.
func (r Rule) InForce(day window.Date) bool {
	return !day.Before(r.From) && (r.Until.IsZero() || day.Before(r.Until))
}

// Expired reports whether the day is after CoversUntil.
func (r Rule) Expired(day window.Date) bool { return r.CoversUntil.Before(day) }

// Holiday returns the name of the holiday on a local day, or "".
func (r Rule) Holiday(day window.Date) string {
	for _, h := range r.Holidays {
		if h.Is(day) {
			return h.Name
		}
	}
	return ""
}

// Always reports whether the rule is open at every hour. Such a rule needs no time zone.
func (r Rule) Always() bool {
	for day := range r.Week {
		if len(r.Week[day]) != 1 || r.Week[day][0] != (window.Range{Start: 0, End: window.Midnight}) {
			return false
		}
	}
	return len(r.Holidays) == 0
}

// Where returns the region, or the name of the pack if the rule has no region, for a
// message.
func (r Rule) Where() string {
	if r.Region != "" {
		return r.Region
	}
	return r.Pack
}

// Source returns the pack, its version and the citation.
func (r Rule) Source() string {
	return fmt.Sprintf("pack %s version %d, %s: %s", r.Pack, r.Version, r.Where(), r.Citation)
}

// Describe returns the hours of a local day for a message.
func (r Rule) Describe(day window.Date) string {
	ranges := r.On(day)
	if len(ranges) == 0 {
		return "closed on " + day.Weekday().String()
	}
	texts := make([]string, 0, len(ranges))
	for _, one := range ranges {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ", ")
}

// WidestCap returns the largest number of calls of all caps, and the longest period of all caps. It
// returns 0 if there is no cap.
func WidestCap(rules []Rule) (calls int, period time.Duration) {
	for _, r := range rules {
		for _, c := range r.Caps {
			calls, period = max(calls, c.Calls), max(period, time.Duration(c.Hours)*time.Hour)
		}
	}
	return calls, period
}

// FreeAt returns the first time, at or after start, at which the cap allows one more call. dials
// can be in any order.
func (c Cap) FreeAt(dials []time.Time, start time.Time) time.Time {
	span := time.Duration(c.Hours) * time.Hour
	for {
		within, oldest := 0, time.Time{}
		for _, dial := range dials {
			if dial.Add(span).After(start) {
				if within++; oldest.IsZero() || dial.Before(oldest) {
					oldest = dial
				}
			}
		}
		if within < c.Calls {
			return start
		}
		start = oldest.Add(span)
	}
}
