package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// clock is a set of open hours with its time zones. A call is allowed only while every clock is
// open. rule is nil for the workspace's own window.
type clock struct {
	window.Clock
	rule *countryrules.Rule
}

// requiredClocks returns the clocks that must be open: the workspace's window and, unless the
// policy has an override, the rules of the policy packs. A clock that is always open is left out,
// because it needs no time zone.
func (f Facts) requiredClocks() []clock {
	var all []clock
	if !f.Policy.Window.Always() {
		all = append(all, clock{Clock: window.Clock{Hours: f.Policy.Window, Zones: f.zones()}})
	}
	if f.Policy.Override != nil {
		return all
	}
	zones := f.recipientZones()
	// lastDay is later than every result of nextOpening. A rule that expires before lastDay needs a
	// clock, even if its hours are always open.
	lastDay := window.DateOf(f.At.UTC().Add(window.Horizon)).AddDays(2)
	for i := range f.Rules {
		if r := &f.Rules[i]; !r.Always() || r.Expired(lastDay) {
			all = append(all, clock{Clock: window.Clock{Hours: r, Zones: zones}, rule: r})
		}
	}
	return all
}

// evaluateHours evaluates the calling window, the frequency caps, and the hours and holidays of the
// policy packs.
func (f Facts) evaluateHours() Outcome {
	clocks := f.requiredClocks()
	if slices.ContainsFunc(clocks, func(c clock) bool { return len(c.Zones) == 0 }) {
		return denied(RuleZone, CodeOutsideHours,
			"The time zone of this number is not known (rule: time zone). Set metadata.time_zone of its contact to an IANA name such as America/Denver.")
	}
	at := f.At
	reason, closed := f.refusal(clocks, at)
	if !closed && f.Stage == Dial {
		// the hours close within dialMargin, so the search for a later opening must start here
		at = f.At.Add(dialMargin)
		reason, closed = f.closedHours(clocks, at)
	}
	if !closed {
		return Outcome{Result: Open, At: f.At}
	}
	next, ok := f.nextOpening(clocks, at)
	switch {
	case !ok:
		return Outcome{Result: Denied, Rule: f.noOpeningRule(reason.rule), Code: CodeOutsideHours, Source: reason.source,
			Message: reason.text +
				" It does not open within 30 days in every time zone this number may be in (" + zoneList(f.recipientZones()) + ")."}
	case f.DeferIfClosed:
		return Outcome{Result: Deferred, Rule: reason.rule, Source: reason.source, At: next}
	default:
		return Outcome{Result: Denied, Rule: reason.rule, Code: CodeOutsideHours, Source: reason.source, Message: fmt.Sprintf(
			"%s It next opens at %s; schedule_if_outside_hours true queues for it.", reason.text,
			next.UTC().Format(time.RFC3339))}
	}
}

// noOpeningRule returns the rule of a denied call if the hours do not open within the search
// period.
func (f Facts) noOpeningRule(reason Rule) Rule {
	if reason == RuleExpired {
		return reason
	}
	return RuleNoOpening
}

// refusal is the reason why a call may not be placed at a time.
type refusal struct {
	rule         Rule
	text, source string
}

func (f Facts) refusal(clocks []clock, at time.Time) (refusal, bool) {
	if reason, closed := f.closedHours(clocks, at); closed {
		return reason, true
	}
	for _, r := range f.Rules {
		for _, c := range r.Caps {
			if mayBeInForce(r, at) && c.FreeAt(f.Dials, at).After(at) {
				return refusal{rule: RuleFrequency, source: r.Source(), text: fmt.Sprintf(
					"This number may be called at most %s in %s (rule: frequency cap, %s).", plural(c.Calls, "time"), plural(c.Hours,
						"hour"), r.Source())}, true
			}
		}
	}
	return refusal{}, false
}

func (f Facts) closedHours(clocks []clock, at time.Time) (refusal, bool) {
	for _, c := range clocks {
		zone, closed := c.ClosedIn(at)
		if !closed {
			continue
		}
		if c.rule == nil {
			return refusal{rule: RuleWindow, text: fmt.Sprintf("Outside the calling window (%s) in %s (rule: calling window).",
				describe(f.Policy.Window), zoneList(c.Zones))}, true
		}
		return c.closedReason(zone, window.DateOf(zone.In(at))), true
	}
	return refusal{}, false
}

// closedReason describes why a rule of a policy pack is closed on a local day in a zone.
func (c clock) closedReason(zone window.Zone, day window.Date) refusal {
	reason := refusal{rule: RulePack, source: c.rule.Source()}
	switch holiday := c.rule.Holiday(day); {
	case c.rule.Expired(day):
		reason.rule = RuleExpired
		reason.text = fmt.Sprintf(
			"The rules of pack %s are known up to %s (rule: pack expired). Ask the operator to bring the packs up to date.",
			c.rule.Pack, c.rule.CoversUntil)
	case holiday != "":
		reason.rule = RuleHoliday
		reason.text = fmt.Sprintf("%s is a holiday in %s, %s: %s there (rule: holiday, %s).", day, c.rule.Where(), holiday,
			c.rule.Describe(day), reason.source)
	default:
		reason.text = fmt.Sprintf("Outside the calling hours of %s (%s) in %s (rule: calling hours, %s).", c.rule.Where(),
			c.rule.Describe(day), zone, reason.source)
	}
	return reason
}

// nextOpening returns the first time, at or after start and within 30 days, at which a call is
// allowed. The hours must still be open after dialMargin, or the dial-time check would defer the
// request again.
func (f Facts) nextOpening(clocks []clock, start time.Time) (time.Time, bool) {
	hours := make([]window.Clock, 0, len(clocks))
	for _, c := range clocks {
		hours = append(hours, c.Clock)
	}
	for at, limit := start, start.Add(window.Horizon); ; {
		opens, ok := window.Next(hours, at, limit)
		if !ok || opens.After(limit) {
			return time.Time{}, false
		}
		if at = f.afterCaps(opens); !at.Equal(opens) {
			continue
		}
		if _, closed := f.closedHours(clocks, at.Add(dialMargin)); !closed {
			return at.UTC(), true
		}
		at = at.Add(dialMargin)
	}
}

// afterCaps returns the first time, at or after start, at which no frequency cap is reached.
func (f Facts) afterCaps(start time.Time) time.Time {
	for moved := true; moved; {
		moved = false
		for _, r := range f.Rules {
			for _, c := range r.Caps {
				if free := c.FreeAt(f.Dials, start); mayBeInForce(r, start) && free.After(start) {
					start, moved = free, true
				}
			}
		}
	}
	return start
}

// mayBeInForce reports whether a rule is in force in at least one time zone. The local date can be
// a day before or after the date in UTC.
func mayBeInForce(r countryrules.Rule, at time.Time) bool {
	day := window.DateOf(at.UTC())
	return r.InForce(day) || r.InForce(day.AddDays(-1)) || r.InForce(day.AddDays(1))
}

func (f Facts) zones() []window.Zone {
	if f.Policy.Timezone == RecipientTimezone {
		return f.recipientZones()
	}
	zone, err := window.LoadZone(f.Policy.Timezone)
	if err != nil {
		return nil
	}
	return []window.Zone{zone}
}

func (f Facts) recipientZones() []window.Zone { return RecipientZones(f, f.NumberZones) }

// RecipientZones returns a number's zones and the contact's own zone, without duplicates.
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

// zoneList names at most three zones, because some numbers have about twelve possible zones.
func zoneList(zones []window.Zone) string {
	names := make([]string, 0, 3)
	for i, z := range zones {
		if i == 3 {
			return fmt.Sprintf("%s and %s", strings.Join(names, ", "), plural(len(zones)-3, "more time zone"))
		}
		names = append(names, z.String())
	}
	return strings.Join(names, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
