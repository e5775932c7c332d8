package window

import (
	"fmt"
	"strings"
	"time"
)

// Range is open from Start up to, but not including, End. Its text is "09:00-20:00".
type Range struct{ Start, End Minute }

func (r Range) String() string { return r.Start.String() + "-" + r.End.String() }

func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses "HH:MM-HH:MM". Start must be before End.
func (r *Range) UnmarshalText(text []byte) error {
	start, end, found := strings.Cut(string(text), "-")
	if !found || r.Start.UnmarshalText([]byte(start)) != nil || r.End.UnmarshalText([]byte(end)) != nil ||
		r.Start >= r.End {
		return fmt.Errorf("%.20q is no range such as 09:00-20:00", text)
	}
	return nil
}

// Hours returns the open ranges of a local day, sorted and without overlaps. An empty list means
// that the day is closed. Window and the rules of policy packs implement Hours.
type Hours interface{ On(day Date) []Range }

// On returns the window's range if the day is one of its days.
func (w Window) On(day Date) []Range {
	if !w.Days.Has(day.Weekday()) {
		return nil
	}
	return []Range{{w.Start, w.End}}
}

// Clock is a set of hours in the local time of some zones. It is open if the hours are open in
// every zone. A Clock without a zone is never open.
type Clock struct {
	Hours Hours
	Zones []Zone
}

// Open reports whether the hours are open at a time in every zone.
func (c Clock) Open(at time.Time) bool {
	for _, z := range c.Zones {
		if !openIn(c.Hours, z, at) {
			return false
		}
	}
	return len(c.Zones) > 0
}

// ClosedIn returns the first zone in which the hours are closed. ok is false if the hours are open
// in every zone.
func (c Clock) ClosedIn(at time.Time) (z Zone, ok bool) {
	for _, z := range c.Zones {
		if !openIn(c.Hours, z, at) {
			return z, true
		}
	}
	return Zone{}, false
}

func openIn(hours Hours, z Zone, at time.Time) bool {
	local := at.In(z.loc)
	minute := Minute(local.Hour()*60 + local.Minute())
	for _, r := range hours.On(DateOf(local)) {
		if r.Start <= minute && minute < r.End {
			return true
		}
	}
	return false
}

// In returns a time in the zone.
func (z Zone) In(at time.Time) time.Time { return at.In(z.loc) }
