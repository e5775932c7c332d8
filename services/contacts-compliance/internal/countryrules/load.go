package countryrules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"ringfence.dev/services/contacts-compliance/internal/window"
)

type file struct {
	Pack        string               `json:"pack"`
	Version     int                  `json:"version"`
	CoversUntil window.Date          `json:"covers_until"`
	Note        string               `json:"note"`
	Countries   []string             `json:"countries"`
	Calendars   map[string][]Holiday `json:"calendars"`
	Rules       []row                `json:"rules"`
}

type row struct {
	Region       string                    `json:"region"`
	Purposes     []Purpose                 `json:"purposes"`
	Hours        map[string][]window.Range `json:"hours"`
	Holidays     string                    `json:"holidays"`
	HolidayHours []window.Range            `json:"holiday_hours"`
	Caps         []Cap                     `json:"caps"`
	Consent      Consent                   `json:"consent"`
	From         window.Date               `json:"from"`
	Until        window.Date               `json:"until"`
	Citation     string                    `json:"citation"`
}

// Load reads every .json file of a folder. The error lists all faults. Each fault names the file,
// the place in the file and the valid values.
func Load(files fs.FS) (Library, error) {
	l := Library{packs: map[string]Pack{}}
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return l, fmt.Errorf("list packs: %w", err)
	}
	var faults []error
	for _, name := range names {
		p, found := readPack(files, name)
		for _, fault := range found {
			faults = append(faults, fmt.Errorf("%s: %w", name, fault))
		}
		l.packs[p.Name] = p
	}
	if _, ok := l.packs[Fallback]; !ok && len(faults) == 0 {
		faults = append(faults,
			fmt.Errorf("there is no %s.json: it applies to countries that are in none of a workspace's packs", Fallback))
	}
	if len(faults) > 0 {
		return Library{}, fmt.Errorf("read policy packs: %w", errors.Join(faults...))
	}
	return l, nil
}

func readPack(files fs.FS, name string) (Pack, []error) {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return Pack{}, []error{err}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var f file
	if err := decoder.Decode(&f); err != nil {
		line := 1 + bytes.Count(raw[:min(int(decoder.InputOffset()), len(raw))], []byte("\n"))
		return Pack{}, []error{fmt.Errorf("near line %d: %w", line, err)}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Pack{}, []error{errors.New("there is text after the pack's closing brace; a file contains one pack")}
	}
	return f.pack(strings.TrimSuffix(name, ".json"))
}

var (
	country = regexp.MustCompile(`^[A-Z]{2}$`)
	region  = regexp.MustCompile(`^[A-Z]{2}-[A-Z]{2}$`)
)

func (f file) pack(name string) (Pack, []error) {
	var faults []error
	addFault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case f.Pack != name:
		addFault("pack: is %q; name it %q like its file", f.Pack, name)
	case f.Version < 1:
		addFault("version: must be 1 or more; increase it with every change")
	case f.CoversUntil.IsZero():
		addFault("covers_until: is required: the last day for which the law was reviewed, such as 2028-12-31; " +
			"later days are closed")
	case (len(f.Countries) == 0) != (name == Fallback):
		addFault(`countries: list the pack's countries as ["US","PR"]; only %s has none`, Fallback)
	}
	for i, c := range f.Countries {
		if !country.MatchString(c) {
			addFault("countries[%d]: %q is no country code such as US", i, c)
		}
	}
	for calendar, holidays := range f.Calendars {
		for i, h := range holidays {
			if err := h.fault(); err != nil {
				addFault("calendars.%s[%d]: %w", calendar, i, err)
			}
		}
	}
	p := Pack{Name: f.Pack, Version: f.Version, Countries: f.Countries, CoversUntil: f.CoversUntil}
	for i, r := range f.Rules {
		rule, found := r.rule(f)
		for _, fault := range found {
			addFault("rules[%d].%w", i, fault)
		}
		p.Rules = append(p.Rules, rule)
	}
	for _, must := range []Purpose{Marketing, Service} {
		if !p.hasBase(must) {
			addFault("rules: there is none without a region for %s; add one, because it applies in all other regions", must)
		}
	}
	for i, r := range p.Rules {
		if r.Region == "" && (!r.From.IsZero() || !r.Until.IsZero()) && !p.alwaysInForce(r) {
			addFault("rules[%d]: has a period, and no rule without a region covers the rest; "+
				"add one, or leave out from and until", i)
		}
	}
	return p, faults
}

// alwaysInForce reports whether rules without a region are in force on every day. It considers only
// rules that have a purpose in common with r.
func (p Pack) alwaysInForce(r Rule) bool {
	day := window.Date{}
	for {
		next, held := window.Date{}, false
		for _, other := range p.Rules {
			if other.Region != "" || !slices.ContainsFunc(r.purposes,
				func(one Purpose) bool { return slices.Contains(other.purposes, one) }) || !other.InForce(day) {
				continue
			}
			if other.Until.IsZero() {
				return true
			}
			if held = true; next.Before(other.Until) {
				next = other.Until
			}
		}
		if !held {
			return false
		}
		day = next
	}
}

func (r row) rule(f file) (Rule, []error) {
	var faults []error
	addFault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if r.Region != "" && (!region.MatchString(r.Region) || !slices.Contains(f.Countries, r.Region[:2])) {
		addFault("region: %q is no region of the pack's countries, such as US-FL", r.Region)
	}
	if len(r.Purposes) == 0 {
		addFault(`purposes: is required: the purposes of the calls, as ["marketing"]`)
	}
	for _, purpose := range r.Purposes {
		if !slices.Contains(purposes(), purpose) {
			addFault("purposes: %q is not marketing, service or emergency", purpose)
		}
	}
	if !slices.Contains([]Consent{NoConsent, Express, Written}, r.Consent) {
		addFault("consent: %q is not none, express or written", r.Consent)
	}
	if strings.TrimSpace(r.Citation) == "" {
		addFault("citation: is required: the source of the rule, or that it is our choice")
	}
	if !r.Until.IsZero() && !r.From.Before(r.Until) {
		addFault("until: must be after from; it is the first day after the rule")
	}
	for i, c := range r.Caps {
		if c.Calls < 1 || c.Hours < 1 || c.Hours > 24*366 {
			addFault(`caps[%d]: must be calls and hours, both 1 or more, as {"calls":3,"hours":24}`, i)
		}
	}
	holidays, ok := f.Calendars[r.Holidays]
	if r.Holidays != "" && !ok {
		addFault("holidays: there is no calendar %q in this file", r.Holidays)
	}
	if len(r.HolidayHours) > 0 && r.Holidays == "" {
		addFault("holiday_hours: needs holidays; set holidays, or leave it out")
	}
	if err := ordered(r.HolidayHours); err != nil {
		addFault("holiday_hours: %w", err)
	}
	week, err := parseWeek(r.Hours)
	if err != nil {
		addFault("hours: %w", err)
	}
	return Rule{
		Pack: f.Pack, Version: f.Version, Region: r.Region, Week: week, Holidays: holidays, HolidayHours: r.HolidayHours,
		Caps:    r.Caps,
		Consent: r.Consent, From: r.From, Until: r.Until, CoversUntil: f.CoversUntil, Citation: r.Citation,
		purposes: r.Purposes,
	}, faults
}

// parseWeek parses hours by day or range of days ("mon-fri"). Each day must occur once.
func parseWeek(hours map[string][]window.Range) (w Week, err error) {
	monday := []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	listed := [7]bool{}
	for name, ranges := range hours {
		first, last, span := strings.Cut(name, "-")
		if !span {
			last = first
		}
		from, to := slices.Index(monday, first), slices.Index(monday, last)
		if from < 0 || to < from {
			return w, fmt.Errorf(`%q is no day or span of days such as "sat" or "mon-fri"`, name)
		}
		if err := ordered(ranges); err != nil {
			return w, fmt.Errorf("%s: %w", name, err)
		}
		for i := from; i <= to; i++ {
			day := slices.Index(dayNames(), monday[i])
			if listed[day] {
				return w, fmt.Errorf("%s is listed twice", monday[i])
			}
			listed[day], w[day] = true, ranges
		}
	}
	for i, done := range listed {
		if !done {
			return w, fmt.Errorf(`%s is missing; write "%s": [] for a day without calls`, dayNames()[i], dayNames()[i])
		}
	}
	return w, nil
}

func ordered(ranges []window.Range) error {
	for i, r := range ranges[min(1, len(ranges)):] {
		if r.Start < ranges[i].End {
			return fmt.Errorf("%s and %s overlap or are out of order", ranges[i], r)
		}
	}
	return nil
}
