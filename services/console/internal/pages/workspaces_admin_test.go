package pages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	settingsPage = "/operator/workspaces/" + agentID
	settingsPath = "/admin/v1/workspaces/" + agentID
	updatedAt    = "2026-06-04T09:00:00.123Z"
)

// setWorkspace makes a gateway respond with a workspace that has every setting.
func setWorkspace(s site) {
	s.set("GET "+settingsPath, tagged{newTag, map[string]any{"id": agentID, "name": "Acme", "plan": "growth",
		"currency": "USD", "status": "active", "mode": "test", "features": map[string]any{"recordings": true, "api": false},
		"rate_limit_per_minute": nil, "max_live_calls": 500, "calls_per_second": 50, "destinations": []string{"+1", "+44"},
		"retention": map[string]any{"calls_days": 30}, "updated_at": updatedAt, "created_at": updatedAt,
		"inbound": map[string]any{"per_minute": "0.02", "increment_seconds": 6, "max_concurrent": 40,
			"max_call_seconds": 1800},
		"calling_policy": map[string]any{"timezone": "recipient",
			"window": map[string]any{"start": "09:00", "end": "20:00"}}}})
	s.set("GET "+settingsPath+"/rates", map[string]any{"data": []any{
		map[string]any{"prefix": "+1", "per_minute": "0.012", "increment_seconds": 6}}})
	s.set("GET "+settingsPath+"/wallet", map[string]any{"balance": 5, "spendable": 5, "held": 0, "currency": "USD",
		"low_balance_threshold": 2.5})
}

func fullForm() url.Values {
	return url.Values{"version": {newTag}, "name": {"Acme 2"}, "plan": {"scale"}, "rate_limit_per_minute": {""},
		"max_live_calls": {"20"}, "calls_per_second": {""}, "destinations": {"+1\n+44, +49"}, "api": {""},
		"webhooks": {"true"}, "transcripts": {"false"}, "recordings": {""}, "calls_days": {"90"},
		"per_minute": {"0.03"}, "increment_seconds": {""}, "max_concurrent": {"10"}, "max_call_seconds": {""},
		"calling_policy": {`{"window": {"end": "20:00", "start": "09:00"}, "timezone":"recipient"}`}}
}

func decode(t *testing.T, text string) (value map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return value
}

func TestWorkspaceSettings_ShowEverySetting(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	w := s.get(settingsPage)
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{`value="Acme"`, `<option value="growth" selected>`,
		`name="max_live_calls" type="number" value="500"`,
		"+1\n+44</textarea>", `"start": "09:00"`, "+1 0.012 6", `value="2.5"`, `name="calls_days" type="number" value="30"`,
		`value="0.02"`, `name="max_concurrent" type="number" value="40"`,
		`name="max_call_seconds" type="number" value="1800"`,
		`name="version" value="&#34;3&#34;"`, `data-match="Acme"`} {
		wantBody(t, w, want)
	}
	if strings.Contains(w.Body.String(), `name="currency"`) {
		t.Error("the form offers to change the currency")
	}
}

func TestWorkspaceSettings_AreSentWithTheirJSONTypes(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	form := fullForm()
	form.Set("calling_policy", `{"window":{"start":"08:00","end":"20:00"},"timezone":"recipient"}`)
	wantHeader(t, s.submit(settingsPage, form), "Location", settingsPage+"?done=workspace_changed")
	want := map[string]any{"name": "Acme 2", "plan": "scale", "rate_limit_per_minute": nil, "max_live_calls": 20.0,
		"calls_per_second": nil, "destinations": []any{"+1", "+44", "+49"},
		"features": map[string]any{"api": nil, "webhooks": true, "transcripts": false, "recordings": nil},
		"retention": map[string]any{"calls_days": 90.0, "transcripts_days": nil, "recordings_days": nil,
			"webhooks_days": nil},
		"inbound": map[string]any{"per_minute": "0.03", "increment_seconds": nil, "max_concurrent": 10.0,
			"max_call_seconds": nil},
		"calling_policy": map[string]any{"timezone": "recipient", "window": map[string]any{"start": "08:00", "end": "20:00"}}}
	if diff := cmp.Diff(want, decode(t, s.body(settingsPath))); diff != "" {
		t.Errorf("body differs (-want +got):\n%s", diff)
	}
}

// The API records who set the policy, so a policy that was not changed is not sent.
func TestWorkspaceSettings_UnchangedPolicyIsNotSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	s.submit(settingsPage, fullForm())
	if body := decode(t, s.body(settingsPath)); body["name"] != "Acme 2" || body["calling_policy"] != nil {
		t.Errorf("body = %v, want the name and no policy", body)
	}
	if strings.Contains(s.body(settingsPath), "calling_policy") {
		t.Errorf("body = %s, want no calling_policy", s.body(settingsPath))
	}
}

func TestWorkspaceSettings_RefusedFormsKeepTheirValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		field, value, want string
		status             int
	}{
		"no number":  {"max_live_calls", "many", `id="max_live_calls-fault" role="alert">This must be a whole number.`, 422},
		"no JSON":    {"calling_policy", `{"window":`, `id="calling_policy-fault" role="alert">This is not valid JSON.`, 422},
		"old form":   {"version", oldTag, "Someone changed this in the meantime.", 412},
		"of the API": {"name", "refused", `id="name-fault" role="alert">name must be 1 to 200`, 422},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			setWorkspace(s)
			s.set("PATCH "+settingsPath, refuse(`"name must be 1 to 200 characters long."`))
			form := fullForm()
			form.Set(tt.field, tt.value)
			w := s.submit(settingsPage, form)
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.want)
			wantBody(t, w, "+1\n+44, +49</textarea>")
			sent := 0
			for _, r := range s.sent(settingsPath) {
				if r.Method == http.MethodPatch {
					sent++
				}
			}
			if want := map[string]int{"name": 1, "version": 1}[tt.field]; sent != want {
				t.Errorf("changes sent = %d, want %d", sent, want)
			}
		})
	}
}

// Another person changes the workspace after the form was shown, and the form has an invalid value.
// With the new version, the corrected form would overwrite that change.
func TestWorkspaceSettings_InvalidFormKeepsTheVersionThatThePersonSaw(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	form := fullForm()
	form.Set("version", oldTag)
	form.Set("max_live_calls", "many")
	w := s.submit(settingsPage, form)
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, `name="version" value="&#34;2&#34;"`)

	form.Set("max_live_calls", "20")
	w = s.submit(settingsPage, form)
	wantStatus(t, w, http.StatusPreconditionFailed)
	wantBody(t, w, `name="version" value="&#34;3&#34;"`)
}

func TestNewWorkspaceForm_CreatesAWorkspaceOrShowsTheFault(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	wantBody(t, s.get("/operator/workspaces/new"), `name="currency"`)
	s.set("POST /admin/v1/workspaces", map[string]any{"id": agentID})
	form := url.Values{"name": {"Acme"}, "plan": {"growth"}, "currency": {"usd"}, "mode": {"test"}}
	wantHeader(t, s.submit("/operator/workspaces/new", form), "Location", settingsPage+"?done=workspace_created")
	if body := decode(t, s.body("/admin/v1/workspaces")); body["currency"] != "USD" || body["mode"] != "test" {
		t.Errorf("body = %v, want USD and test", body)
	}
	s.set("POST /admin/v1/workspaces", refuse(`"currency must be a code"`))
	w := s.submit("/operator/workspaces/new", form)
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, `id="currency-fault"`)
}

func TestParseRates_ReportsTheFirstInvalidLine(t *testing.T) {
	t.Parallel()
	six := int32(6)
	got, line := parseRates("+1 0.012 6\n\n  +44;0.03 \r\n")
	want := []rate{{"+1", "0.012", &six}, {"+44", "0.03", nil}}
	if diff := cmp.Diff(want, got); diff != "" || line != 0 {
		t.Errorf("rates differ in line %d (-want +got):\n%s", line, diff)
	}
	if got, line := parseRates(""); got == nil || len(got) != 0 || line != 0 {
		t.Errorf("rates of no line = %v, fault in line %d; want an empty list", got, line)
	}
	for text, want := range map[string]int{"+1": 1, "+1 1 x": 1, "+1 1\n+2 1 1 1": 2, "+1 1 99999999999": 1} {
		if _, line := parseRates(text); line != want {
			t.Errorf("line of the fault in %q = %d, want %d", text, line, want)
		}
	}
}

func TestRates_InvalidRatesAreNotSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	w := s.submit(settingsPage+"/rates", url.Values{"rates": {"+1 1\nbad"}})
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "Line 2 is not a prefix, a price and an increment.")
	wantBody(t, w, "+1 1\nbad</textarea>")
	for _, r := range s.sent(settingsPath + "/rates") {
		if r.Method == http.MethodPut {
			t.Error("the console sent rates with a fault")
		}
	}
	wantHeader(t, s.submit(settingsPage+"/rates", url.Values{"rates": {""}}), "Location",
		settingsPage+"?done=rates_changed")
	if got := s.body(settingsPath + "/rates"); got != "[]" {
		t.Errorf("body = %s, want []", got)
	}
}

func TestLowBalanceThreshold_EmptyValueIsSentAsNull(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	for text, want := range map[string]string{"2.5": `{"low_balance_threshold":"2.5"}`,
		"": `{"low_balance_threshold":null}`} {
		w := s.submit(settingsPage+"/threshold", url.Values{"low_balance_threshold": {text}})
		wantHeader(t, w, "Location", settingsPage+"?done=threshold_changed")
		if got := s.body(settingsPath + "/wallet"); got != want {
			t.Errorf("body = %s, want %s", got, want)
		}
	}
}

func TestSuspend_RequiresAReasonAndTheTypedName(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setWorkspace(s)
	for _, form := range []url.Values{{"confirmation": {"Acme"}}, {"confirmation": {"acme"}, "reason": {"fraud"}},
		{"reason": {"fraud"}}} {
		wantHeader(t, s.submit(settingsPage+"/suspend", form), "Location", settingsPage+"?done=not_confirmed")
	}
	if sent := s.sent(settingsPath + "/dialing"); len(sent) != 0 {
		t.Fatalf("pauses without confirmation = %d, want 0", len(sent))
	}
	form := url.Values{"confirmation": {"Acme"}, "reason": {"fraud"}}
	wantHeader(t, s.submit(settingsPage+"/suspend", form), "Location", settingsPage+"?done=workspace_suspended")
	if got, want := s.body(settingsPath+"/dialing"), `{"reason":"fraud","state":"paused"}`; got != want {
		t.Errorf("body of the pause = %s, want %s", got, want)
	}
	if got, want := s.body(settingsPath), `{"status":"suspended"}`; got != want {
		t.Errorf("body of the change = %s, want %s", got, want)
	}
}

func TestActivate_ResumesDialingOnlyIfRequested(t *testing.T) {
	t.Parallel()
	for _, resume := range []bool{false, true} {
		s := newSite(t, gateway.Operator)
		form := url.Values{"reason": {"paid"}}
		if resume {
			form.Set("resume", "1")
		}
		wantHeader(t, s.submit(settingsPage+"/activate", form), "Location", settingsPage+"?done=workspace_activated")
		if got, want := s.body(settingsPath), `{"status":"active"}`; got != want {
			t.Errorf("body = %s, want %s", got, want)
		}
		if got := len(s.sent(settingsPath+"/dialing")) == 1; got != resume {
			t.Errorf("dialing resumed = %t, want %t", got, resume)
		}
	}
}
