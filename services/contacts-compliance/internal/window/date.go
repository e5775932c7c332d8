package window

import (
	"fmt"
	"time"
)

// Date is a day of a local calendar. Its text is "2026-11-26". The zero Date is before all other
// dates.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// DateOf returns the date of a local time.
func DateOf(local time.Time) Date {
	year, month, day := local.Date()
	return Date{year, month, day}
}

// ParseDate parses YYYY-MM-DD.
func ParseDate(text string) (Date, error) {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Date{}, fmt.Errorf("%.20q is no day such as 2026-11-26", text)
	}
	return DateOf(day), nil
}

func (d Date) midnight() time.Time { return time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC) }

func (d Date) Weekday() time.Weekday { return d.midnight().Weekday() }

// AddDays returns the day n days later.
func (d Date) AddDays(n int) Date { return DateOf(d.midnight().AddDate(0, 0, n)) }

// Before reports whether d is before e.
func (d Date) Before(e Date) bool {
	if d.Year != e.Year {
		return d.Year < e.Year
	}
	if d.Month != e.Month {
		return d.Month < e.Month
	}
	return d.Day < e.Day
}

func (d Date) IsZero() bool { return d == Date{} }

func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.Year, int(d.Month), d.Day) }

func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Date) UnmarshalText(text []byte) error {
	day, err := ParseDate(string(text))
	*d = day
	return err
}
