package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// Name is the name of a gate in the API.
type Name string

// These are the gates, in the order in which a report lists them.
const (
	GateContact     Name = "contact" // listed only if the contact_id of the request is wrong
	GateDestination Name = "destination"
	GateOptOut      Name = "opt_out"
	GateConsent     Name = "consent"
	GateTimeZone    Name = "time_zone"
	GateWindow      Name = "calling_window"
	GatePackHours   Name = "pack_hours" // listed only if the policy has policy packs
	GateFrequency   Name = "frequency"
)

// GateResult is the result of one gate. Only a call whose gates all passed may be placed.
type GateResult string

// These are the results of a gate.
const (
	Passed  GateResult = "passed"
	Failed  GateResult = "failed"
	Skipped GateResult = "skipped" // the gate needs the time zone, which is not known
)

// GateReport states what one gate checked, and why it passed or failed. It is stored with the
// decision.
type GateReport struct {
	Gate    Name       `json:"gate"`
	Result  GateResult `json:"result"`
	Checked string     `json:"checked"`
	Reason  string     `json:"reason"`
}

// Subject contains the inputs of a report that are not in Facts.
type Subject struct {
	Number phone.Number
	// Zones are all time zones in which the person may be.
	Zones []window.Zone
	// Destinations are the number prefixes that the workspace may call. An empty list means that
	// every number is allowed. A nil pointer means that the caller does not know the list.
	Destinations *[]string
}

// RefusedDestination returns the outcome for a number of a kind that is never dialed, or outside of
// the workspace's destinations. refused is false for every other number.
func (s Subject) RefusedDestination() (v Outcome, refused bool) {
	if kind := s.Number.Forbidden(); kind != "" {
		return denied(RuleKind, codeDestination,
			"Numbers of this kind ("+kind+") are never dialled. Use another number."), true
	}
	if s.isOutsideDestinations() {
		return denied(RuleKind, codeDestination,
			"The number is outside the destinations this workspace calls. Use a number with an allowed prefix."), true
	}
	return Outcome{}, false
}

func (s Subject) isOutsideDestinations() bool {
	return s.Destinations != nil && len(*s.Destinations) > 0 && !s.Number.HasPrefix(*s.Destinations)
}

// Report evaluates every gate and returns one report per gate, even after a gate has failed.
func Report(f Facts, s Subject) []GateReport {
	reports := make([]GateReport, 0, 7)
	if f.Named != "" {
		reason := "the contact_id of the request names no contact of this workspace"
		if f.Named == NamedOther {
			reason = "the contact_id of the request names a contact with another number"
		}
		reports = append(reports, GateReport{GateContact, Failed, "contact_id", reason})
	}
	reports = append(reports, s.destination(), f.optOut(), f.consent())
	clocks := f.requiredClocks()
	zone := f.timeZone(clocks, s)
	reports = append(reports, zone, f.callingWindow(clocks, s))
	if len(f.Rules) > 0 {
		reports = append(reports, f.packHours(clocks))
	}
	return append(reports, f.frequency())
}

func (s Subject) destination() GateReport {
	report := GateReport{GateDestination, Passed, string(s.Number), "numbers of this kind can be called"}
	if kind := s.Number.Forbidden(); kind != "" {
		report.Result, report.Reason = Failed, "numbers of this kind ("+kind+") are never called"
		return report
	}
	switch {
	case s.Destinations == nil:
	case len(*s.Destinations) == 0:
		report.Reason += ", and the workspace has no list of destinations"
	case s.isOutsideDestinations():
		report.Result, report.Reason = Failed, "the number has no prefix of the workspace's destinations"
	default:
		report.Reason += ", and the number has a prefix of the workspace's destinations"
	}
	return report
}

func (f Facts) optOut() GateReport {
	report := GateReport{GateOptOut, Passed, "dnd_status " + string(f.DND), "no opt-out on record"}
	switch f.DND {
	case contacts.DNDUnknown:
	case contacts.Clean:
		report.Reason = "the opt-out was removed"
	case contacts.OptedOut:
		report.Result, report.Reason = Failed, "an opt-out is on record"
	default:
		report.Result, report.Reason = Failed, "this version does not know the state"
	}
	return report
}

func (f Facts) consent() GateReport {
	report := GateReport{GateConsent, Passed, "consent_status " + string(f.Consent), ""}
	needed := slices.IndexFunc(f.Rules, func(r countryrules.Rule) bool {
		return r.Consent != countryrules.NoConsent && mayBeInForce(r, f.At)
	})
	switch {
	case f.Consent == contacts.Consented:
		report.Reason = "consent is on record"
	case f.Consent == contacts.Withdrawn:
		report.Result, report.Reason = Failed, "consent was withdrawn"
	case f.Consent != contacts.ConsentUnknown:
		report.Result, report.Reason = Failed, "this version does not know the state"
	case needed >= 0:
		r := f.Rules[needed]
		report.Result = Failed
		report.Reason = fmt.Sprintf("%s needs %s consent, and none is on record (%s)", r.Where(), r.Consent, r.Source())
	default:
		report.Reason = "no withdrawal on record, and no consent is required"
	}
	return report
}

func (f Facts) timeZone(clocks []clock, s Subject) GateReport {
	report := GateReport{Gate: GateTimeZone, Result: Passed, Checked: "none"}
	if slices.ContainsFunc(clocks, func(c clock) bool { return len(c.Zones) == 0 }) {
		report.Result = Failed
		report.Reason = "no time zone of this number is known; set metadata.time_zone of its contact"
		return report
	}
	zones := s.Zones
	if f.Policy.NeedsZones() {
		zones = f.recipientZones()
	}
	switch {
	case f.Policy.Timezone != RecipientTimezone && !f.Policy.PackHours():
		report.Checked, report.Reason = f.Policy.Timezone, "the calling window uses the time zone of the workspace"
		return report
	case len(zones) == 0:
		report.Reason = "no time zone is needed, because every hour is open"
		return report
	case len(zones) == 1:
		report.Reason = "the time zone of the number or its contact is known"
	default:
		report.Reason = fmt.Sprintf("the person can be in %d time zones", len(zones))
	}
	report.Checked = zoneList(zones)
	if f.Policy.Timezone != RecipientTimezone {
		report.Reason += ", and the calling window uses " + f.Policy.Timezone
	}
	return report
}

func (f Facts) callingWindow(clocks []clock, s Subject) GateReport {
	hours := describe(f.Policy.Window)
	report := GateReport{Gate: GateWindow, Result: Passed}
	if f.Policy.Window.Always() {
		zones := s.Zones
		if f.Policy.Timezone != RecipientTimezone {
			zones = f.zones()
		}
		report.Checked = localDays(zones, f.At)
		report.Reason = strings.TrimPrefix(localTimes(zones, f.At)+", window "+hours, ", ")
		return report
	}
	own := clocks[0] // the workspace's window is the first clock, unless it is always open
	report.Checked = localDays(own.Zones, f.At)
	if len(own.Zones) == 0 {
		report.Result, report.Reason = Skipped, "the time zone is not known, window "+hours
		return report
	}
	report.Reason = localTimes(own.Zones, f.At) + ", window " + hours
	if zone, closed := own.ClosedIn(f.At); closed {
		report.Result = Failed
		report.Reason = localTimes([]window.Zone{zone}, f.At) + ", outside the window " + hours
	} else if zone, closed := own.ClosedIn(f.At.Add(dialMargin)); closed && f.Stage == Dial {
		report.Result = Failed
		report.Reason = localTimes([]window.Zone{zone}, f.At) + ", the window " + hours + " closes in less than a minute"
	}
	return report
}

// packHours reports on the hours, the holidays and the expiry of the policy packs' rules.
func (f Facts) packHours(clocks []clock) GateReport {
	report := GateReport{Gate: GatePackHours, Result: Passed, Checked: strings.Join(f.Policy.Packs, ", ")}
	if f.Policy.Override != nil {
		report.Reason = "the calling window replaces the hours of the packs: " + f.Policy.Override.Reason
		return report
	}
	zones := f.recipientZones()
	var open []string
	for _, c := range clocks {
		if c.rule == nil {
			continue
		}
		if len(c.Zones) == 0 {
			report.Result, report.Reason = Skipped, "the time zone is not known"
			return report
		}
		at := f.At
		zone, closed := c.ClosedIn(at)
		if !closed && f.Stage == Dial {
			at = f.At.Add(dialMargin)
			zone, closed = c.ClosedIn(at)
		}
		if closed {
			report.Result = Failed
			report.Reason = localTimes([]window.Zone{zone}, f.At) + ": " +
				c.closedReason(zone, window.DateOf(zone.In(at))).text
			return report
		}
		today := window.DateOf(zones[0].In(f.At))
		if text := c.rule.Where() + " " + c.rule.Describe(today); len(open) < maxListed && !slices.Contains(open, text) {
			open = append(open, text)
		}
	}
	if len(open) == 0 {
		report.Reason = "every hour is open"
		return report
	}
	report.Reason = localTimes(zones, f.At) + ", hours of " + strings.Join(open, "; ")
	return report
}

func (f Facts) frequency() GateReport {
	report := GateReport{GateFrequency, Passed, "no cap", "no frequency cap applies"}
	var counts []string
	for _, r := range f.Rules {
		for _, c := range r.Caps {
			if !mayBeInForce(r, f.At) {
				continue
			}
			text := fmt.Sprintf("%s in %s, cap %d", plural(f.dialsWithin(c), "call"), plural(c.Hours, "hour"), c.Calls)
			if c.FreeAt(f.Dials, f.At).After(f.At) {
				return GateReport{GateFrequency, Failed, text, "the frequency cap is reached (" + r.Source() + ")"}
			}
			if len(counts) < maxListed && !slices.Contains(counts, text) {
				counts = append(counts, text)
			}
		}
	}
	if len(counts) > 0 {
		report.Checked, report.Reason = strings.Join(counts, "; "), "the frequency cap is not reached"
	}
	return report
}

// dialsWithin returns the number of recent dials in the period of the cap.
func (f Facts) dialsWithin(c countryrules.Cap) (calls int) {
	for _, dial := range f.Dials {
		if dial.Add(time.Duration(c.Hours) * time.Hour).After(f.At) {
			calls++
		}
	}
	return calls
}

// localTimes describes a time in each zone: "02:45 in Los Angeles". Zones with the same local time
// are listed once.
func localTimes(zones []window.Zone, at time.Time) string {
	return listLocal(zones, func(z window.Zone) string { return z.In(at).Format("15:04") }, city)
}

// localDays describes a time in each zone, with its day and the IANA name of the zone.
func localDays(zones []window.Zone, at time.Time) string {
	if len(zones) == 0 {
		return at.UTC().Format("Mon 2006-01-02 15:04") + " in UTC"
	}
	return listLocal(
		zones,
		func(z window.Zone) string { return z.In(at).Format("Mon 2006-01-02 15:04") },
		window.Zone.String,
	)
}

// maxListed is the maximum number of local times that a report lists.
const maxListed = 3

func listLocal(zones []window.Zone, local, name func(window.Zone) string) string {
	var texts, seen []string
	for _, z := range zones {
		shown := local(z)
		if slices.Contains(seen, shown) {
			continue
		}
		if seen = append(seen, shown); len(texts) < maxListed {
			texts = append(texts, shown+" in "+name(z))
		}
	}
	if more := len(seen) - len(texts); more > 0 {
		return fmt.Sprintf("%s and %s", strings.Join(texts, ", "), plural(more, "more local time"))
	}
	return strings.Join(texts, ", ")
}

// city returns the last part of the name of a zone: "Los Angeles" for America/Los_Angeles.
func city(z window.Zone) string {
	name := z.String()
	return strings.ReplaceAll(name[strings.LastIndex(name, "/")+1:], "_", " ")
}
