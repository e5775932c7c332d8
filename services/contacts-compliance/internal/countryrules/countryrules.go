// Package countryrules owns the rules of countries as data: who may be called at which hours, how often and with what consent. Each pack is a file
// that says what it rests on and until when it was looked through; loading refuses what is not whole. It judges no call, and none of it is
// legal advice.
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

// Embedded are the packs of this build.
func Embedded() (Library, error) {
	files, err := fs.Sub(data, "data")
	if err != nil {
		return Library{}, err
	}
	return Load(files)
}

// Fallback is the pack for countries that none of a workspace's packs knows.
const Fallback = "default"

// Pack is one file.
type Pack struct {
	Name    string
	Version int
	// Countries are those that it knows; none: every one (only Fallback).
	Countries []string
	// CoversUntil is the last local day that somebody looked at; after it nothing is open.
	CoversUntil window.Date
	Rules       []Rule
}

// Choice is a pack for a purpose.
type Choice struct {
	Pack    string
	Purpose Purpose
}

// ParseChoice reads "us" (marketing) or "us:service".
func ParseChoice(text string) Choice {
	name, purpose, named := strings.Cut(text, ":")
	if !named {
		return Choice{Pack: name, Purpose: Marketing}
	}
	return Choice{Pack: name, Purpose: Purpose(purpose)}
}

// Library is every pack that this build knows. It does not change.
type Library struct{ packs map[string]Pack }

// Names lists the packs, sorted.
func (l Library) Names() []string {
	names := make([]string, 0, len(l.packs))
	for name := range l.packs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Pack is the one of that name.
func (l Library) Pack(name string) (Pack, bool) {
	p, ok := l.packs[name]
	return p, ok
}

// Ending lists the packs whose last day is before the given one: then they refuse every call.
func (l Library) Ending(before window.Date) []Pack {
	var ending []Pack
	for _, name := range l.Names() {
		if p := l.packs[name]; p.CoversUntil.Before(before) {
			ending = append(ending, p)
		}
	}
	return ending
}

// Check says what is wrong with a workspace's choice, or nil.
func (l Library) Check(c Choice) error {
	if _, ok := l.packs[c.Pack]; !ok {
		return fmt.Errorf("%.40q is no pack; there are %s", c.Pack, strings.Join(l.Names(), ", "))
	}
	if !slices.Contains(purposes(), c.Purpose) {
		return fmt.Errorf("%.40q is no purpose; there are marketing, service, emergency", c.Purpose)
	}
	return nil
}

// For lists the rules that hold for a number given out at a place, those of the country before those of its regions. Where the number does
// not tell its country every chosen pack holds, where it does not tell its region every region's rules do. A country that no chosen pack
// knows is held to Fallback. A pack that this build no longer has is a rule that is never open.
func (l Library) For(chosen []Choice, place phone.Place) []Rule {
	var rules []Rule
	known := false
	for _, c := range chosen {
		p, ok := l.packs[c.Pack]
		if !ok {
			rules = append(rules, Rule{Pack: c.Pack, Purpose: c.Purpose, Citation: "this build has no such pack"}) // covers no day: never open
			continue
		}
		if place.Country != "" && !p.covers(place.Country) {
			continue
		}
		known = known || (place.Country != "" && c.Pack != Fallback)
		rules = append(rules, p.rules(c.Purpose, place)...)
	}
	if !known && !slices.ContainsFunc(chosen, func(c Choice) bool { return c.Pack == Fallback }) {
		rules = append(rules, l.packs[Fallback].rules(Marketing, phone.Place{})...)
	}
	return rules
}

// Base lists the rules that a pack has for the whole of its countries.
func (l Library) Base(c Choice) []Rule {
	return slices.DeleteFunc(l.packs[c.Pack].rules(c.Purpose, phone.Place{}), func(r Rule) bool { return r.Region != "" })
}

func (p Pack) covers(country string) bool {
	return len(p.Countries) == 0 || slices.Contains(p.Countries, country)
}

// rules are those for a purpose; a purpose that the pack has no rule for is held to the next stricter one.
func (p Pack) rules(purpose Purpose, place phone.Place) []Rule {
	order := purposes()
	for i := slices.Index(order, purpose); i > 0; i-- {
		if p.hasBase(order[i]) {
			break
		}
		purpose = order[i-1]
	}
	var found []Rule
	for _, r := range p.Rules {
		if slices.Contains(r.purposes, purpose) && r.holdsIn(place) {
			r.Purpose = purpose
			found = append(found, r)
		}
	}
	return found
}

func (p Pack) hasBase(purpose Purpose) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Region == "" && slices.Contains(r.purposes, purpose) })
}

// holdsIn says whether a rule may hold for someone there.
func (r Rule) holdsIn(place phone.Place) bool {
	switch {
	case r.Region == "", place.Country == "":
		return true
	case !strings.HasPrefix(r.Region, place.Country+"-"):
		return false
	default:
		return len(place.Regions) == 0 || slices.Contains(place.Regions, r.Region)
	}
}
