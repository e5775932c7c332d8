// Package window computes when hours are open: ranges of local wall-clock time on days of a
// calendar, evaluated in every time zone in which a person may be. The package does not read the
// current time.
package window

import (
	"errors"
	"fmt"
	"time"
)

// Minute is a minute of a local day, from 0 to 1440. Its text is "HH:MM"; 1440 is "24:00".
type Minute int

// Midnight is the end of a day. Only the end of a range can be "24:00".
const Midnight Minute = 24 * 60

func (m Minute) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m Minute) String() string { return fmt.Sprintf("%02d:%02d", int(m)/60, int(m)%60) }

// UnmarshalText parses "HH:MM" from 00:00 to 24:00.
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

// Window is open from Start up to, but not including, End on each of Days, in local time.
type Window struct {
	Start Minute `json:"start"`
	End   Minute `json:"end"`
	Days  Days   `json:"days"`
}

// Default returns the window 09:00–20:00 on every day.
func Default() Window { return Window{Start: 9 * 60, End: 20 * 60, Days: EveryDay} }

// Always reports whether the window is always open. The time zone is then not needed.
func (w Window) Always() bool { return w.Start == 0 && w.End == Midnight && w.Days == EveryDay }

// Open reports whether the window is open at a time in every zone. Without a zone it is
// closed.
func (w Window) Open(zones []Zone, at time.Time) bool {
	return Clock{Hours: w, Zones: zones}.Open(at)
}
