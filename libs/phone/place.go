package phone

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/nyaruka/phonenumbers"
)

// Place is the country and region in which a number was assigned. The owner of the number can have
// moved to another place since.
type Place struct {
	// Country is an ISO 3166-1 code ("US"). It is "" if the number has no country: toll-free,
	// satellite and unassigned numbers.
	Country string `json:"country"`
	// Regions are the states or provinces to which the number can belong ("US-FL"). Regions is empty
	// if they are unknown, or if the rules of the country do not depend on them.
	Regions []string `json:"regions,omitempty"`
}

// Place returns the country of the number and, in North America, the state or province.
func (n Number) Place() Place {
	if strings.HasPrefix(string(n), "+1") {
		a := n.findAreaCode()
		return Place{Country: a.country, Regions: a.regions}
	}
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return Place{}
	}
	country := phonenumbers.GetRegionCodeForNumber(parsed)
	if country == "" { // the metadata does not contain this range, so use the main country of the calling code
		country = phonenumbers.GetRegionCodeForCountryCode(int(parsed.GetCountryCode()))
	}
	if len(country) != 2 || country == phonenumbers.UNKNOWN_REGION {
		return Place{} // "001" means international, and "ZZ" means unknown
	}
	return Place{Country: country}
}

//go:embed nanp.txt
var areaText string

// areaCode is an area code of the North American Numbering Plan.
type areaCode struct {
	country        string
	regions, zones []string
}

// areas contains the area codes of nanp.txt. If the file is invalid, areas is empty and every
// number of North America is refused. A test checks the file.
var areas = sync.OnceValue(func() map[string]areaCode {
	read, err := readAreas(areaText)
	if err != nil {
		return nil
	}
	return read
})

func readAreas(text string) (map[string]areaCode, error) {
	read := map[string]areaCode{}
	for i, line := range dataLines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || len(words[0]) != 3 || len(words[1]) != 2 || read[words[0]].country != "" {
			return nil, fmt.Errorf("nanp.txt, line %d: %q is not a new area code, a country, regions and zones", i, line)
		}
		a := areaCode{country: words[1], zones: words[3:]}
		if words[2] != "-" {
			for region := range strings.SplitSeq(words[2], ",") {
				a.regions = append(a.regions, words[1]+"-"+region)
			}
		}
		read[words[0]] = a
	}
	return read, nil
}

// findAreaCode returns the area code of a number that begins with +1. It returns the zero value if
// the number is too short, or if its area code is not geographic.
func (n Number) findAreaCode() areaCode {
	if len(n) != len("+1")+10 {
		return areaCode{}
	}
	return areas()[string(n[2:5])]
}
