package phone

import (
	"strconv"

	"github.com/nyaruka/phonenumbers"
)

// Unassigned is the kind of a number whose country calling code is not assigned.
const Unassigned = "unassigned country calling code"

// Forbidden returns why a number is never dialled (contract.md 3.8): the kind of the number (premium
// rate, shared cost, satellite, short) or Unassigned. It returns "" if the number may be dialled. A
// number that the metadata does not know may be dialled if its country calling code is assigned.
func (n Number) Forbidden() string {
	switch {
	case !n.assigned():
		return Unassigned
	case n.HasPrefix([]string{"+870", "+881", "+882", "+883"}):
		return "satellite" // Inmarsat, GMSS and the international networks
	case n.HasPrefix([]string{"+979"}):
		return "premium rate" // international premium rate service
	case n.HasPrefix([]string{"+808"}):
		return "shared cost" // international shared cost service
	}
	// North America is the metadata's dearest question (two dozen countries under one code, 26 µs), and its answer is known beforehand: of
	// the kinds that matter here it has premium numbers alone, under 900 and in the exchange 976 of Barbados and the Cayman Islands.
	if n.HasPrefix([]string{"+1"}) && !n.HasPrefix([]string{"+1900", "+1246", "+1345"}) {
		return ""
	}
	return n.looked()
}

// reserved returns the codes that are assigned but not in use, so that the metadata does not have
// them: the Vatican City (379) uses numbers of Italy, Kazakhstan (997) shares +7 with Russia.
func reserved() []string { return []string{"+379", "+997"} }

// assigned returns whether the number begins with an assigned country calling code. No code is a
// prefix of another one, so at most one of the three lengths matches.
func (n Number) assigned() bool {
	digits := string(n[1:])
	for length := 1; length <= 3 && length <= len(digits); length++ {
		code, err := strconv.Atoi(digits[:length])
		if err != nil {
			return false
		}
		if phonenumbers.GetRegionCodeForCountryCode(code) != phonenumbers.UNKNOWN_REGION {
			return true
		}
	}
	return n.HasPrefix(reserved())
}

// looked asks the metadata.
func (n Number) looked() string {
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
		if short(parsed) {
			return "short"
		}
	}
	return ""
}

// short holds for helplines, emergency and service codes written after a country code. North America is left
// out: its codes that fit E.164 are for text messages only and no carrier rings them.
func short(parsed *phonenumbers.PhoneNumber) bool {
	return parsed.GetCountryCode() != nanp && phonenumbers.IsValidShortNumber(parsed)
}
