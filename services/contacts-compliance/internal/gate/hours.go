package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/policy"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// clock is hours that must be open; rule is nil for the workspace's own.
type clock struct {
	window.Clock
	rule *countryrules.Rule
}

// clocks are all that must be open: the workspace's window by the clock it names, and each rule of its packs by the callee's, unless an
// operator answers for calling at other hours. What leaves no hour out needs nobody's zone.
func (f Facts) clocks() []clock {
	var all []clock
	if !f.Policy.Window.Always() {
		all = append(all, clock{Clock: window.Clock{Hours: f.Policy.Window, Zones: f.zones()}})
	}
	if f.Policy.Override != nil {
		return all
	}
	zones := f.recipientZones()
	// Whatever is looked for lies before this day everywhere on earth; a rule that ends by then has hours, if only those of its end.
	behind := window.DateOf(f.At.UTC().Add(window.Horizon)).AddDays(2)
	for i := range f.Rules {
		if r := &f.Rules[i]; !r.Always() || r.Expired(behind) {
			all = append(all, clock{Clock: window.Clock{Hours: r, Zones: zones}, rule: r})
		}
	}
	return all
}

// hours judges the calling window, the packs' hours and holidays, and how often the number was called.
func (f Facts) hours() Outcome {
	clocks := f.clocks()
	if slices.ContainsFunc(clocks, func(c clock) bool { return len(c.Zones) == 0 }) {
		return closed(RuleZone, CodeOutsideHours,
			"The time zone of this number is not known (rule: time zone). Set metadata.time_zone of its contact to an IANA name such as America/Denver.")
	}
	at := f.At
	why, shut := f.obstacle(clocks, at)
	if !shut && f.Stage == Dial {
		at = f.At.Add(guard) // about to close: the opening sought is the one after
		why, shut = f.shutHours(clocks, at)
	}
	if !shut {
		return Outcome{Result: Open, At: f.At}
	}
	next, ok := f.next(clocks, at)
	switch {
	case !ok:
		return Outcome{Result: Denied, Rule: f.never(why.rule), Code: CodeOutsideHours, Source: why.source, Message: why.text +
			" It does not open within 30 days in every time zone this number may be in (" + list(f.recipientZones()) + ")."}
	case f.DeferIfClosed:
		return Outcome{Result: Deferred, Rule: why.rule, Source: why.source, At: next}
	default:
		return Outcome{Result: Denied, Rule: why.rule, Code: CodeOutsideHours, Source: why.source, Message: fmt.Sprintf(
			"%s It next opens at %s; schedule_if_outside_hours true queues for it.", why.text, next.UTC().Format(time.RFC3339))}
	}
}

// never is the rule of a call that finds no opening: a law nobody looked at is told as such, or else that there is none.
func (f Facts) never(why Rule) Rule {
	if why == RuleExpired {
		return why
	}
	return RuleNoOpening
}

// obstacle is what stands against a call, the workspace's own window first.
type obstacle struct {
	rule         Rule
	text, source string
}

func (f Facts) obstacle(clocks []clock, at time.Time) (obstacle, bool) {
	if why, shut := f.shutHours(clocks, at); shut {
		return why, true
	}
	for _, r := range f.Rules {
		for _, c := range r.Caps {
			if binds(r, at) && c.Free(f.Dials, at).After(at) {
				return obstacle{rule: RuleFrequency, source: r.Source(), text: fmt.Sprintf(
					"This number may be called at most %s in %s (rule: frequency cap, %s).", count(c.Calls, "time"), count(c.Hours,
						"hour"), r.Source())}, true
			}
		}
	}
	return obstacle{}, false
}

func (f Facts) shutHours(clocks []clock, at time.Time) (obstacle, bool) {
	for _, c := range clocks {
		zone, shut := c.Shut(at)
		if !shut {
			continue
		}
		if c.rule == nil {
			return obstacle{rule: RuleWindow, text: fmt.Sprintf("Outside the calling window (%s) in %s (rule: calling window).",
				describe(f.Policy.Window), list(c.Zones))}, true
		}
		return c.explain(zone, window.DateOf(zone.In(at))), true
	}
	return obstacle{}, false
}

// explain tells why a pack's rule is closed on a local day in a zone.
func (c clock) explain(zone window.Zone, day window.Date) obstacle {
	why := obstacle{rule: RulePack, source: c.rule.Source()}
	switch holiday := c.rule.Holiday(day); {
	case c.rule.Expired(day):
		why.rule = RuleExpired
		why.text = fmt.Sprintf("The rules of pack %s are known up to %s (rule: pack expired). Ask the operator to bring the packs up to date.",
			c.rule.Pack, c.rule.CoversUntil)
	case holiday != "":
		why.rule = RuleHoliday
		why.text = fmt.Sprintf("%s is a holiday in %s, %s: %s there (rule: holiday, %s).", day, c.rule.Where(), holiday, c.rule.Describe(day), why.source)
	default:
		why.text = fmt.Sprintf("Outside the calling hours of %s (%s) in %s (rule: calling hours, %s).", c.rule.Where(), c.rule.Describe(day), zone, why.source)
	}
	return why
}

// next is the earliest instant from `from` on at which every clock is open, and still is when a dial that begins then has passed its guard, and no cap is
// used up, within 30 days of it. A request that waits for an opening shorter than that would be moved to the next for ever.
func (f Facts) next(clocks []clock, from time.Time) (time.Time, bool) {
	hours := make([]window.Clock, 0, len(clocks))
	for _, c := range clocks {
		hours = append(hours, c.Clock)
	}
	for at, limit := from, from.Add(window.Horizon); ; {
		opens, ok := window.Next(hours, at, limit)
		if !ok || opens.After(limit) {
			return time.Time{}, false
		}
		if at = f.free(opens); !at.Equal(opens) {
			continue
		}
		if _, shut := f.shutHours(clocks, at.Add(guard)); !shut {
			return at.UTC(), true
		}
		at = at.Add(guard)
	}
}

// free is the earliest instant from at on at which no cap is used up.
func (f Facts) free(at time.Time) time.Time {
	for moved := true; moved; {
		moved = false
		for _, r := range f.Rules {
			for _, c := range r.Caps {
				if later := c.Free(f.Dials, at); binds(r, at) && later.After(at) {
					at, moved = later, true
				}
			}
		}
	}
	return at
}

// binds says whether a rule is in force at an instant somewhere on earth: it may be yesterday or tomorrow there.
func binds(r countryrules.Rule, at time.Time) bool {
	day := window.DateOf(at.UTC())
	return r.Holds(day) || r.Holds(day.AddDays(-1)) || r.Holds(day.AddDays(1))
}

// zones are those by which the workspace's own window is read.
func (f Facts) zones() []window.Zone {
	if f.Policy.Timezone == policy.Recipient {
		return f.recipientZones()
	}
	zone, err := window.LoadZone(f.Policy.Timezone)
	if err != nil {
		return nil
	}
	return []window.Zone{zone}
}

// recipientZones are every one the callee may be in.
func (f Facts) recipientZones() []window.Zone { return RecipientZones(f, f.NumberZones) }

// RecipientZones unites a number's zones with the contact's own; facts hold the number's only where the policy asks for them.
func RecipientZones(f Facts, zones []window.Zone) []window.Zone {
	if f.ContactZone == nil {
		return zones
	}
	for _, z := range zones {
		if z.String() == f.ContactZone.String() {
			return zones
		}
	}
	return append(zones[:len(zones):len(zones)], *f.ContactZone)
}

func describe(w window.Window) string {
	text := w.Start.String() + "–" + w.End.String()
	if w.Days == window.EveryDay {
		return text
	}
	names, _ := w.Days.MarshalJSON()
	return text + " on " + strings.NewReplacer("[", "", "]", "", `"`, "", ",", ", ").Replace(string(names))
}

// list names at most three zones: some numbers have a dozen.
func list(zones []window.Zone) string {
	names := make([]string, 0, 3)
	for i, z := range zones {
		if i == 3 {
			return fmt.Sprintf("%s and %s", strings.Join(names, ", "), count(len(zones)-3, "more time zone"))
		}
		names = append(names, z.String())
	}
	return strings.Join(names, ", ")
}

// count formats a number with its noun in the singular or plural: 1 hour, 2 hours.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
