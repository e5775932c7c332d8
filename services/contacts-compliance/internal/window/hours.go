package window

import (
	"fmt"
	"strings"
	"time"
)

// Range is open from Start up to, not including, End; its text is "09:00-20:00".
type Range struct{ Start, End Minute }

func (r Range) String() string { return r.Start.String() + "-" + r.End.String() }

// MarshalText writes "09:00-20:00".
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "HH:MM-HH:MM", the first before the second.
func (r *Range) UnmarshalText(text []byte) error {
	start, end, found := strings.Cut(string(text), "-")
	if !found || r.Start.UnmarshalText([]byte(start)) != nil || r.End.UnmarshalText([]byte(end)) != nil || r.Start >= r.End {
		return fmt.Errorf("%.20q is no range such as 09:00-20:00", text)
	}
	return nil
}

// Hours say when one day of a local calendar is open: ranges in order that do not overlap; none: all day closed. A workspace's own
// window and a rule of a pack are such.
type Hours interface{ On(day Date) []Range }

// On is the window's one range, on its days.
func (w Window) On(day Date) []Range {
	if !w.Days.Has(day.Weekday()) {
		return nil
	}
	return []Range{{w.Start, w.End}}
}

// Clock is hours as the wall clocks of some zones read them: open only where every one of them is. Without a zone it is never open.
type Clock struct {
	Hours Hours
	Zones []Zone
}

// Open says whether the hours are open at one instant in every zone.
func (c Clock) Open(at time.Time) bool {
	for _, z := range c.Zones {
		if !openIn(c.Hours, z, at) {
			return false
		}
	}
	return len(c.Zones) > 0
}

// Shut is the first zone in which it is closed; ok is false when there is none.
func (c Clock) Shut(at time.Time) (z Zone, ok bool) {
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

// In shows an instant by the zone's clock.
func (z Zone) In(at time.Time) time.Time { return at.In(z.loc) }
