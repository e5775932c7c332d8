package phone

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/nyaruka/phonenumbers"
)

// Place is where a number was given out; the person may have moved since.
type Place struct {
	// Country is an ISO 3166-1 code ("US"), "" when the number does not tell: toll-free, satellite, unassigned.
	Country string `json:"country"`
	// Regions are the states or provinces it may belong to ("US-FL"); none: the country has none that we tell apart, or is not known.
	Regions []string `json:"regions,omitempty"`
}

// Place tells country and, in North America, state or province.
func (n Number) Place() Place {
	if strings.HasPrefix(string(n), "+1") {
		a := n.area()
		return Place{Country: a.country, Regions: a.regions}
	}
	parsed, err := phonenumbers.Parse(string(n), "")
	if err != nil {
		return Place{}
	}
	country := phonenumbers.GetRegionCodeForNumber(parsed)
	if country == "" { // a range newer than the metadata belongs to whoever leads the calling code
		country = phonenumbers.GetRegionCodeForCountryCode(int(parsed.GetCountryCode()))
	}
	if len(country) != 2 || country == phonenumbers.UNKNOWN_REGION {
		return Place{} // "001" is the world's, "ZZ" nobody's
	}
	return Place{Country: country}
}

//go:embed nanp.txt
var areaText string

// area is one code of the North American plan.
type area struct {
	country        string
	regions, zones []string
}

// areas is read once. A file that cannot be read knows no area, and every number without one is refused; a test sees to it that this never ships.
var areas = sync.OnceValue(func() map[string]area {
	read, err := readAreas(areaText)
	if err != nil {
		return nil
	}
	return read
})

func readAreas(text string) (map[string]area, error) {
	read := map[string]area{}
	for i, line := range lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || len(words[0]) != 3 || len(words[1]) != 2 || read[words[0]].country != "" {
			return nil, fmt.Errorf("nanp.txt, line %d: %q is not a new area code, a country, regions and zones", i, line)
		}
		a := area{country: words[1], zones: words[3:]}
		if words[2] != "-" {
			for region := range strings.SplitSeq(words[2], ",") {
				a.regions = append(a.regions, words[1]+"-"+region)
			}
		}
		read[words[0]] = a
	}
	return read, nil
}

// area is that of a number that begins with +1; none when it is too short, or its code rings nowhere in particular.
func (n Number) area() area {
	if len(n) != len("+1")+10 {
		return area{}
	}
	return areas()[string(n[2:5])]
}
