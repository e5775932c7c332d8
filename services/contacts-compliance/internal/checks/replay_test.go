package checks_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	california phone.Number = "+14155552671"
	florida    phone.Number = "+13055551234"
	paris      phone.Number = "+33123456789"
	tollFree   phone.Number = "+18005551234"
)

// The gates are evaluated again with the stored inputs of each decision, and must give the same
// outcome. The decisions cover every rule, in the pre-check and in the dial-time check.
func TestDecisions_StoredInputsReproduceTheOutcome(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.policy(t, `{"window":{"start":"09:00","end":"17:00","days":["mon","wed"]},"timezone":"recipient"}`)
	for i := range 48 {
		if i == 24 {
			h.policy(t, `{"packs":["us","fr"]}`)
			h.change(t, california, contacts.ConsentGranted)
			h.change(t, florida, contacts.ConsentGranted)
			h.change(t, paris, contacts.ConsentGranted)
		}
		req := h.request([]phone.Number{california, florida, paris, tollFree}[i/12], "")
		req.At, req.DeferIfClosed = time.Now().Add(time.Duration(i)*7*time.Hour), i%2 == 0
		_, _ = h.checks.PreCheck(t.Context(), req)
		if _, err := h.checks.Check(t.Context(), req.Target, req.DeferIfClosed); err != nil {
			t.Fatal(err)
		}
	}
	everyRule(t, h)
	replay(t, h)
}

func everyRule(t *testing.T, h fixture) {
	t.Helper()
	req := func(number phone.Number, at time.Time, change func(*checks.PreCheckRequest)) {
		a := h.request(number, "")
		a.At = at
		if change != nil {
			change(&a)
		}
		_, _ = h.checks.PreCheck(t.Context(), a)
		if _, err := h.checks.Check(t.Context(), a.Target, a.DeferIfClosed); err != nil {
			t.Fatal(err)
		}
	}
	other := h.change(t, "+14155550199", contacts.OptOut)
	req(california, time.Time{}, func(a *checks.PreCheckRequest) { a.NamedContact = other.ID })
	req(california, time.Time{}, func(a *checks.PreCheckRequest) { a.NamedContact = uuid.Must(uuid.NewV7()) })
	req("+14155550199", time.Time{}, nil)
	h.change(t, "+14155550198", contacts.ConsentWithdrawn)
	req("+14155550198", time.Time{}, nil)
	// the policy pack requires consent, which this contact has not given
	req("+14155550197", time.Time{}, nil)
	req(paris, time.Date(2026, 12, 25, 10, 0, 0, 0, time.UTC), nil) // 25 December is a holiday in France
	// this day is after the pack's covers_until
	req(paris, time.Date(2029, 6, 15, 10, 0, 0, 0, time.UTC), nil)
	// at this time it is night in California
	req(california, time.Now().AddDate(0, 0, 3).UTC().Truncate(24*time.Hour).Add(9*time.Hour), nil)
	h.change(t, tollFree, contacts.ConsentGranted)
	req(tollFree, time.Time{}, nil)
	h.policy(t, `{"packs":["us"],"window":{"start":"00:00","end":"24:00"},"override":{"reason":"the test runs at night"}}`)
	for range 5 {
		req(florida, time.Time{}, nil)
	}
	h.policy(t, `{"window":{"start":"09:00","end":"09:01"}}`)
	// the window is open in the zone of this contact, but closed in California
	if _, _, err := h.store.Create(t.Context(), contacts.Contact{
		ID: uuid.Must(uuid.NewV7()), WorkspaceID: h.workspace, Number: "+14155550196",
		Metadata: contacts.Document{"time_zone": json.RawMessage(`"Asia/Kolkata"`)},
	}); err != nil {
		t.Fatal(err)
	}
	req("+14155550196", time.Time{}, nil)
}

func replay(t *testing.T, h fixture) {
	t.Helper()
	rows, err := h.pool.Query(t.Context(), "SELECT inputs, kind, result, rule, code, message, call_at FROM decisions")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	results, rules := map[string]int{}, map[gate.Rule]int{}
	for rows.Next() {
		var facts gate.Facts
		var kind, result, rule, code, message string
		var at *time.Time
		if err := rows.Scan(&facts, &kind, &result, &rule, &code, &message, &at); err != nil {
			t.Fatal(err)
		}
		v := gate.Evaluate(facts)
		if got := string(v.Result); got != result {
			t.Errorf("v.Result = %v, want %v", got, result)
		}
		if got := string(v.Rule); got != rule {
			t.Errorf("v.Rule = %v, want %v", got, rule)
		}
		if v.Code != code {
			t.Errorf("v.Code = %v, want %v", v.Code, code)
		}
		if v.Message != message {
			t.Errorf("v.Message = %v, want %v", v.Message, message)
		}
		if got := (at != nil); got != (v.Result != gate.Denied) {
			t.Errorf("the next opening is set = %v, want %v", got, (v.Result != gate.Denied))
		}
		if at != nil && !at.Equal(v.At) {
			t.Errorf("stored outcome = %s %s %q %v, evaluated again = %+v", result, rule, message, at, v)
		}
		results[kind+" "+result]++
		rules[v.Rule]++
	}
	for _, rule := range []gate.Rule{
		gate.RuleNone, gate.RuleReference, gate.RuleDND, gate.RuleConsent, gate.RuleConsentNeeded, gate.RuleZone,
		gate.RuleWindow, gate.RulePack, gate.RuleHoliday,
		gate.RuleExpired, gate.RuleFrequency, gate.RuleNoOpening,
	} {
		if rules[rule] == 0 {
			t.Errorf("no decision by the rule %q: %v", rule, rules)
		}
	}
	if rows.Err() != nil {
		t.Errorf("results seen: rows.Err() = %v, want nil; slices.Sorted(maps.Keys(results)) = %v",
			rows.Err(), slices.Sorted(maps.Keys(results)))
	} else if results["precheck open"]*results["precheck later"]*results["precheck closed"]*results["dial closed"] == 0 {
		t.Errorf(`results = %v, want each result of a pre-check and a dial-time check at least once`,
			slices.Sorted(maps.Keys(results)))
	}
}

// A pre-check for the same time must be decided by the same rule as the preview. If the preview
// returns a next time, the gates must be open at that time.
func TestPreview_EqualsAPreCheckForTheSameTime(t *testing.T) {
	t.Parallel()
	h := open(t)
	numbers := []phone.Number{california, florida, paris, tollFree, "+12075551234", "+18505551234", "+447911123456",
		"+61412345678", "+34612345678"}
	policies := []string{
		`null`, `{"window":{"start":"00:00","end":"24:00"}}`,
		`{"window":{"start":"22:30","end":"24:00","days":["sat","sun"]},"timezone":"Pacific/Chatham"}`,
		`{"packs":["us","fr","gb"]}`, `{"packs":["us:service","au"]}`,
		`{"packs":["us:service"],"window":{"start":"11:00","end":"13:00"}}`,
		`{"packs":["us"],"window":{"start":"05:00","end":"23:00"},"override":{"reason":"staff"}}`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := h
		h.workspace = uuid.Must(uuid.NewV7())
		h.policy(t, rapid.SampledFrom(policies).Draw(rt, "policy"))
		number := rapid.SampledFrom(numbers).Draw(rt, "number")
		if zone := rapid.SampledFrom([]string{"", "America/Denver", "Asia/Tokyo"}).Draw(rt, "zone"); zone != "" {
			if _, _, err := h.store.Create(t.Context(), contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: h.workspace,
				Number:   number,
				Metadata: contacts.Document{"time_zone": json.RawMessage(`"` + zone + `"`)}}); err != nil {
				rt.Fatal(err)
			}
		}
		for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]contacts.Kind{contacts.OptOut, contacts.OptOutRemoved,
			contacts.ConsentGranted, contacts.ConsentWithdrawn}), 0, 3).Draw(rt, "history") {
			h.change(t, number, kind)
		}
		at := time.Now().UTC().Truncate(time.Minute).Add(time.Hour +
			time.Duration(rapid.IntRange(0, 300*24*60).Draw(rt, "minutes ahead"))*time.Minute)
		p, err := h.checks.Preview(t.Context(), store.Target{WorkspaceID: h.workspace, Number: number}, gate.Dial, at)
		if err != nil {
			rt.Fatal(err)
		}
		for _, deferIfClosed := range []bool{false, true} {
			req := h.request(number, "")
			req.At, req.DeferIfClosed = at, deferIfClosed
			h.comparePreCheck(t, rt, req, p)
		}
		if p.Next != nil { // the dial-time check must allow a call at p.Next
			f := p.Facts
			f.At = *p.Next
			if v := gate.Evaluate(f); v.Result != gate.Open {
				rt.Fatalf("check at %v, the next opening of the preview, = %+v", *p.Next, v)
			}
		}
	})
}

func (h fixture) comparePreCheck(t *testing.T, rt *rapid.T, req checks.PreCheckRequest, p checks.Preview) {
	allowed, err := h.checks.PreCheck(t.Context(), req)
	switch {
	case p.Outcome.Result == gate.Open || closesTooSoon(p):
		if err != nil {
			rt.Fatalf("pre-check at %v = %v, want nil", req.At, err)
		}
		if !allowed.ScheduledFor.Equal(req.At) {
			rt.Fatalf("scheduled_for = %v, want %v; preview = %+v", allowed.ScheduledFor, req.At, p.Outcome)
		}
	case req.DeferIfClosed && p.Next != nil:
		if err != nil {
			rt.Fatalf("deferred pre-check at %v = %v, want nil", req.At, err)
		}
		if !allowed.ScheduledFor.Equal(*p.Next) {
			rt.Fatalf("scheduled_for of the deferred call = %v, want %v", allowed.ScheduledFor, *p.Next)
		}
	case err == nil || err.Error() != p.Outcome.Code+": "+p.Outcome.Message:
		rt.Fatalf("pre-check at %v = %v, preview = %+v", req.At, err, p.Outcome)
	}
}

// closesTooSoon reports whether the pre-check allows the time of a preview that the dial-time check
// refused. In this case, the hours close too soon after the dial.
func closesTooSoon(p checks.Preview) bool {
	f := p.Facts
	f.Stage = gate.PreCheck
	return gate.Evaluate(f).Result == gate.Open
}

// A newer build can store a zone that this build does not know. The person may then be in any zone,
// so the zones of the number are not enough to allow the call.
func TestCheck_RefusesAZoneThatThisBuildDoesNotKnow(t *testing.T) {
	t.Parallel()
	h := open(t)
	// the window has a closed day, so the outcome depends on the zone
	h.policy(t, `{"window":{"start":"00:00","end":"24:00","days":["mon","tue","wed","thu","fri","sat"]}}`)
	h.change(t, california, contacts.ConsentGranted)
	if _, err := h.pool.Exec(t.Context(), `UPDATE contacts SET time_zone = 'Mars/Olympus'`); err != nil {
		t.Fatal(err)
	}
	v, err := h.checks.Check(t.Context(), h.request(california, "").Target, true)
	if err != nil {
		t.Fatalf("Check: error = %v", err)
	}
	if v.Result != gate.Denied {
		t.Errorf("Check: v.Result = %v, want %v", v.Result, gate.Denied)
	}
	if v.Rule != gate.RuleZone {
		t.Errorf("Check: v.Rule = %v, want %v", v.Rule, gate.RuleZone)
	}
}
