package gate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

const california = phone.Number("+14155552671")

// lines returns one line per report: gate, result and reason.
func lines(reports []gate.GateReport) (all []string) {
	for _, r := range reports {
		all = append(all, string(r.Gate)+" "+string(r.Result)+": "+r.Reason)
	}
	return all
}

func TestReport_StatesAReasonForEachGateOfAnAllowedCall(t *testing.T) {
	t.Parallel()
	los := zones(t, "America/Los_Angeles")
	f := gate.Facts{
		Stage: gate.Dial, At: time.Date(2026, 6, 4, 9, 45, 0, 0, time.UTC), DND: contacts.DNDUnknown,
		Consent: contacts.ConsentUnknown, Policy: gate.Policy{Window: window.Window{Start: 0, End: window.Midnight,
			Days: window.EveryDay}, Timezone: gate.RecipientTimezone},
	}
	want := []gate.GateReport{
		{Gate: gate.GateDestination, Result: gate.Passed, Checked: string(california),
			Reason: "numbers of this kind can be called, and the workspace has no list of destinations"},
		{Gate: gate.GateOptOut, Result: gate.Passed, Checked: "dnd_status unknown", Reason: "no opt-out on record"},
		{Gate: gate.GateConsent, Result: gate.Passed, Checked: "consent_status unknown",
			Reason: "no withdrawal on record, and no consent is required"},
		{Gate: gate.GateTimeZone, Result: gate.Passed, Checked: "America/Los_Angeles",
			Reason: "the time zone of the number or its contact is known"},
		{Gate: gate.GateWindow, Result: gate.Passed, Checked: "Thu 2026-06-04 02:45 in America/Los_Angeles",
			Reason: "02:45 in Los Angeles, window 00:00–24:00"},
		{Gate: gate.GateFrequency, Result: gate.Passed, Checked: "no cap", Reason: "no frequency cap applies"},
	}
	got := gate.Report(f, gate.Subject{Number: california, Zones: los, Destinations: &[]string{}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Report (-want +got):\n%s", diff)
	}
}

func TestReport_StatesTheReasonOfEachGate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		number phone.Number // empty: a number in California
		facts  func(*gate.Facts)
		allows []string // the workspace's destinations
		want   string
	}{
		{name: "removed opt-out", facts: func(f *gate.Facts) { f.DND = contacts.Clean },
			want: "opt_out passed: the opt-out was removed"},
		{name: "opt-out", facts: func(f *gate.Facts) { f.DND = contacts.OptedOut },
			want: "opt_out failed: an opt-out is on record"},
		{name: "opt-out state of a later version", facts: func(f *gate.Facts) { f.DND = "registry" },
			want: "opt_out failed: this version does not know the state"},
		{name: "consent", facts: func(f *gate.Facts) { f.Consent = contacts.Consented },
			want: "consent passed: consent is on record"},
		{name: "withdrawn consent", facts: func(f *gate.Facts) { f.Consent = contacts.Withdrawn },
			want: "consent failed: consent was withdrawn"},
		{name: "unknown contact", facts: func(f *gate.Facts) { f.Named = gate.NamedUnknown },
			want: "contact failed: the contact_id of the request names no contact of this workspace"},
		{name: "contact with another number", facts: func(f *gate.Facts) { f.Named = gate.NamedOther },
			want: "contact failed: the contact_id of the request names a contact with another number"},
		{name: "premium number", number: "+19005551234",
			want: "destination failed: numbers of this kind (premium rate) are never called"},
		{
			name:   "permitted prefix",
			allows: []string{"+44", "+1"},
			want: "destination passed: numbers of this kind can be called, and the number has a prefix of " +
				"the workspace's destinations",
		},
		{name: "other prefix", allows: []string{"+44"},
			want: "destination failed: the number has no prefix of the workspace's destinations"},
		{name: "no time zone", facts: func(f *gate.Facts) { f.NumberZones = nil },
			want: "time_zone failed: no time zone of this number is known; set metadata.time_zone of its contact"},
		{name: "window without a time zone", facts: func(f *gate.Facts) { f.NumberZones = nil },
			want: "calling_window skipped: the time zone is not known, window 09:00–20:00"},
		{
			name:  "two time zones",
			facts: func(f *gate.Facts) { f.NumberZones = zones(t, "America/New_York", "America/Chicago") },
			want:  "time_zone passed: the person can be in 2 time zones",
		},
		{name: "local times", facts: func(f *gate.Facts) { f.NumberZones = zones(t, "America/New_York", "America/Chicago") },
			want: "calling_window passed: 12:00 in New York, 11:00 in Chicago, window 09:00–20:00"},
		{name: "closed in one of two time zones", facts: func(f *gate.Facts) {
			f.At, f.NumberZones = at(13, 30, 0), zones(t, "America/New_York", "America/Los_Angeles")
		}, want: "calling_window failed: 06:30 in Los Angeles, outside the window 09:00–20:00"},
		{name: "last minute of the window", facts: func(f *gate.Facts) { f.Stage, f.At = gate.Dial, at(23, 59, 30) },
			want: "calling_window failed: 19:59 in New York, the window 09:00–20:00 closes in less than a minute"},
		{name: "window in the time zone of the workspace", facts: func(f *gate.Facts) { f.Policy.Timezone = "Europe/Berlin" },
			want: "calling_window passed: 18:00 in Berlin, window 09:00–20:00"},
		{name: "days of the window", facts: func(f *gate.Facts) {
			f.Policy.Window.Days, _ = window.ParseDays([]string{"tue"})
		}, want: "calling_window failed: 12:00 in New York, outside the window 09:00–20:00 on tue"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, s := allowedFacts(t), gate.Subject{Number: california, Destinations: &tt.allows}
			if tt.number != "" {
				s.Number = tt.number
			}
			if tt.facts != nil {
				tt.facts(&f)
			}
			if got := lines(gate.Report(f, s)); !slices.Contains(got, tt.want) {
				t.Errorf("Report =\n%s\nwant a line %q", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

func TestReport_ShowsHoursAndCapsOfPolicyPacks(t *testing.T) {
	t.Parallel()
	f := withPacks(t, "+13055551234", "us") // Florida
	f.Stage, f.Consent = gate.PreCheck, contacts.Consented
	f.At = time.Date(2026, 11, 25, 17, 0, 0, 0, time.UTC) // Wednesday, 12:00 in New York
	got := strings.Join(lines(gate.Report(f, gate.Subject{Number: "+13055551234"})), "\n")
	for _, want := range []string{"pack_hours passed: 12:00 in New York, hours of us ", "US-FL 08:00-20:00",
		"frequency passed: the frequency cap is not reached"} {
		if !strings.Contains(got, want) {
			t.Errorf("Report =\n%s\nwant it to contain %q", got, want)
		}
	}
	for range 3 {
		f.Dials = append(f.Dials, f.At.Add(-time.Hour))
	}
	f.At = time.Date(2026, 11, 26, 1, 30, 0, 0, time.UTC) // 20:30 in New York
	got = strings.Join(lines(gate.Report(f, gate.Subject{Number: "+13055551234"})), "\n")
	for _, want := range []string{"pack_hours failed: 20:30 in New York: Outside the calling hours of US-FL (08:00-20:00)",
		"frequency failed: the frequency cap is reached (pack us"} {
		if !strings.Contains(got, want) {
			t.Errorf("Report =\n%s\nwant it to contain %q", got, want)
		}
	}
	f.Policy.Override = &gate.Override{Reason: "own staff"}
	got = strings.Join(lines(gate.Report(f, gate.Subject{Number: "+13055551234"})), "\n")
	const want = "pack_hours passed: the calling window replaces the hours of the packs: own staff"
	if !strings.Contains(got, want) {
		t.Errorf("Report =\n%s\nwant it to contain %q", got, want)
	}
}

// Report evaluates every gate, but Evaluate stops at the first gate that refuses. For every call,
// they must give the same result.
func TestReport_AllGatesPassOnlyIfEvaluateAllowsTheCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		if rapid.Bool().Draw(t, "named") {
			f.Named = gate.NamedOther
		}
		reports := gate.Report(f, gate.Subject{Number: california})
		passed := !slices.ContainsFunc(reports, func(r gate.GateReport) bool { return r.Result != gate.Passed })
		outcome := gate.Evaluate(f)
		if passed != (outcome.Result == gate.Open) {
			t.Fatalf("Evaluate = %+v, Report =\n%s", outcome, strings.Join(lines(reports), "\n"))
		}
		for _, r := range reports {
			if r.Reason == "" || r.Checked == "" {
				t.Fatalf("report %+v has no reason or does not state what was checked", r)
			}
		}
	})
}
