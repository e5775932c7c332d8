package gate_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

func zones(t interface{ Fatal(...any) }, names ...string) []window.Zone {
	loaded := []window.Zone{}
	for _, name := range names {
		z, err := window.LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded = append(loaded, z)
	}
	return loaded
}

// allowedFacts returns facts that every gate allows. The number is in New York, the time is noon,
// and the policy is the default policy.
func allowedFacts(t *testing.T) gate.Facts {
	return gate.Facts{
		Stage: gate.PreCheck, At: time.Date(2026, 6, 15, 16, 0, 0, 0, time.UTC), DND: contacts.DNDUnknown,
		Consent: contacts.ConsentUnknown,
		Policy:  gate.DefaultPolicy(), NumberZones: zones(t, "America/New_York"),
	}
}

func at(hour, minute, second int) time.Time {
	return time.Date(2026, 6, 15, hour, minute, second, 0, time.UTC)
}

func TestEvaluate_AppliesEachGate(t *testing.T) {
	t.Parallel()
	allDay := gate.Policy{Window: window.Window{Start: 0, End: window.Midnight, Days: window.EveryDay},
		Timezone: gate.RecipientTimezone}
	tomorrow := time.Date(2026, 6, 16, 13, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		facts  func(*gate.Facts)
		result gate.Result
		code   string
		rule   gate.Rule
		at     time.Time // zero means the wanted time
	}{
		{name: "unknown DND and consent are allowed", facts: func(*gate.Facts) {}, result: gate.Open, rule: gate.RuleNone},
		{name: "a removed opt-out is allowed", facts: func(f *gate.Facts) { f.DND = contacts.Clean }, result: gate.Open,
			rule: gate.RuleNone},
		{name: "a consented contact is allowed", facts: func(f *gate.Facts) { f.Consent = contacts.Consented },
			result: gate.Open, rule: gate.RuleNone},
		{name: "an opted-out number is denied", facts: func(f *gate.Facts) { f.DND = contacts.OptedOut }, result: gate.Denied,
			code: "recipient_dnd", rule: gate.RuleDND},
		{name: "a DND value of a newer build is denied", facts: func(f *gate.Facts) { f.DND = "registry" },
			result: gate.Denied, code: "recipient_dnd", rule: gate.RuleDND},
		{name: "withdrawn consent is denied",
			facts: func(f *gate.Facts) { f.Consent = contacts.Withdrawn }, result: gate.Denied,
			code: "consent_withdrawn", rule: gate.RuleConsent},
		{name: "an empty consent state is denied", facts: func(f *gate.Facts) { f.Consent = "" }, result: gate.Denied,
			code: "consent_withdrawn", rule: gate.RuleConsent},
		{name: "an opt-out takes precedence over a withdrawal",
			facts: func(f *gate.Facts) { f.DND, f.Consent = contacts.OptedOut, contacts.Withdrawn }, result: gate.Denied,
			code: "recipient_dnd", rule: gate.RuleDND},
		{name: "an opt-out takes precedence over the hours", facts: func(f *gate.Facts) {
			f.DND, f.At = contacts.OptedOut,
				at(3, 0, 0)
		}, result: gate.Denied, code: "recipient_dnd", rule: gate.RuleDND},
		{name: "an opt-out is denied even if the request permits deferral", facts: func(f *gate.Facts) {
			f.DND, f.At, f.DeferIfClosed = contacts.OptedOut,
				at(3, 0, 0), true
		}, result: gate.Denied, code: "recipient_dnd", rule: gate.RuleDND},
		{name: "the window is open at 09:00", facts: func(f *gate.Facts) { f.At = at(13, 0, 0) }, result: gate.Open,
			rule: gate.RuleNone},
		{name: "the window is closed a second before 09:00",
			facts: func(f *gate.Facts) { f.At = at(12, 59, 59) }, result: gate.Denied,
			code: "outside_calling_hours", rule: gate.RuleWindow},
		{name: "the window is closed at 20:00", facts: func(f *gate.Facts) { f.At = at(0, 0, 0).AddDate(0, 0, 1) },
			result: gate.Denied, code: "outside_calling_hours", rule: gate.RuleWindow},
		{name: "a deferred call gets the time of the next opening",
			facts: func(f *gate.Facts) { f.At, f.DeferIfClosed = at(12, 0, 0), true }, result: gate.Deferred,
			rule: gate.RuleWindow, at: at(13, 0, 0)},
		{name: "the pre-check allows the last second of the window",
			facts: func(f *gate.Facts) { f.At = at(23, 59, 59) }, result: gate.Open,
			rule: gate.RuleNone},
		{name: "the dial-time check denies the last minute of the window", facts: func(f *gate.Facts) {
			f.Stage, f.At = gate.Dial,
				at(23, 59, 30)
		}, result: gate.Denied, code: "outside_calling_hours", rule: gate.RuleWindow},
		{name: "in the last minute, the dial-time check defers to the next day",
			facts:  func(f *gate.Facts) { f.Stage, f.At, f.DeferIfClosed = gate.Dial, at(23, 59, 30), true },
			result: gate.Deferred, rule: gate.RuleWindow, at: tomorrow},
		{name: "the dial-time check allows a dial two minutes before the end",
			facts: func(f *gate.Facts) { f.Stage, f.At = gate.Dial, at(23, 58, 0) }, result: gate.Open, rule: gate.RuleNone},
		{name: "a number without a known zone is denied",
			facts: func(f *gate.Facts) { f.NumberZones = nil }, result: gate.Denied,
			code: "outside_calling_hours", rule: gate.RuleZone},
		{name: "an unknown zone is denied even if the request permits deferral",
			facts:  func(f *gate.Facts) { f.NumberZones, f.DeferIfClosed = nil, true },
			result: gate.Denied, code: "outside_calling_hours", rule: gate.RuleZone},
		{name: "the zone of the contact is enough", facts: func(f *gate.Facts) {
			f.NumberZones, f.ContactZone = nil,
				&zones(t, "Europe/Berlin")[0]
		}, result: gate.Open, rule: gate.RuleNone},
		{name: "both the contact's zone and the number's zone must be open",
			facts: func(f *gate.Facts) { f.ContactZone = &zones(t, "Asia/Tokyo")[0] }, result: gate.Denied,
			code: "outside_calling_hours", rule: gate.RuleNoOpening},
		{name: "the window must be open in all zones of the number", facts: func(f *gate.Facts) {
			f.At, f.NumberZones = at(13, 30, 0), zones(t, "America/New_York", "America/Los_Angeles")
		}, result: gate.Denied, code: "outside_calling_hours", rule: gate.RuleWindow},
		{name: "a window that is always open needs no zone",
			facts:  func(f *gate.Facts) { f.Policy, f.NumberZones = allDay, nil },
			result: gate.Open, rule: gate.RuleNone},
		{name: "a window that is always open does not allow an opted-out number", facts: func(f *gate.Facts) {
			f.Policy, f.DND = allDay,
				contacts.OptedOut
		}, result: gate.Denied, code: "recipient_dnd", rule: gate.RuleDND},
		{name: "a policy with its own zone needs no zone of the number", facts: func(f *gate.Facts) {
			f.Policy.Timezone,
				f.NumberZones = "Europe/Berlin", nil
		}, result: gate.Open, rule: gate.RuleNone},
		{name: "the policy's zone replaces the recipient's zones",
			facts: func(f *gate.Facts) { f.Policy.Timezone = "Asia/Tokyo" }, result: gate.Denied, code: "outside_calling_hours",
			rule: gate.RuleWindow},
		{name: "a weekday without calls is denied",
			facts:  func(f *gate.Facts) { f.Policy.Window.Days, _ = window.ParseDays([]string{"tue"}) },
			result: gate.Denied, code: "outside_calling_hours", rule: gate.RuleWindow},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := allowedFacts(t)
			tt.facts(&f)
			want := tt.at
			if want.IsZero() && tt.result == gate.Open {
				want = f.At
			}
			v := gate.Evaluate(f)
			if v.Result != tt.result {
				t.Errorf("Evaluate: v.Result = %v, want %v", v.Result, tt.result)
			}
			if v.Code != tt.code {
				t.Errorf("Evaluate: v.Code = %v, want %v", v.Code, tt.code)
			}
			if v.Rule != tt.rule {
				t.Errorf("Evaluate: v.Rule = %v, want %v", v.Rule, tt.rule)
			}
			if !v.At.Equal(want) {
				t.Errorf("Evaluate: v.At = %v, want %v", v.At, want)
			}
			if (v.Message == "") != (tt.result != gate.Denied) {
				t.Errorf("message = %q, want one only if the call is denied", v.Message)
			}
		})
	}
}

func TestEvaluate_UnknownZoneMessageNamesTheMetadataField(t *testing.T) {
	t.Parallel()
	f := allowedFacts(t)
	f.NumberZones = nil
	if v := gate.Evaluate(f); !strings.Contains(v.Message, "metadata.time_zone") {
		t.Errorf("message = %q, want it to contain metadata.time_zone", v.Message)
	}
}

// The facts are encoded as JSON and decoded again. The outcome must be the same.
func TestEvaluate_StoredFactsReproduceTheOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		stored, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back gate.Facts
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if first, again := gate.Evaluate(f), gate.Evaluate(back); !reflect.DeepEqual(first, again) {
			t.Fatalf("Evaluate = %+v, from stored facts = %+v", first, again)
		}
	})
}

func drawFacts(t *rapid.T) gate.Facts {
	names := []string{"America/New_York", "Europe/London", "Asia/Kolkata", "Australia/Sydney"}
	start := rapid.IntRange(0, 1438).Draw(t, "start")
	f := gate.Facts{
		Stage: rapid.SampledFrom([]gate.Stage{gate.PreCheck, gate.Dial}).Draw(t, "stage"),
		At:    time.Unix(rapid.Int64Range(1780000000, 1800000000).Draw(t, "at"), 0).UTC(),
		DND:   rapid.SampledFrom([]contacts.DND{contacts.DNDUnknown, contacts.Clean, contacts.OptedOut}).Draw(t, "dnd"),
		Consent: rapid.SampledFrom([]contacts.Consent{contacts.ConsentUnknown, contacts.Consented, contacts.Withdrawn}).Draw(
			t, "consent"),
		Policy: gate.Policy{
			Window: window.Window{
				Start: window.Minute(start), End: window.Minute(rapid.IntRange(start+1, 1440).Draw(t, "end")),
				Days: window.Days(rapid.IntRange(1, 127).Draw(t, "days")), //nolint:gosec // fits into 7 bits
			},
			Timezone: rapid.SampledFrom([]string{gate.RecipientTimezone, "Europe/Paris"}).Draw(t, "timezone"),
		},
		NumberZones: zones(t, rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID[string]).Draw(t,
			"zones")...),
		DeferIfClosed: rapid.Bool().Draw(t, "waits"),
	}
	if number := phone.Number(rapid.SampledFrom([]string{"", "+13055551234", "+33123456789", "+12255551234",
		"+18005551234"}).Draw(t, "number")); number != "" {
		place := number.Place()
		f.Policy.Packs, f.Place = []string{"us", "fr"}, &place
		f.Rules = library(t).For(f.Policy.Choices(), place)
		for _, minutes := range rapid.SliceOfN(rapid.IntRange(0, 40_000), 0, 5).Draw(t, "dialled minutes before") {
			f.Dials = append(f.Dials, f.At.Add(-time.Duration(minutes)*time.Minute))
		}
		if rapid.Bool().Draw(t, "overridden") {
			f.Policy.Override = &gate.Override{Reason: "x", Operator: "ann"}
		}
	}
	if rapid.Bool().Draw(t, "own zone") {
		f.ContactZone = &zones(t, rapid.SampledFrom(names).Draw(t, "contact zone"))[0]
	}
	return f
}
