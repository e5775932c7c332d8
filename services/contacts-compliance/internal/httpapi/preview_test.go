package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

func TestPreview_ReturnsOutcomeNextTimeAndRule(t *testing.T) {
	t.Parallel()
	r := start(t)
	ask := func(number, at string) response {
		t.Helper()
		return r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/contacts/"+url.PathEscape(number)+"/preview"+at, "")
	}
	policy := func(text string) {
		t.Helper()
		r.policy(t, text)
	}
	consent := func(number string) {
		t.Helper()
		r.checkResponse(t, r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/"+number+"/consent",
			`{"status":"consented","source":"form"}`), http.StatusOK, "")
	}
	sunday := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 60)
	for sunday.Weekday() != time.Sunday {
		sunday = sunday.AddDate(0, 0, 1)
	}
	evening := func(hour int) string { return "?at=" + sunday.Add(time.Duration(hour)*time.Hour).Format(time.RFC3339) }

	r.allowAllHours(t)
	got := ask("+15005550001", "")
	if got.status != http.StatusOK {
		t.Errorf("around the clock: status = %v, want %v", got.status, http.StatusOK)
	}
	testkit.Members(t, "around the clock", got.body, map[string]any{
		"may_be_called": true, "next_at": got.body["at"], "rule": nil, "code": nil,
	})
	got = ask("+19005551234", "")
	testkit.Members(t, "premium", got.body, map[string]any{
		"may_be_called": false, "rule": "destination", "code": "destination_not_allowed", "next_at": nil,
	})
	policy(`{"packs":["us"]}`)
	got = ask("+15045551234", evening(18))
	testkit.Members(t, "no consent", got.body, map[string]any{
		"rule": "consent_needed", "code": "consent_withdrawn", "next_at": nil,
	})
	consent("+15045551234")
	got = ask("+15045551234", evening(18)) // Louisiana is closed on Sundays
	next, _ := got.body["next_at"].(string)
	opens, err := time.Parse(time.RFC3339, next)
	if err != nil {
		t.Fatalf("Sunday in New Orleans: error = %v", err)
	}
	testkit.Members(t, "Sunday in New Orleans", got.body, map[string]any{
		"may_be_called": false, "code": "outside_calling_hours", "country": "US",
	})
	if !strings.Contains(got.raw, "US-LA") {
		t.Errorf("Sunday in New Orleans: preview = %s, want it to contain %q", got.raw, "US-LA")
	}
	source, _ := got.body["source"].(string)
	rule := got.body["rule"]
	if rule != "pack_hours" && rule != "holiday" {
		t.Errorf("rule = %v, source = %q, want the rule of Louisiana", got.body["rule"], source)
	}
	if !strings.Contains(source, "US-LA") {
		t.Errorf("got %s, want it to contain %q", source, "US-LA")
	}
	if !strings.Contains(source, "R-29617") {
		t.Errorf("got %s, want it to contain %q", source, "R-29617")
	}
	if got = ask("+15045551234", "?at="+next); got.body["may_be_called"] != true {
		t.Errorf(`at its own next_at %s: got.body["may_be_called"] = %v, want true; got.raw = %s`,
			next, got.body["may_be_called"], got.raw)
	} else if !opens.After(sunday.Add(18 * time.Hour)) {
		t.Errorf("next_at = %s, want after Sunday 18:00; got.raw = %s",
			next, got.raw)
	}
	if zones, _ := got.body["time_zones"].([]any); len(zones) != 1 {
		t.Errorf("zones = %s", got.raw)
	}
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15045551234"}`), http.StatusOK, "")
	got = ask("+15045551234", "")
	testkit.Members(t, "opted out", got.body, map[string]any{
		"rule": "dnd", "dnd_status": "dnd", "consent_status": "consented", "next_at": nil,
	})
	var decisions int
	if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM decisions").Scan(&decisions); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if decisions != 0 {
		t.Errorf("decisions = %v, want 0", decisions)
	}
	keys := []string{}
	for key := range got.body {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	want := "at calling_policy code consent_status country dnd_status gates may_be_called message next_at " +
		"phone_e164 policy_version recent_dials regions rule rules source time_zones"
	if strings.Join(keys, " ") != want {
		t.Errorf("fields %v, want %s", keys, want)
	}
}

func TestPreview_RefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/admin/v1/workspaces/%s/contacts/"
	r.checkResponse(t, r.operator(t, http.MethodGet, path+"911/preview", ""), http.StatusUnprocessableEntity,
		"invalid_phone")
	r.checkResponse(t, r.operator(t, http.MethodGet, path+"+14155552671/preview?at=soon", ""),
		http.StatusUnprocessableEntity, "validation_error")
	r.checkResponse(t, r.operator(t, http.MethodGet, path+"+14155552671/preview?at="+
		time.Now().AddDate(2, 0, 0).UTC().Format(time.RFC3339), ""), http.StatusUnprocessableEntity, "validation_error")
	if got := r.operator(t, http.MethodGet, path+"+14155552671/preview?at=2001-01-01T00:00:00Z",
		""); got.status != http.StatusOK {
		t.Errorf("a past time: %d %s, want the current time", got.status, got.raw)
	}
	r.pool.Close()
	r.checkResponse(t, r.operator(t, http.MethodGet, path+"+14155552671/preview", ""), http.StatusServiceUnavailable,
		"unavailable")
}
