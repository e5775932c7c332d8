package countryrules

import (
	"fmt"
	"strings"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Purpose is what a workspace's calls are for.
type Purpose string

// The purposes, the strictest first.
const (
	Marketing Purpose = "marketing"
	Service   Purpose = "service"
	Emergency Purpose = "emergency"
)

func purposes() []Purpose { return []Purpose{Marketing, Service, Emergency} }

// Consent is what must be on record before a call.
type Consent string

// The levels. The ledger tells consented from not; whether it was given in writing is for its evidence to show.
const (
	NoConsent Consent = "none"
	Express   Consent = "express"
	Written   Consent = "written"
)

// Cap is how many calls one number may get within so many hours before it.
type Cap struct {
	Calls int `json:"calls"`
	Hours int `json:"hours"`
}

// Rule is one row of a pack. It is stored with every decision that it was part of, so that the decision can be made again whatever became
// of the pack.
type Rule struct {
	Pack    string `json:"pack"`
	Version int    `json:"version"`
	// Region is "" for all of the pack's countries, or one state or province ("US-FL").
	Region   string    `json:"region,omitempty"`
	Purpose  Purpose   `json:"purpose"`
	Week     Week      `json:"hours"`
	Holidays []Holiday `json:"holidays,omitempty"`
	// HolidayHours are those of a holiday; none: closed.
	HolidayHours []window.Range `json:"holiday_hours,omitempty"`
	Caps         []Cap          `json:"caps,omitempty"`
	Consent      Consent        `json:"consent"`
	// From is the first local day on which the rule holds, Until the first on which it does so no more; zero: always.
	From  window.Date `json:"from,omitzero"`
	Until window.Date `json:"until,omitzero"`
	// CoversUntil is the last local day that its pack was looked through for; after it nothing is open.
	CoversUntil window.Date `json:"covers_until"`
	Citation    string      `json:"citation"`

	purposes []Purpose
}

// Week has the ranges of each weekday.
type Week [7][]window.Range

func dayNames() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// MarshalJSON writes an object of the days; a closed one has an empty list.
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

// On tells the ranges of a local day: those of its weekday or of a holiday, all of the day while the rule does not hold, none once the pack
// was looked through no further.
func (r Rule) On(day window.Date) []window.Range {
	switch {
	case r.Expired(day):
		return nil
	case !r.Holds(day):
		return []window.Range{{Start: 0, End: window.Midnight}}
	case r.Holiday(day) != "":
		return r.HolidayHours
	default:
		return r.Week[day.Weekday()]
	}
}

// Holds says whether the rule is in force on a local day.
func (r Rule) Holds(day window.Date) bool {
	return !day.Before(r.From) && (r.Until.IsZero() || day.Before(r.Until))
}

// Expired says whether nobody has looked at the law of that day.
func (r Rule) Expired(day window.Date) bool { return r.CoversUntil.Before(day) }

// Holiday names the holiday of a local day; "": none.
func (r Rule) Holiday(day window.Date) string {
	for _, h := range r.Holidays {
		if h.Is(day) {
			return h.Name
		}
	}
	return ""
}

// Always says whether the rule leaves no hour out, so that nobody's zone needs to be known.
func (r Rule) Always() bool {
	for day := range r.Week {
		if len(r.Week[day]) != 1 || r.Week[day][0] != (window.Range{Start: 0, End: window.Midnight}) {
			return false
		}
	}
	return len(r.Holidays) == 0
}

// Where names whom the rule is about.
func (r Rule) Where() string {
	if r.Region != "" {
		return r.Region
	}
	return r.Pack
}

// Source says what the rule rests on.
func (r Rule) Source() string {
	return fmt.Sprintf("pack %s version %d, %s: %s", r.Pack, r.Version, r.Where(), r.Citation)
}

// Describe tells the hours of a local day.
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

// Widest is how many earlier calls, and how far back, the caps of some rules look; 0 when there is none.
func Widest(rules []Rule) (calls int, back time.Duration) {
	for _, r := range rules {
		for _, c := range r.Caps {
			calls, back = max(calls, c.Calls), max(back, time.Duration(c.Hours)*time.Hour)
		}
	}
	return calls, back
}

// Free is the earliest instant from at on at which the cap lets one more call through, given when earlier ones were, in any order.
func (c Cap) Free(dials []time.Time, at time.Time) time.Time {
	span := time.Duration(c.Hours) * time.Hour
	for {
		within, oldest := 0, time.Time{}
		for _, dial := range dials {
			if dial.Add(span).After(at) {
				if within++; oldest.IsZero() || dial.Before(oldest) {
					oldest = dial
				}
			}
		}
		if within < c.Calls {
			return at
		}
		at = oldest.Add(span)
	}
}
