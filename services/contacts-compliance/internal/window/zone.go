package window

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // embeds the zone files, so that zones do not depend on the machine
)

// Zone is an IANA time zone. Its text is the name.
type Zone struct{ loc *time.Location }

// maxZone is longer than any IANA name.
const maxZone = 64

// LoadZone loads a zone by its IANA name. It refuses other names that Go or the zone files accept
// ("", "Local", "right/…"), because their meaning depends on the machine.
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

// Zones converts loaded locations.
func Zones(locs []*time.Location) []Zone {
	zones := make([]Zone, 0, len(locs))
	for _, loc := range locs {
		zones = append(zones, Zone{loc: loc})
	}
	return zones
}

func (z Zone) String() string { return z.loc.String() }

// Offset returns the zone's offset from UTC at a time, in seconds.
func (z Zone) Offset(at time.Time) int {
	_, offset := at.In(z.loc).Zone()
	return offset
}

func (z Zone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

func (z *Zone) UnmarshalText(text []byte) error {
	zone, err := LoadZone(string(text))
	*z = zone
	return err
}
