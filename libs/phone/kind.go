package phone

import (
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers"
)

// Unassigned is the kind of a number whose country calling code is not assigned.
const Unassigned = "unassigned country calling code"

// Forbidden returns the kind of number that must not be dialed, such as "premium rate", or "" if
// the number may be dialed (docs/reference/api/compliance.md#destinations). A number that the
// metadata does not contain may be dialed if its country calling code is assigned.
func (n Number) Forbidden() string {
	switch {
	case !n.isAssigned():
		return Unassigned
	case n.HasPrefix([]string{"+870", "+881", "+882", "+883"}):
		return "satellite" // the codes of Inmarsat, GMSS and the international networks
	case n.HasPrefix([]string{"+979"}):
		return "premium rate" // the code of the international premium rate service
	case n.HasPrefix([]string{"+808"}):
		return "shared cost" // the code of the international shared cost service
	}
	// In North America only premium-rate numbers are forbidden. They have the area code 900, or the
	// exchange 976 in Barbados (246) or the Cayman Islands (345). For all other numbers the
	// metadata is not read, because reading it takes 26 µs.
	if n.HasPrefix([]string{"+1"}) && !n.HasPrefix([]string{"+1900", "+1246", "+1345"}) {
		return ""
	}
	return n.forbiddenKind()
}

// reservedPrefixes returns the country codes that are assigned but not in use. The metadata does
// not contain them. The Vatican City (379) uses numbers of Italy, and Kazakhstan (997) shares +7
// with Russia.
func reservedPrefixes() []string { return []string{"+379", "+997"} }

// isAssigned reports whether the number begins with an assigned country calling code.
func (n Number) isAssigned() bool {
	return n.CallingCode() != "" || n.HasPrefix(reservedPrefixes())
}

// CallingCode returns the country calling code of the number, without the plus sign. It returns ""
// if the code is not in use. The first four characters of a number are enough.
func (n Number) CallingCode() string {
	digits, ok := strings.CutPrefix(string(n), "+")
	for length := 1; ok && length <= 3 && length <= len(digits); length++ {
		code, err := strconv.Atoi(digits[:length])
		if err != nil {
			return ""
		}
		if phonenumbers.GetRegionCodeForCountryCode(code) != phonenumbers.UNKNOWN_REGION {
			return digits[:length] // no code is a prefix of another code
		}
	}
	return ""
}

func (n Number) forbiddenKind() string {
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return ""
	}
	switch phonenumbers.GetNumberType(parsed) {
	case phonenumbers.PREMIUM_RATE:
		return "premium rate"
	case phonenumbers.SHARED_COST:
		return "shared cost"
	case phonenumbers.UNKNOWN:
		if isShortNumber(parsed) {
			return "short"
		}
	}
	return ""
}

// isShortNumber reports whether the digits after the country calling code are a short number, such
// as a helpline or an emergency number. North America is excluded, because its short numbers that
// fit E.164 are used for text messages only.
func isShortNumber(parsed *phonenumbers.PhoneNumber) bool {
	return parsed.GetCountryCode() != nanp && phonenumbers.IsValidShortNumber(parsed)
}
