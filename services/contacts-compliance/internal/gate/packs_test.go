package gate_test

import (
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

func library(t interface{ Fatal(...any) }) countryrules.Library {
	l, err := countryrules.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// withPacks returns facts with the given policy packs. The contact has consented. The time is noon
// in New York on a Monday.
func withPacks(t interface{ Fatal(...any) }, number phone.Number, packs ...string) gate.Facts {
	f := gate.Facts{
		Stage: gate.PreCheck, At: time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC), DND: contacts.Clean,
		Consent: contacts.Consented,
		Policy: gate.Policy{Window: window.Window{Start: 0, End: window.Midnight, Days: window.EveryDay},
			Timezone: gate.RecipientTimezone, Packs: packs},
	}
	place := number.Place()
	f.Place, f.Rules, f.NumberZones = &place, library(t).For(f.Policy.Choices(), place), window.Zones(number.Zones())
	return f
}

func TestEvaluate_AppliesTheRulesOfPolicyPacks(t *testing.T) {
	t.Parallel()
	utc := func(text string) time.Time {
		at, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	ago := func(f *gate.Facts, hours ...int) {
		for _, h := range hours {
			f.Dials = append(f.Dials, f.At.Add(-time.Duration(h)*time.Hour))
		}
	}
	const newYork, miami, dallas, mobile, pensacola, paris, tollFree = "+12125552671", "+13055551234", "+12145551234",
		"+12075551234", "+18505551234", "+33123456789", "+18005551234"
	tests := []struct {
		name   string
		number phone.Number
		packs  []string
		change func(*gate.Facts)
		result gate.Result
		rule   gate.Rule
		// next is the time of a deferred call. For a denied call, it is the time that the message
		// contains. It is empty if the test checks neither.
		next string
	}{
		{name: "within the federal hours a call is allowed",
			number: newYork, packs: []string{"us"}, change: func(*gate.Facts) {},
			result: gate.Open},
		{name: "a pack refuses a call without recorded consent", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { f.Consent = contacts.ConsentUnknown }, result: gate.Denied,
			rule: gate.RuleConsentNeeded},
		{name: "a pack refuses a service call without recorded consent", number: newYork, packs: []string{"us:service"},
			change: func(f *gate.Facts) { f.Consent = contacts.ConsentUnknown }, result: gate.Denied,
			rule: gate.RuleConsentNeeded},
		{name: "a pack without a consent rule allows the call", number: newYork, packs: []string{"default"},
			change: func(f *gate.Facts) { f.Consent = contacts.ConsentUnknown }, result: gate.Open},
		{name: "before the federal hours a call is denied", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At = utc("2026-11-23 12:59") }, result: gate.Denied, rule: gate.RulePack,
			next: "2026-11-23 13:00"},
		{name: "Florida closes at 20:00", number: miami, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At, f.DeferIfClosed = utc("2026-11-24 01:00"), true }, result: gate.Deferred,
			rule: gate.RulePack, next: "2026-11-24 13:00"},
		{name: "New York closes at 21:00", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At = utc("2026-11-24 01:00") }, result: gate.Open},
		{name: "Florida has no rule for service calls", number: miami, packs: []string{"us:service"},
			change: func(f *gate.Facts) { f.At = utc("2026-11-24 01:00") }, result: gate.Open},
		{name: "Texas opens at noon on Sundays", number: dallas, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At, f.DeferIfClosed = utc("2026-11-22 17:59"), true }, result: gate.Deferred,
			rule: gate.RulePack, next: "2026-11-22 18:00"},
		{name: "in Florida's panhandle, both zones must be open", number: pensacola, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At, f.DeferIfClosed = utc("2026-11-23 13:30"), true }, result: gate.Deferred,
			rule: gate.RulePack, next: "2026-11-23 14:00"},
		{name: "a narrower workspace window applies", number: newYork, packs: []string{"us"}, change: func(f *gate.Facts) {
			f.Policy.Window, f.DeferIfClosed = window.Window{Start: 18 * 60, End: 19 * 60, Days: window.EveryDay}, true
		}, result: gate.Deferred, rule: gate.RuleWindow, next: "2026-11-23 23:00"},
		{name: "an override replaces the hours of the pack", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) {
				f.Policy.Override, f.Policy.Window, f.At = &gate.Override{Reason: "staff"},
					window.Window{Start: 0, End: 23 * 60, Days: window.EveryDay}, utc("2026-11-24 03:00")
			}, result: gate.Open},
		{name: "an override does not replace the required consent",
			number: newYork, packs: []string{"us"}, change: func(f *gate.Facts) {
				f.Policy.Override, f.Consent = &gate.Override{Reason: "staff"}, contacts.ConsentUnknown
			}, result: gate.Denied, rule: gate.RuleConsentNeeded},
		{name: "the midday break in France is closed", number: paris, packs: []string{"fr"},
			change: func(f *gate.Facts) { f.At, f.DeferIfClosed = utc("2026-11-23 12:00"), true }, result: gate.Deferred,
			rule: gate.RulePack, next: "2026-11-23 13:00"},
		{name: "France is closed on a holiday", number: paris, packs: []string{"fr"},
			change: func(f *gate.Facts) { f.At, f.DeferIfClosed = utc("2026-12-25 10:00"), true }, result: gate.Deferred,
			rule: gate.RuleHoliday, next: "2026-12-28 09:00"},
		{name: "a country that is in no chosen pack uses the fallback pack", number: paris, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At = utc("2026-11-23 19:30") }, result: gate.Denied, rule: gate.RulePack,
			next: "2026-11-24 08:00"},
		{name: "a toll-free number has no zone", number: tollFree, packs: []string{"us"}, change: func(*gate.Facts) {},
			result: gate.Denied, rule: gate.RuleZone},
		{name: "a toll-free number with a zone needs the hours of every state", number: tollFree, packs: []string{"us"},
			change: func(f *gate.Facts) {
				f.ContactZone, f.DeferIfClosed = &zones(t, "America/New_York")[0], true
				f.At = utc("2026-11-22 18:00")
			}, result: gate.Deferred, rule: gate.RulePack, next: "2026-11-23 15:00"},
		{name: "a day after the pack's covers_until is denied", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { f.At = utc("2029-01-02 17:00") }, result: gate.Denied, rule: gate.RuleExpired},
		{name: "two of three calls in Florida are below the cap", number: miami, packs: []string{"us"},
			change: func(f *gate.Facts) { ago(f, 1, 2) }, result: gate.Open},
		{name: "three of three calls in Florida reach the cap", number: miami, packs: []string{"us"},
			change: func(f *gate.Facts) { ago(f, 1, 2, 20); f.DeferIfClosed = true }, result: gate.Deferred,
			rule: gate.RuleFrequency, next: "2026-11-23 21:00"},
		{name: "a cap that ends at night defers to the morning", number: miami, packs: []string{"us"},
			change: func(f *gate.Facts) { ago(f, 1, 2, 12); f.DeferIfClosed = true }, result: gate.Deferred,
			rule: gate.RuleFrequency, next: "2026-11-24 13:00"},
		{name: "one call in eight hours in Maine reaches the cap", number: mobile, packs: []string{"us"},
			change: func(f *gate.Facts) { ago(f, 3) }, result: gate.Denied, rule: gate.RuleFrequency, next: "2026-11-24 14:00"},
		{name: "New York has no cap", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { ago(f, 1, 1, 1, 1) }, result: gate.Open},
		{name: "an opt-out takes precedence over a pack", number: newYork, packs: []string{"us"},
			change: func(f *gate.Facts) { f.DND, f.Consent = contacts.OptedOut, contacts.ConsentUnknown }, result: gate.Denied,
			rule: gate.RuleDND},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := withPacks(t, tt.number, tt.packs...)
			tt.change(&f)
			v := gate.Evaluate(f)
			if v.Result != tt.result {
				t.Fatalf("Evaluate: v.Result = %v, want %v", v.Result, tt.result)
			}
			if v.Rule != tt.rule {
				t.Fatalf("Evaluate: v.Rule = %v, want %v", v.Rule, tt.rule)
			}
			if tt.next == "" {
				return
			}
			next := utc(tt.next)
			if v.Result == gate.Deferred && !v.At.Equal(next) {
				t.Errorf("next: v.At = %v, want %v", v.At, next)
			} else if v.Result == gate.Denied && !strings.Contains(v.Message, next.Format(time.RFC3339)) {
				t.Errorf("next: v.Message = %q, want it to contain %q", v.Message, next.Format(time.RFC3339))
			}
		})
	}
}

// The rule requires consent only on some local dates. Consent is required while such a date is the
// local date anywhere on earth.
func TestEvaluate_RequiresConsentOnEveryLocalDateOfTheRule(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		at          string
		from, until window.Date
		needed      bool
	}{
		// it is already the 24th in Auckland
		{at: "2026-11-23T12:30:00Z", from: window.Date{Year: 2026, Month: 11, Day: 24}, needed: true},
		{at: "2026-11-22T12:30:00Z", from: window.Date{Year: 2026, Month: 11, Day: 24}},
		// it is still the 23rd in Honolulu
		{at: "2026-11-24T06:00:00Z", until: window.Date{Year: 2026, Month: 11, Day: 24}, needed: true},
		{at: "2026-11-25T13:00:00Z", until: window.Date{Year: 2026, Month: 11, Day: 24}},
	} {
		f := withPacks(t, "+12125552671", "us")
		at, err := time.Parse(time.RFC3339, row.at)
		if err != nil {
			t.Fatal(err)
		}
		f.At, f.Consent, f.Rules[0].From, f.Rules[0].Until = at, contacts.ConsentUnknown, row.from, row.until
		if v := gate.Evaluate(f); (v.Rule == gate.RuleConsentNeeded) != row.needed {
			t.Errorf("at %s, a rule from %s until %s: %+v, want consent needed %t", row.at, row.from, row.until, v, row.needed)
		}
	}
}

// If there is no opening within 30 days, the call is denied
// (docs/reference/api/call-requests.md#closed-calling-window).
func TestEvaluate_SearchesThirtyDaysAhead(t *testing.T) {
	t.Parallel()
	for days, want := range map[int]gate.Result{29: gate.Deferred, 30: gate.Deferred, 31: gate.Denied} {
		f := withPacks(t, "+12125552671", "us")
		f.At, f.DeferIfClosed, f.NumberZones = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), true, zones(t, "UTC")
		shut := f.Rules[0] // closed all day until the rule ends
		shut.Week, shut.Until = countryrules.Week{}, window.DateOf(f.At.AddDate(0, 0, days))
		f.Rules = []countryrules.Rule{shut}
		v := gate.Evaluate(f)
		if v.Result != want {
			t.Errorf("an opening %d days ahead: v.Result = %v, want %v", days, v.Result, want)
		}
		if want == gate.Deferred && !v.At.Equal(f.At.AddDate(0, 0, days)) {
			t.Errorf("an opening %d days ahead: Evaluate = %+v, want %s", days, v, want)
		}
		if want == gate.Denied && v.Rule != gate.RuleNoOpening {
			t.Errorf("an opening %d days ahead: Evaluate = %+v, want %s", days, v, want)
		}
	}
}
