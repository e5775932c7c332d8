package operator

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// timeLayout is the layout of printed times: local time and zone.
const timeLayout = "2006-01-02 15:04:05 MST"

// Time is a point in time in a flag. It is zero if the flag was not given.
type Time struct{ time.Time }

var age = regexp.MustCompile(`^([0-9]{1,4})([smhdw])$`)

// UnmarshalText reads an RFC 3339 time, a local time, a local day, or an age such as 2h or 3d.
func (t *Time) UnmarshalText(text []byte) error {
	for _, layout := range []string{
		time.RFC3339, timeLayout, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04",
		"2006-01-02",
	} {
		if at, err := time.ParseInLocation(layout, string(text), time.Local); err == nil {
			t.Time = at
			return nil
		}
	}
	parts := age.FindSubmatch(text)
	if parts == nil {
		return fmt.Errorf("%q is not a time: use 2026-06-04T09:00:00Z, a local time such as \"2026-06-04 09:00\", or an "+
			"age such as 2h or 3d", text)
	}
	n, err := strconv.Atoi(string(parts[1]))
	if err != nil {
		return fmt.Errorf("read the age: %w", err)
	}
	unit := map[string]time.Duration{
		"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	}[string(parts[2])]
	t.Time = time.Now().Add(-time.Duration(n) * unit)
	return nil
}

// localTime returns the text of a time in the time zone of the client, or false if the text is not
// an RFC 3339 time.
func (d *Client) localTime(text string) (string, bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || d.output != Table {
		return text, false
	}
	return at.In(d.zone).Format(timeLayout), true
}
