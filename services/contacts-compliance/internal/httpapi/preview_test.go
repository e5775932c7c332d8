package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPreview_TellsWhetherWhenAndByWhichRule(t *testing.T) {
	t.Parallel()
	r := start(t)
	ask := func(number, at string) answer {
		t.Helper()
		return r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/contacts/"+url.PathEscape(number)+"/preview"+at, "")
	}
	policy := func(text string) {
		t.Helper()
		r.policy(t, text)
	}
	consent := func(number string) {
		t.Helper()
		r.want(t, r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/"+number+"/consent", `{"status":"consented","source":"form"}`), http.StatusOK, "")
	}
	sunday := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 60)
	for sunday.Weekday() != time.Sunday {
		sunday = sunday.AddDate(0, 0, 1)
	}
	evening := func(hour int) string { return "?at=" + sunday.Add(time.Duration(hour)*time.Hour).Format(time.RFC3339) }

	r.aroundTheClock(t)
	got := ask("+15005550001", "")
	if got.status != http.StatusOK {
		t.Errorf("around the clock: status = %v, want %v", got.status, http.StatusOK)
	}
	if got.body["may_be_called"] != true {
		t.Errorf("around the clock: may_be_called = %v, want %v", got.body["may_be_called"], true)
	}
	if got.body["next_at"] != got.body["at"] {
		t.Errorf("around the clock: next_at = %v, want %v", got.body["next_at"], got.body["at"])
	}
	if got.body["rule"] != nil {
		t.Errorf("around the clock: rule = %v, want nil", got.body["rule"])
	}
	if got.body["code"] != nil {
		t.Errorf("around the clock: code = %v, want nil", got.body["code"])
	}
	got = ask("+19005551234", "")
	if got.body["may_be_called"] != false {
		t.Errorf("premium: may_be_called = %v, want %v", got.body["may_be_called"], false)
	}
	if got.body["rule"] != "destination" {
		t.Errorf("premium: rule = %v, want destination", got.body["rule"])
	}
	if got.body["code"] != "destination_not_allowed" {
		t.Errorf("premium: code = %v, want destination_not_allowed", got.body["code"])
	}
	if got.body["next_at"] != nil {
		t.Errorf("premium: next_at = %v, want nil", got.body["next_at"])
	}
	policy(`{"packs":["us"]}`)
	got = ask("+15045551234", evening(18))
	if got.body["rule"] != "consent_needed" {
		t.Errorf("no consent: rule = %v, want consent_needed", got.body["rule"])
	}
	if got.body["code"] != "consent_withdrawn" {
		t.Errorf("no consent: code = %v, want consent_withdrawn", got.body["code"])
	}
	if got.body["next_at"] != nil {
		t.Errorf("no consent: next_at = %v, want nil", got.body["next_at"])
	}
	consent("+15045551234")
	got = ask("+15045551234", evening(18)) // Louisiana has no Sundays
	next, _ := got.body["next_at"].(string)
	opens, err := time.Parse(time.RFC3339, next)
	if err != nil {
		t.Fatalf("Sunday in New Orleans: error = %v", err)
	}
	if got.body["may_be_called"] != false {
		t.Errorf("Sunday in New Orleans: may_be_called = %v, want %v", got.body["may_be_called"], false)
	}
	if got.body["code"] != "outside_calling_hours" {
		t.Errorf("Sunday in New Orleans: code = %v, want outside_calling_hours", got.body["code"])
	}
	if got.body["country"] != "US" {
		t.Errorf("Sunday in New Orleans: country = %v, want US", got.body["country"])
	}
	if !strings.Contains(got.raw, "US-LA") {
		t.Errorf("Sunday in New Orleans: %s does not contain %q", got.raw, "US-LA")
	}
	source, _ := got.body["source"].(string)
	rule := got.body["rule"]
	if rule != "pack_hours" && rule != "holiday" {
		t.Errorf("by rule %v, %q; want Louisiana's", got.body["rule"], source)
	}
	if !strings.Contains(source, "US-LA") {
		t.Errorf("%s does not contain %q", source, "US-LA")
	}
	if !strings.Contains(source, "R-29617") {
		t.Errorf("%s does not contain %q", source, "R-29617")
	}
	if got = ask("+15045551234", "?at="+next); got.body["may_be_called"] != true {
		t.Errorf(`at its own next_at %s: got.body["may_be_called"] = %v, want true; got.raw = %s`,
			next, got.body["may_be_called"], got.raw)
	} else if !opens.After(sunday.Add(18 * time.Hour)) {
		t.Errorf("at its own next_at %s: opens.After(sunday.Add(18*time.Hour)) = false, want true; got.raw = %s",
			next, got.raw)
	}
	if zones, _ := got.body["time_zones"].([]any); len(zones) != 1 {
		t.Errorf("zones = %s", got.raw)
	}
	r.want(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15045551234"}`), http.StatusOK, "")
	got = ask("+15045551234", "")
	if got.body["rule"] != "dnd" {
		t.Errorf("opted out: rule = %v, want dnd", got.body["rule"])
	}
	if got.body["dnd_status"] != "dnd" {
		t.Errorf("opted out: dnd_status = %v, want dnd", got.body["dnd_status"])
	}
	if got.body["consent_status"] != "consented" {
		t.Errorf("opted out: consent_status = %v, want consented", got.body["consent_status"])
	}
	if got.body["next_at"] != nil {
		t.Errorf("opted out: next_at = %v, want nil", got.body["next_at"])
	}
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
	if want := "at calling_policy code consent_status country dnd_status may_be_called message next_at phone_e164 policy_version recent_dials regions rule rules source time_zones"; strings.Join(keys, " ") != want {
		t.Errorf("fields %v, want %s", keys, want)
	}
}

func TestPreview_Refusals(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/admin/v1/workspaces/%s/contacts/"
	r.want(t, r.operator(t, http.MethodGet, path+"911/preview", ""), http.StatusUnprocessableEntity, "invalid_phone")
	r.want(t, r.operator(t, http.MethodGet, path+"+14155552671/preview?at=soon", ""), http.StatusUnprocessableEntity, "validation_error")
	r.want(t, r.operator(t, http.MethodGet, path+"+14155552671/preview?at="+time.Now().AddDate(2, 0, 0).UTC().Format(time.RFC3339), ""), http.StatusUnprocessableEntity, "validation_error")
	if got := r.operator(t, http.MethodGet, path+"+14155552671/preview?at=2001-01-01T00:00:00Z", ""); got.status != http.StatusOK {
		t.Errorf("in the past: %d %s, want as of now", got.status, got.raw)
	}
	r.pool.Close()
	r.want(t, r.operator(t, http.MethodGet, path+"+14155552671/preview", ""), http.StatusServiceUnavailable, "unavailable")
}
