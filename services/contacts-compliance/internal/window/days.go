package window

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Days is a set of weekdays. Its JSON is a list of "mon" to "sun".
type Days uint8

// EveryDay contains all weekdays.
const EveryDay Days = 1<<7 - 1

// Has reports whether the day is in the set.
func (d Days) Has(day time.Weekday) bool { return d&(1<<day) != 0 }

func dayNames() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// ParseDays returns the set of the named days. It returns an error if the set is empty.
func ParseDays(names []string) (Days, error) {
	var days Days
	for _, name := range names {
		day := slices.Index(dayNames(), name)
		if day < 0 {
			return 0, fmt.Errorf("must list days out of mon, tue, wed, thu, fri, sat, sun; %q is none", name)
		}
		days |= 1 << day
	}
	if days == 0 {
		return 0, fmt.Errorf("must list at least one day; leave it out for every day")
	}
	return days, nil
}

// MarshalJSON returns a list of the days, Monday first.
func (d Days) MarshalJSON() ([]byte, error) {
	names := []string{}
	for i := range 7 {
		if day := time.Weekday((i + 1) % 7); d.Has(day) {
			names = append(names, dayNames()[day])
		}
	}
	return json.Marshal(names)
}

func (d *Days) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return err
	}
	days, err := ParseDays(names)
	*d = days
	return err
}
