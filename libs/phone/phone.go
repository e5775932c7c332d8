// Package phone owns what a telephone number is to us: its E.164 shape, where on earth it may
// ring, and whether it is of a kind that is never dialled. It knows no policy.
package phone

import (
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the machine has installed

	"github.com/nyaruka/phonenumbers"
)

// Number is an E.164 number, leading plus included ("+14155550123").
type Number string

// Parse accepts exactly ^\+[1-9]\d{6,14}$ (contract.md §1); there is no other test of validity.
func Parse(text string) (n Number, ok bool) {
	if len(text) < 1+7 || len(text) > 1+15 || text[0] != '+' || text[1] == '0' {
		return "", false
	}
	for _, c := range []byte(text[1:]) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	return Number(text), true
}

// Masked shows the last four digits only, for logs and spans.
func (n Number) Masked() string {
	if len(n) <= 4 {
		return "…"
	}
	return "…" + string(n[len(n)-4:])
}

// HasPrefix says whether the number begins with one of the prefixes ("+1", "+4420").
func (n Number) HasPrefix(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return p != "" && strings.HasPrefix(string(n), p) })
}

// Zones lists every time zone (canonical IANA names, sorted) the number may ring in; empty when unknown
// (toll-free, not geographic, unassigned).
func (n Number) Zones() []*time.Location {
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return nil
	}
	kind := phonenumbers.GetNumberType(parsed)
	if !geographic(kind) {
		return nil
	}
	names := zoneNames(n, parsed, kind)
	zones := make([]*time.Location, 0, len(names))
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			return nil // a zone we cannot judge is a zone that may be asleep: unknown
		}
		zones = append(zones, zone)
	}
	return zones
}

func geographic(kind phonenumbers.PhoneNumberType) bool {
	switch kind {
	case phonenumbers.FIXED_LINE, phonenumbers.MOBILE, phonenumbers.FIXED_LINE_OR_MOBILE, phonenumbers.UNKNOWN:
		return true // UNKNOWN: new ranges are in use before the metadata knows them
	default:
		return false
	}
}

const nanp = 1 // the North American plan: one calling code, twenty countries

// zoneNames takes the library's longest-prefix answer, except where that answer is a guess: a mobile whose
// number carries no area may be anywhere in its country, and a North American number that matches nothing but
// "+1" says nothing at all.
func zoneNames(n Number, parsed *phonenumbers.PhoneNumber, kind phonenumbers.PhoneNumberType) []string {
	country := int(parsed.GetCountryCode())
	names := lookup(string(n))
	switch {
	case country == nanp:
		if slices.Equal(names, lookup("+1")) {
			return nil
		}
	case kind == phonenumbers.MOBILE && !mobileCarriesArea(country):
		names = append(names, lookup(string(n[:1+len(strconv.Itoa(country))]))...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mobileCarriesArea holds for Argentina and Brazil, whose mobile numbers begin with the area code.
func mobileCarriesArea(country int) bool { return country == 54 || country == 55 }

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
