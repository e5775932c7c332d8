package window

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the machine has installed
)

// Zone is one IANA time zone; its text is the name.
type Zone struct{ loc *time.Location }

// maxZone is more than any IANA name has, and little enough to show.
const maxZone = 64

// LoadZone finds a zone by its IANA name. What Go or a machine's zone directory knows beside those ("",
// "Local", "right/…") is refused: it would mean something else elsewhere.
func LoadZone(name string) (Zone, error) {
	switch {
	case len(name) > maxZone:
		return Zone{}, errors.New("that is no IANA time zone")
	case name == "", name == "Local", name == "localtime", name == "posixrules", name == "Factory",
		strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"):
		return Zone{}, fmt.Errorf("%q is no IANA time zone", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return Zone{}, fmt.Errorf("%q is no IANA time zone", name)
	}
	return Zone{loc: loc}, nil
}

// Zones wraps loaded locations.
func Zones(locs []*time.Location) []Zone {
	zones := make([]Zone, 0, len(locs))
	for _, loc := range locs {
		zones = append(zones, Zone{loc: loc})
	}
	return zones
}

func (z Zone) String() string { return z.loc.String() }

// Offset is the zone's distance from UTC at an instant, in seconds.
func (z Zone) Offset(at time.Time) int {
	_, offset := at.In(z.loc).Zone()
	return offset
}

// MarshalText writes the name.
func (z Zone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// UnmarshalText reads a name.
func (z *Zone) UnmarshalText(text []byte) error {
	zone, err := LoadZone(string(text))
	*z = zone
	return err
}
