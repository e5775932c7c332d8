package countryrules

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Holiday is a list of days, or one day that repeats every year. A repeating day is defined in one
// of three ways: a fixed day of a month, the first given weekday on or after a day of a month, or a
// number of days before or after Western Easter Sunday.
type Holiday struct {
	Name  string     `json:"name"`
	Month time.Month `json:"month,omitempty"`
	Day   int        `json:"day,omitempty"`
	// If Weekday and OnOrAfter are set, the holiday is the first such weekday on or after that day of
	// the month. For example, the fourth Thursday of a month is the first Thursday on or after the
	// 22nd.
	Weekday   string `json:"weekday,omitempty"`
	OnOrAfter int    `json:"on_or_after,omitempty"`
	Easter    *int   `json:"easter,omitempty"`
	// Observed maps a weekday to a number of days, for example {"sat":-1,"sun":1}. If the holiday is
	// on that weekday, it is also observed the given number of days later, or earlier if the number is
	// negative.
	Observed map[string]int `json:"observed,omitempty"`
	Dates    []window.Date  `json:"dates,omitempty"`
}

// Is reports whether a day is the holiday or the day on which it is observed.
func (h Holiday) Is(day window.Date) bool {
	if slices.Contains(h.Dates, day) {
		return true
	}
	if away := (int(day.Month) - int(h.Month) + 12) % 12; h.Month != 0 && away > 1 && away < 11 {
		// fast path: the holiday is in h.Month or in the next month, and is observed at most three
		// days earlier or later
		return false
	}
	for year := day.Year - 1; year <= day.Year+1; year++ { // a New Year's Day on a Saturday is observed in the year before
		proper, ok := h.dateIn(year)
		if !ok {
			return false
		}
		if proper == day || proper.AddDays(h.Observed[dayNames()[proper.Weekday()]]) == day {
			return true
		}
	}
	return false
}

// dateIn returns the date of the holiday in one year. ok is false if the holiday is a list of days.
func (h Holiday) dateIn(year int) (window.Date, bool) {
	switch {
	case h.Easter != nil:
		return easterSunday(year).AddDays(*h.Easter), true
	case h.Weekday != "":
		from := window.Date{Year: year, Month: h.Month, Day: h.OnOrAfter}
		wanted := slices.Index(dayNames(), h.Weekday)
		return from.AddDays((wanted - int(from.Weekday()) + 7) % 7), true
	case h.Month != 0:
		return window.Date{Year: year, Month: h.Month, Day: h.Day}, true
	default:
		return window.Date{}, false
	}
}

// easterSunday returns Easter Sunday by the Gregorian computus (Meeus, Astronomical Algorithms,
// chapter 8).
func easterSunday(year int) window.Date {
	a, b, c := year%19, year/100, year%100
	d, e := b/4, b%4
	g := (8*b + 13) / 25
	h := (19*a + b - d - g + 15) % 30
	i, k := c/4, c%4
	l := (32 + 2*e + 2*i - h - k) % 7
	m := (a + 11*h + 22*l) / 451
	n := h + l - 7*m + 114
	return window.Date{Year: year, Month: time.Month(n / 31), Day: n%31 + 1}
}

func (h Holiday) fault() error {
	kinds := 0
	for _, is := range []bool{h.Easter != nil, h.Weekday != "", h.Day != 0, len(h.Dates) > 0} {
		if is {
			kinds++
		}
	}
	lastOf := func(month time.Month) int { return time.Date(2024, month+1, 0, 0, 0, 0, 0, time.UTC).Day() }
	switch {
	case h.Name == "":
		return fmt.Errorf("has no name")
	case kinds != 1:
		return fmt.Errorf(`%q: needs one of "month" with "day", "month" with "weekday" and "on_or_after", "easter", "dates"`,
			h.Name)
	case (h.Weekday != "" || h.Day != 0) && (h.Month < 1 || h.Month > 12):
		return fmt.Errorf("%q: month must be 1 to 12", h.Name)
	case h.Day != 0 && (h.Day < 1 || h.Day > lastOf(h.Month)):
		return fmt.Errorf("%q: month %d has no day %d", h.Name, h.Month, h.Day)
	case h.Weekday != "" && (slices.Index(dayNames(), h.Weekday) < 0 || h.OnOrAfter < 1 || h.OnOrAfter > lastOf(h.Month)):
		return fmt.Errorf("%q: weekday must be one of mon to sun and on_or_after a day of the month", h.Name)
	case h.Weekday == "" && h.OnOrAfter != 0, (h.Easter != nil || len(h.Dates) > 0) && h.Month != 0:
		return fmt.Errorf("%q: has two kinds of date; keep one", h.Name)
	}
	for day, by := range h.Observed {
		if slices.Index(dayNames(), day) < 0 || by == 0 || by < -3 || by > 3 {
			return fmt.Errorf(`%q: observed must move a weekday by one to three days, as {"sun":1}`, h.Name)
		}
	}
	return nil
}

func (w *Week) UnmarshalJSON(raw []byte) error {
	var days map[string][]window.Range
	if err := json.Unmarshal(raw, &days); err != nil {
		return err
	}
	*w = Week{}
	for name, ranges := range days {
		day := slices.Index(dayNames(), name)
		if day < 0 {
			return fmt.Errorf("%.20q is no day of a week", name)
		}
		w[day] = ranges
	}
	return nil
}
