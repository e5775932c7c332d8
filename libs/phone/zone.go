package phone

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones must not depend on what the machine has installed

	"github.com/nyaruka/phonenumbers"
)

// Zones lists every time zone (canonical IANA names, sorted) the number may ring in; empty when unknown
// (toll-free, not geographic, unassigned).
func (n Number) Zones() []*time.Location {
	names := n.zoneNames()
	zones := make([]*time.Location, 0, len(names))
	for _, name := range names {
		zone := locations()[name]
		if zone == nil {
			return nil // a zone we cannot judge is a zone that may be asleep: unknown
		}
		zones = append(zones, zone)
	}
	return zones
}

// locations are all zones that a number may have, read once (some 10 ms): reading one costs more than finding out which it is.
var locations = sync.OnceValue(func() map[string]*time.Location {
	known, o := map[string]*time.Location{}, overlays()
	keep := func(names []string) {
		for _, name := range names {
			if known[name] != nil {
				continue
			}
			if zone, err := time.LoadLocation(name); err == nil {
				known[name] = zone
			}
		}
	}
	for _, a := range areas() {
		keep(a.zones)
	}
	for _, of := range []map[string][]string{o.only, o.add, o.country} {
		for _, names := range of {
			keep(names)
		}
	}
	for code := range 1000 { // what the metadata says of a country holds all that it says of its prefixes; a test looks at every one of them
		keep(lookup("+" + strconv.Itoa(code)))
	}
	return known
})

const nanp = 1 // the North American plan: one calling code, two dozen countries

// zoneNames asks our own table for North America. Elsewhere it takes the metadata's longest prefix, corrected by our overlay; a mobile whose
// number carries no area, and a range that the metadata does not know, may be anywhere in the country.
func (n Number) zoneNames() []string {
	if strings.HasPrefix(string(n), "+1") {
		return n.area().zones
	}
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return nil
	}
	kind := phonenumbers.GetNumberType(parsed)
	if !geographic(kind) {
		return nil
	}
	names := corrected(string(n))
	country := int(parsed.GetCountryCode())
	if kind == phonenumbers.UNKNOWN || kind == phonenumbers.MOBILE && !mobileCarriesArea(country) {
		names = append(names, wholeCountry(string(n), "+"+strconv.Itoa(country))...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func geographic(kind phonenumbers.PhoneNumberType) bool {
	switch kind {
	case phonenumbers.FIXED_LINE, phonenumbers.MOBILE, phonenumbers.FIXED_LINE_OR_MOBILE, phonenumbers.UNKNOWN:
		return true // UNKNOWN: new ranges are in use before the metadata knows them
	default:
		return false
	}
}

// mobileCarriesArea holds for Argentina and Brazil, whose mobile numbers begin with the area code.
func mobileCarriesArea(country int) bool { return country == 54 || country == 55 }

//go:embed overlay.txt
var overlayText string

// overlay is what overlay.txt corrects, by prefix.
type overlay struct{ only, add, country map[string][]string }

// overlays is read once. A file that cannot be read corrects nothing; a test sees to it that this never ships.
var overlays = sync.OnceValue(func() overlay {
	o, err := readOverlay(overlayText)
	if err != nil {
		return overlay{}
	}
	return o
})

func readOverlay(text string) (overlay, error) {
	o := overlay{only: map[string][]string{}, add: map[string][]string{}, country: map[string][]string{}}
	for i, line := range lines(text) {
		words := strings.Fields(line)
		into := map[string]map[string][]string{"only": o.only, "add": o.add, "country": o.country}
		if len(words) < 3 || into[words[1]] == nil || words[0][0] != '+' || into[words[1]][words[0]] != nil {
			return o, fmt.Errorf("overlay.txt, line %d: %q is not a new prefix, one of only, add and country, and zones", i, line)
		}
		into[words[1]][words[0]] = words[2:]
	}
	return o, nil
}

// lines are those of a data file that say something, under their numbers.
func lines(text string) map[int]string {
	say := map[int]string{}
	i := 0
	for line := range strings.Lines(text) {
		i++
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			say[i] = strings.TrimSpace(line)
		}
	}
	return say
}

// corrected is the metadata's answer for a number or prefix as our overlay mends it.
func corrected(prefix string) []string {
	o := overlays()
	names, mended := longest(o.only, prefix)
	if names = slices.Clone(names); !mended {
		names = lookup(prefix)
	}
	for length := 2; length <= len(prefix); length++ {
		names = append(names, o.add[prefix[:length]]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// wholeCountry is everywhere that a number of the calling code may ring.
func wholeCountry(number, code string) []string {
	if names, ok := longest(overlays().country, number); ok {
		return names
	}
	return corrected(code)
}

// longest is what stands under the longest prefix of number.
func longest(of map[string][]string, number string) ([]string, bool) {
	for length := len(number); length > 1; length-- {
		if names, ok := of[number[:length]]; ok {
			return names, true
		}
	}
	return nil, false
}

// lookup is the library's answer for a prefix, sorted, canonical and without its "unknown".
func lookup(prefix string) []string {
	found, err := phonenumbers.GetTimezonesForPrefix(prefix)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(found))
	for _, name := range found {
		if name != phonenumbers.UNKNOWN_TIMEZONE {
			names = append(names, canonical(name))
		}
	}
	slices.Sort(names)
	return names
}

// canonical replaces the retired spellings that the metadata still uses (found by enumeration of all its prefixes).
func canonical(name string) string {
	switch name {
	case "Africa/Asmera":
		return "Africa/Asmara"
	case "America/Buenos_Aires":
		return "America/Argentina/Buenos_Aires"
	case "America/Godthab":
		return "America/Nuuk"
	case "Asia/Calcutta":
		return "Asia/Kolkata"
	case "Asia/Choibalsan":
		return "Asia/Ulaanbaatar"
	case "Asia/Katmandu":
		return "Asia/Kathmandu"
	case "Asia/Rangoon":
		return "Asia/Yangon"
	case "Atlantic/Faeroe":
		return "Atlantic/Faroe"
	case "Pacific/Enderbury":
		return "Pacific/Kanton"
	case "Pacific/Ponape":
		return "Pacific/Pohnpei"
	case "Pacific/Truk":
		return "Pacific/Chuuk"
	default:
		return name
	}
}
