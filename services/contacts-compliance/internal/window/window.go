// Package window owns the hours in which people may be called: half-open ranges of local wall-clock
// time on the days of a calendar, judged in every time zone a person may be in. It knows neither numbers nor
// contacts, and has no clock of its own.
package window

import (
	"errors"
	"fmt"
	"time"
)

// Minute is a wall-clock minute of a day, 0 to 1440; its text is "HH:MM", and 1440 is "24:00".
type Minute int

// Midnight ends a day: the only place "24:00" may stand.
const Midnight Minute = 24 * 60

// MarshalText writes "HH:MM".
func (m Minute) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m Minute) String() string { return fmt.Sprintf("%02d:%02d", int(m)/60, int(m)%60) }

// UnmarshalText reads "HH:MM" from 00:00 to 24:00 and nothing else.
func (m *Minute) UnmarshalText(text []byte) error {
	if len(text) != 5 || text[2] != ':' {
		return errors.New("must be HH:MM")
	}
	for _, i := range []int{0, 1, 3, 4} {
		if text[i] < '0' || text[i] > '9' {
			return errors.New("must be HH:MM")
		}
	}
	hours, minutes := int(text[0]-'0')*10+int(text[1]-'0'), int(text[3]-'0')*10+int(text[4]-'0')
	if minutes > 59 || hours*60+minutes > int(Midnight) {
		return errors.New("must be a time from 00:00 to 24:00")
	}
	*m = Minute(hours*60 + minutes)
	return nil
}

// Window is open from Start up to, not including, End on each of Days, by the callee's wall clock.
type Window struct {
	Start Minute `json:"start"`
	End   Minute `json:"end"`
	Days  Days   `json:"days"`
}

// Default is 09:00–20:00 on every day (contract.md §3).
func Default() Window { return Window{Start: 9 * 60, End: 20 * 60, Days: EveryDay} }

// Always says whether the window never closes, so that nobody's zone needs to be known.
func (w Window) Always() bool { return w.Start == 0 && w.End == Midnight && w.Days == EveryDay }

// Open says whether the window is open at one instant in every one of the zones; with no zone it is not.
func (w Window) Open(zones []Zone, at time.Time) bool {
	return Clock{Hours: w, Zones: zones}.Open(at)
}
