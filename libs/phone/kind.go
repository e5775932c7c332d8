package phone

import "github.com/nyaruka/phonenumbers"

// Forbidden names why a number is of a kind never dialled (premium, shared cost, satellite, short),
// or "" when it may be (contract.md §3). A number the metadata does not know may be dialled: being
// unknown is no kind.
func (n Number) Forbidden() string {
	switch {
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
