package phone

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the binary contains the zones, because they must not depend on the machine

	"github.com/nyaruka/phonenumbers"
)

// Zones returns every time zone in which the number can ring, as canonical IANA names in
// alphabetical order. The result is empty if the zones are unknown: for toll-free, non-geographic
// and unassigned numbers.
func (n Number) Zones() []*time.Location {
	names := n.zoneNames()
	zones := make([]*time.Location, 0, len(names))
	for _, name := range names {
		zone := locations()[name]
		if zone == nil {
			return nil // if one zone could not be loaded, all zones count as unknown
		}
		zones = append(zones, zone)
	}
	return zones
}

// locations contains all time zones that a number can have. All zones are loaded once (about 10
// ms), because loading one zone takes longer than finding the zone of a number.
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
	// The country calling codes are sufficient here, because the zones of a code include the zones of
	// all longer prefixes. A test checks this.
	for code := range 1000 {
		keep(lookUpZones("+" + strconv.Itoa(code)))
	}
	return known
})

const nanp = 1 // the country calling code of the North American Numbering Plan

// zoneNames returns the names of the zones of a number. North America uses nanp.txt. Other numbers
// use the longest matching prefix of the metadata, corrected by overlay.txt. A mobile number
// without an area code, or a number that the metadata does not contain, gets all zones of the
// country.
func (n Number) zoneNames() []string {
	if strings.HasPrefix(string(n), "+1") {
		return n.findAreaCode().zones
	}
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return nil
	}
	kind := phonenumbers.GetNumberType(parsed)
	if !geographic(kind) {
		return nil
	}
	names := correctedZones(string(n))
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
		// new number ranges are in use before the metadata contains them, so an unknown range is
		// not an error
		return true
	default:
		return false
	}
}

// mobileCarriesArea reports whether mobile numbers of a country begin with the area code. Only
// those of Argentina and Brazil do.
func mobileCarriesArea(country int) bool { return country == 54 || country == 55 }

//go:embed overlay.txt
var overlayText string

// overlay is the content of overlay.txt, which corrects the zones in the metadata. The keys are
// number prefixes. `only` replaces the zones in the metadata, and `add` adds zones to them.
// `country` contains the zones of numbers without an area code.
type overlay struct{ only, add, country map[string][]string }

// overlays contains the content of overlay.txt. If the file is invalid, overlays is empty. A test
// checks the file.
var overlays = sync.OnceValue(func() overlay {
	o, err := readOverlay(overlayText)
	if err != nil {
		return overlay{}
	}
	return o
})

func readOverlay(text string) (overlay, error) {
	o := overlay{only: map[string][]string{}, add: map[string][]string{}, country: map[string][]string{}}
	for i, line := range dataLines(text) {
		words := strings.Fields(line)
		into := map[string]map[string][]string{"only": o.only, "add": o.add, "country": o.country}
		if len(words) < 3 || into[words[1]] == nil || words[0][0] != '+' || into[words[1]][words[0]] != nil {
			return o, fmt.Errorf("overlay.txt, line %d: %q is not a new prefix, one of only, add and country, and zones", i, line)
		}
		into[words[1]][words[0]] = words[2:]
	}
	return o, nil
}

// dataLines returns the lines of a data file by line number, without comments and empty lines.
func dataLines(text string) map[int]string {
	found := map[int]string{}
	i := 0
	for line := range strings.Lines(text) {
		i++
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			found[i] = strings.TrimSpace(line)
		}
	}
	return found
}

// correctedZones returns the zones of a number or prefix: the zones in the metadata with the
// corrections of overlay.txt.
func correctedZones(prefix string) []string {
	o := overlays()
	names, mended := longestPrefix(o.only, prefix)
	if names = slices.Clone(names); !mended {
		names = lookUpZones(prefix)
	}
	for length := 2; length <= len(prefix); length++ {
		names = append(names, o.add[prefix[:length]]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// wholeCountry returns all zones in which a number with the country calling code can ring.
func wholeCountry(number, code string) []string {
	if names, ok := longestPrefix(overlays().country, number); ok {
		return names
	}
	return correctedZones(code)
}

// longestPrefix returns the zones of the longest key that is a prefix of number.
func longestPrefix(zonesByPrefix map[string][]string, number string) ([]string, bool) {
	for length := len(number); length > 1; length-- {
		if names, ok := zonesByPrefix[number[:length]]; ok {
			return names, true
		}
	}
	return nil, false
}

// lookUpZones returns the zones of a prefix in the metadata: sorted, with canonical names, and
// without the unknown zone.
func lookUpZones(prefix string) []string {
	found, err := phonenumbers.GetTimezonesForPrefix(prefix)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(found))
	for _, name := range found {
		if name != phonenumbers.UNKNOWN_TIMEZONE {
			names = append(names, canonicalZone(name))
		}
	}
	slices.Sort(names)
	return names
}

// canonicalZone returns the current name of a zone. The metadata contains some old names.
func canonicalZone(name string) string {
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
