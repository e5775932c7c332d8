package pages

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

const agentID = "01a218cb-00ad-7433-a772-fa8615bd3f29"

// submit sends a form and returns the response.
func (s site) submit(path string, form url.Values) *httptest.ResponseRecorder {
	return s.do(s.request("POST", path, form))
}

// refuse returns a handler that refuses a request with 422 validation_error.
func refuse(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"error":{"code":"validation_error","message":` + message + `}}`))
	}
}

func TestSystemEmergency_ShowsPausesAndCallCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET /admin/v1/workspaces", map[string]any{"data": []any{map[string]any{"id": workspaceID, "name": `<b>Acme`}}})
	s.set("GET /admin/v1/dialer", map[string]any{
		"queue": map[string]any{"live_outbound": 17, "live_inbound": 3, "due": 5, "paused": 9},
		"pauses": []any{
			map[string]any{"level": "everything", "id": nil, "state": "paused", "reason": "Incident 7"},
			map[string]any{"level": "workspace", "id": workspaceID, "state": "paused", "reason": "Wrong script"},
			map[string]any{"level": "agent", "id": agentID, "state": "paused"},
			map[string]any{"level": "trunk", "id": agentID, "state": "paused"},
		},
	})
	s.set("GET /admin/v1/audit", map[string]any{"data": []any{map[string]any{
		"id": workspaceID, "operator": "Grace", "workspace_id": workspaceID,
		"route": "/admin/v1/workspaces/{id}/agents/{agent_id}/dialing",
		"path":  "/admin/v1/workspaces/" + workspaceID + "/agents/" + agentID + "/dialing",
		"after": map[string]any{"state": "paused", "reason": "Hallucinates"}, "occurred_at": "2026-06-04T09:00:00.000Z",
	}}})
	w := s.get("/operator/emergency")
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{"<dd>17</dd>", "Incident 7", "&lt;b&gt;Acme", `value="everything"`, "Hallucinates",
		`value="workspace:` + workspaceID + `"`, `value="trunk:` + agentID + `"`, "/w/" + workspaceID + "/emergency",
		// the workspace of the agent is known from the audit entry
		`value="agent:` + workspaceID + ":" + agentID + `"`} {
		wantBody(t, w, want)
	}
}

func TestSystemEmergency_FormSelectsTheScopeOfTheURL(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	// The link on the pages of a workspace names no scope, so the operator must choose.
	wantBody(t, s.get("/w/"+workspaceID+"/calls"), `class="stop" href="/operator/emergency"`)
	unchosen := s.get("/operator/emergency")
	wantBody(t, unchosen, `<option value="">Choose`)
	wantEqual(t, "preset scope", strings.Contains(unchosen.Body.String(), " selected>"), false)
	scope := "workspace:" + workspaceID
	wantBody(t, s.get("/operator/emergency?scope="+scope), `<option value="`+scope+`" selected>`)
	if page := s.get("/operator/emergency?scope=agent:1"); strings.Contains(page.Body.String(), `<option value="agent:1`) {
		t.Error("the form offers a scope that is not valid")
	}
}

func TestSystemEmergency_PausesOnlyIfTheConfirmationWordWasTyped(t *testing.T) {
	t.Parallel()
	for scope, path := range map[string]string{
		"everything":               "/admin/v1/dialing",
		"workspace:" + workspaceID: "/admin/v1/workspaces/" + workspaceID + "/dialing",
		"trunk:" + agentID:         "/admin/v1/trunks/" + agentID + "/dialing",
		"agent:" + workspaceID + ":" + agentID: "/admin/v1/workspaces/" + workspaceID + "/agents/" + agentID +
			"/dialing",
	} {
		s := newSite(t, gateway.Operator)
		form := url.Values{"scope": {scope}, "state": {"paused"}, "reason": {"Incident 7"}, "until": {"2027-06-04T09:00"},
			"confirmation": {"pause"}}
		wantHeader(t, s.submit("/operator/emergency", form), "Location", "/operator/emergency?done=not_confirmed")
		if sent := s.sent(path); len(sent) != 0 {
			t.Errorf("%s: requests without the typed word = %d, want 0", scope, len(sent))
		}
		form.Set("confirmation", "PAUSE")
		wantHeader(t, s.submit("/operator/emergency", form), "Location", "/operator/emergency?done=dialing_paused")
		sent := s.sent(path)
		if len(sent) != 1 || sent[0].Method != http.MethodPut {
			t.Fatalf("%s: requests = %v, want one PUT", scope, sent)
		}
		want := `{"reason":"Incident 7","state":"paused","until":"2027-06-04T09:00:00Z"}`
		if got := s.body(path); got != want {
			t.Errorf("%s: body = %s, want %s", scope, got, want)
		}
	}
}

func TestSystemEmergency_ResumingDialingNeedsNoReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	w := s.submit("/operator/emergency", url.Values{"scope": {"everything"}, "state": {"active"}})
	wantHeader(t, w, "Location", "/operator/emergency?done=dialing_resumed")
	if got, want := s.body("/admin/v1/dialing"), `{"state":"active"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
}

func TestSystemEmergency_ShowsTheReasonErrorAtTheReasonField(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("PUT /admin/v1/dialing", refuse(`"reason is required: why dialing is paused."`))
	w := s.submit("/operator/emergency", url.Values{"scope": {"everything"}, "state": {"paused"},
		"confirmation": {"PAUSE"},
		"until":        {"2027-06-04T09:00"}})
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, `id="reason-fault" role="alert">reason is required`)
	wantBody(t, w, `value="2027-06-04T09:00"`)
}

func TestEmergency_RefusesScopesOfOtherWorkspaces(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	for _, scope := range []string{"", "everything", "trunk:" + agentID, "workspace:" + agentID, "workspace:../x",
		"agent:" + agentID + ":" + workspaceID, "agent:" + workspaceID, "agent:" + workspaceID + ":../..",
		"workspace:" + workspaceID + ":" + agentID} {
		w := s.submit("/w/"+workspaceID+"/emergency", url.Values{"scope": {scope}, "state": {"paused"}})
		if w.Code != http.StatusNotFound {
			t.Errorf("status for scope %q = %d, want 404", scope, w.Code)
		}
	}
	for _, r := range s.requests {
		if r.Method == http.MethodPut {
			t.Errorf("the console sent PUT %s", r.URL.Path)
		}
	}
}

func TestEmergency_MemberPausesTheWorkspaceAndAnAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	dialing := "/admin/v1/workspaces/" + workspaceID + "/agents/" + agentID + "/dialing"
	s.set("GET /admin/v1/workspaces/"+workspaceID+"/agents", map[string]any{"data": []any{map[string]any{"id": agentID,
		"name": "Ada"}}})
	s.set("GET "+dialing, map[string]any{"state": "paused", "reason": "Hallucinates"})
	page := s.get("/w/" + workspaceID + "/emergency")
	wantBody(t, page, "Hallucinates")
	wantBody(t, page, `data-match="Demo"`)
	wantBody(t, page, `<option value="">Choose`)
	wantEqual(t, "preset scope", strings.Contains(page.Body.String(), " selected>"), false)
	if strings.Contains(page.Body.String(), `<option value="agent:`) {
		t.Error("the form offers a paused agent")
	}
	for scope, path := range map[string]string{"workspace:" + workspaceID: "/v1/dialing",
		"agent:" + workspaceID + ":" + agentID: dialing} {
		form := url.Values{"scope": {scope}, "state": {"paused"}, "reason": {"x"}}
		w := s.submit("/w/"+workspaceID+"/emergency", form)
		wantHeader(t, w, "Location", "/w/"+workspaceID+"/emergency?done=not_confirmed")
		wantEqual(t, "changes without the typed word", slices.ContainsFunc(s.sent(path), isPut), false)
		form.Set("confirmation", "PAUSE")
		w = s.submit("/w/"+workspaceID+"/emergency", form)
		wantHeader(t, w, "Location", "/w/"+workspaceID+"/emergency?done=dialing_paused")
		if got, want := s.body(path), `{"reason":"x","state":"paused"}`; got != want {
			t.Errorf("body for %s = %s, want %s", path, got, want)
		}
	}
}

func isPut(r *http.Request) bool { return r.Method == http.MethodPut }

// A background update must not read the state of every agent.
func TestEmergency_BackgroundUpdateReadsNoAgentStates(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /admin/v1/workspaces/"+workspaceID+"/agents", map[string]any{"data": []any{map[string]any{"id": agentID,
		"name": "Ada"}}})
	r := s.request("GET", "/w/"+workspaceID+"/emergency", nil)
	r.Header.Set("RF-Background", "1")
	wantStatus(t, s.do(r), http.StatusOK)
	if sent := s.sent("/admin/v1/workspaces/" + workspaceID + "/agents/" + agentID + "/dialing"); len(sent) != 0 {
		t.Errorf("requests for the state of the agent = %d, want 0", len(sent))
	}
}

func TestEmergency_HangsUpAllCallsOnlyIfTheWorkspaceNameWasTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	hangup := "/admin/v1/workspaces/" + workspaceID + "/hangup"
	s.set("POST "+hangup, map[string]any{"calls": 4})
	page := "/w/" + workspaceID + "/emergency"
	for _, typed := range []string{"", "demo", "Demo x"} {
		w := s.submit(page+"/hangup", url.Values{"confirmation": {typed}, "reason": {"x"}})
		wantHeader(t, w, "Location", page+"?done=not_confirmed")
	}
	if sent := s.sent(hangup); len(sent) != 0 {
		t.Fatalf("hang-ups without the typed name = %d, want 0", len(sent))
	}
	w := s.submit(page+"/hangup", url.Values{"confirmation": {"Demo"}, "reason": {"x"}})
	wantHeader(t, w, "Location", page+"?done=all_hung_up")
	if sent := s.sent(hangup); len(sent) != 1 {
		t.Errorf("hang-ups = %d, want 1", len(sent))
	}
}

func TestEmergency_ViewersSeeNoControls(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	w := s.get("/w/" + workspaceID + "/emergency")
	wantStatus(t, w, http.StatusOK)
	for _, control := range []string{`id="pause"`, `id="hang-up-all"`} {
		if strings.Contains(w.Body.String(), control) {
			t.Errorf("the page contains %s", control)
		}
	}
}

func TestEmergency_HangUpDialogNamesTheWorkspaceAndRequiresAReason(t *testing.T) {
	t.Parallel()
	for language, wants := range map[string][]string{
		"en": {"Hang up all calls of workspace Demo</h2>", `<label for="hang-up-reason">Reason (required)</label>`},
		"de": {"Alle Anrufe des Arbeitsbereichs Demo beenden</h2>",
			`<label for="hang-up-reason">Grund (erforderlich)</label>`},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			r := s.request("GET", "/w/"+workspaceID+"/emergency", nil)
			r.Header.Set("Accept-Language", language)
			w := s.do(r)
			wantStatus(t, w, http.StatusOK)
			for _, want := range wants {
				wantBody(t, w, want)
			}
		})
	}
}
