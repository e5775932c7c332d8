// Package countryrules contains the calling rules of countries: hours, holidays, frequency caps and
// required consent. Each policy pack is a JSON file with citations. The law was reviewed for all
// days up to the pack's CoversUntil. The packs are not legal advice.
package countryrules

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

//go:embed data
var data embed.FS

// Embedded returns the packs of this build.
func Embedded() (Library, error) {
	files, err := fs.Sub(data, "data")
	if err != nil {
		return Library{}, err
	}
	return Load(files)
}

// Fallback is the pack for countries that are in none of the workspace's packs.
const Fallback = "default"

// Pack is one policy pack.
type Pack struct {
	Name    string
	Version int
	// Countries are the countries of the pack. The pack Fallback has no countries, because it
	// applies to every country without another pack.
	Countries []string
	// CoversUntil is the last local day for which the law was reviewed. No call is allowed on later
	// days.
	CoversUntil window.Date
	Rules       []Rule
}

// Choice is a pack and the purpose of the calls.
type Choice struct {
	Pack    string
	Purpose Purpose
}

// ParseChoice parses the name of a pack and a purpose, such as "us:service". Without a purpose, as
// in "us", the purpose is Marketing.
func ParseChoice(text string) Choice {
	name, purpose, named := strings.Cut(text, ":")
	if !named {
		return Choice{Pack: name, Purpose: Marketing}
	}
	return Choice{Pack: name, Purpose: Purpose(purpose)}
}

// Library contains all packs of this build. It is immutable.
type Library struct{ packs map[string]Pack }

// Names returns the names of the packs in alphabetical order.
func (l Library) Names() []string {
	names := make([]string, 0, len(l.packs))
	for name := range l.packs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (l Library) Pack(name string) (Pack, bool) {
	p, ok := l.packs[name]
	return p, ok
}

// Ending returns the packs whose CoversUntil is before the given day.
func (l Library) Ending(before window.Date) []Pack {
	var ending []Pack
	for _, name := range l.Names() {
		if p := l.packs[name]; p.CoversUntil.Before(before) {
			ending = append(ending, p)
		}
	}
	return ending
}

// Check returns an error if the pack or the purpose does not exist.
func (l Library) Check(c Choice) error {
	if _, ok := l.packs[c.Pack]; !ok {
		return fmt.Errorf("%.40q is no pack; there are %s", c.Pack, strings.Join(l.Names(), ", "))
	}
	if !slices.Contains(purposes(), c.Purpose) {
		return fmt.Errorf("%.40q is no purpose; there are marketing, service, emergency", c.Purpose)
	}
	return nil
}

// For returns the rules for a number at a place: first those of the country, then those of its
// regions. If the country is not known, all chosen packs apply; if the region is not known, the
// rules of all regions apply.
//
// Fallback applies to a country that is in none of the chosen packs. For a chosen pack that this
// build does not contain, the result has a rule that is always closed.
func (l Library) For(chosen []Choice, place phone.Place) []Rule {
	var rules []Rule
	known := false
	for _, c := range chosen {
		p, ok := l.packs[c.Pack]
		if !ok {
			// CoversUntil is zero, so the rule is always closed
			rules = append(rules, Rule{Pack: c.Pack, Purpose: c.Purpose, Citation: "this build has no such pack"})
			continue
		}
		if place.Country != "" && !p.covers(place.Country) {
			continue
		}
		known = known || (place.Country != "" && c.Pack != Fallback)
		rules = append(rules, p.rulesFor(c.Purpose, place)...)
	}
	if !known && !slices.ContainsFunc(chosen, func(c Choice) bool { return c.Pack == Fallback }) {
		rules = append(rules, l.packs[Fallback].rulesFor(Marketing, phone.Place{})...)
	}
	return rules
}

// Base returns the rules of a pack that apply to all regions.
func (l Library) Base(c Choice) []Rule {
	rules := l.packs[c.Pack].rulesFor(c.Purpose, phone.Place{})
	return slices.DeleteFunc(rules, func(r Rule) bool { return r.Region != "" })
}

func (p Pack) covers(country string) bool {
	return len(p.Countries) == 0 || slices.Contains(p.Countries, country)
}

// rulesFor returns the rules for a purpose. If the pack has no rule for the purpose, the rules of
// the next stricter purpose apply.
func (p Pack) rulesFor(purpose Purpose, place phone.Place) []Rule {
	order := purposes()
	for i := slices.Index(order, purpose); i > 0; i-- {
		if p.hasBase(order[i]) {
			break
		}
		purpose = order[i-1]
	}
	var found []Rule
	for _, r := range p.Rules {
		if slices.Contains(r.purposes, purpose) && r.appliesIn(place) {
			r.Purpose = purpose
			found = append(found, r)
		}
	}
	return found
}

func (p Pack) hasBase(purpose Purpose) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Region == "" &&
			slices.Contains(r.purposes, purpose)
	})
}

func (r Rule) appliesIn(place phone.Place) bool {
	switch {
	case r.Region == "", place.Country == "":
		return true
	case !strings.HasPrefix(r.Region, place.Country+"-"):
		return false
	default:
		return len(place.Regions) == 0 || slices.Contains(place.Regions, r.Region)
	}
}
