package pages

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

const hostile = `"><script>alert(1)</script>{{.}}`

var hostileTrunk = map[string]any{"id": agentID, "name": hostile, "state": "down", "status": "active", "host": hostile,
	"port": 5060, "transport": "udp", "channels": 30, "channels_in_use": 4, "calls_per_second": 10,
	"registered": false, "register_error": hostile, "options_error": hostile,
	"last_answer": map[string]any{"at": "2026-06-04T09:00:00.000Z", "status": 503, "round_trip_ms": 12},
	"recent":      map[string]any{"calls": 10, "failures": 4, "error_rate": 0.4},
	"caller_ids":  []string{hostile}, "codecs": []string{"opus"}, "inbound_sources": []string{"192.0.2.0/24"},
	"replicas": []any{map[string]any{"replica": hostile, "state": "down", "reported_at": "2026-06-04T09:00:00.000Z"}}}

// setSystem makes a gateway respond with the state of a system that has faults.
func setSystem(s site) {
	s.set("GET /admin/v1/services", map[string]any{"version": "1.9.0", "services": []any{
		map[string]any{"name": "calls", "ready": true, "versions": []string{"1.9.0"}},
		map[string]any{"name": "dialer", "ready": false, "versions": []string{}},
		map[string]any{"name": hostile, "ready": true, "versions": []string{"1.8.0", "1.9.0"}},
	}})
	s.set("GET /admin/v1/dialer", map[string]any{
		"replicas": []any{map[string]any{"replica": hostile, "reported_at": "2026-06-04T09:00:00.000Z",
			"sip": map[string]any{"advertised": "192.0.2.7", "rtp": "10000-20000"}}, map[string]any{"replica": "b"}},
		"agent_circuits": []any{map[string]any{"replica": "b", "kind": hostile, "workspace_id": workspaceID,
			"open_until": "2026-06-04T09:00:00.000Z"}},
		"queue":  map[string]any{"due": 12, "paused": 3, "scheduled": 45, "oldest_due_seconds": 95.5, "live_outbound": 7},
		"pauses": []any{map[string]any{"level": "workspace", "id": workspaceID, "state": "paused", "reason": hostile}},
	})
	s.set("GET /admin/v1/trunks", map[string]any{"data": []any{hostileTrunk}, "has_more": true})
	s.set("GET /admin/v1/trunks/"+agentID, hostileTrunk)
	s.set("GET /admin/v1/trunks/"+agentID+"/dialing", map[string]any{"state": "paused", "reason": hostile})
	s.set("GET /admin/v1/workspaces", map[string]any{"data": []any{
		map[string]any{"id": workspaceID, "name": hostile, "plan": "growth", "status": "suspended", "mode": "test"}}})
	s.set("GET /admin/v1/audit", map[string]any{"has_more": true, "data": []any{
		map[string]any{"id": agentID, "operator": hostile, "workspace_id": workspaceID, "method": "PATCH", "status": 200,
			"route": "/admin/v1/workspaces/{id}", "path": hostile, "outcome": "done", "before": nil,
			"after": map[string]any{"name": hostile}, "occurred_at": "2026-06-04T09:00:00.000Z"}}})
}

func TestOperatorPages_EscapeHTMLInValues(t *testing.T) {
	t.Parallel()
	for path, wants := range map[string][]string{
		"/operator/overview": {"No replica is ready", "Replicas have different versions",
			"Due requests have waited longer than one minute to be dialed.",
			"/operator/trunks/" + agentID, "Dialing of a workspace is paused.", "Agents are not reachable", "Suspended"},
		"/operator/queue":    {"<dd>12</dd>", "<dd>45</dd>", "Oldest: 1:35", "4 / 30", "SIP 192.0.2.7", "Simulated carrier"},
		"/operator/services": {"Not ready", "1.8.0", "Version 1.9.0"},
		"/operator/audit":    {"PATCH", "Before and after", "starting_after=" + agentID},
		"/operator/trunks":   {"Down", "503", "12 ms", "4 / 30", "4 / 10", "starting_after=" + agentID},
		"/operator/trunks/" + agentID: {"4 of 10 calls failed (40 %)", "Dialing of a trunk is paused.", "opus",
			"scope=trunk:" + agentID},
		"/operator/emergency": {"Dialing of a workspace is paused."},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			setSystem(s)
			w := s.get(path)
			wantStatus(t, w, http.StatusOK)
			for _, want := range wants {
				wantBody(t, w, want)
			}
			if strings.Contains(w.Body.String(), "<script>alert") {
				t.Error("the page contains a script of the API")
			}
		})
	}
}

func TestOperatorPages_AreShownWithoutData(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/operator/overview", "/operator/queue", "/operator/services", "/operator/audit",
		"/operator/trunks", "/operator/emergency"} {
		wantStatus(t, newSite(t, gateway.Operator).get(path), http.StatusOK)
	}
}

// The gateway refuses the requests of a member. The console then shows neither the page nor a
// confirmation.
func TestOperatorPages_AreForbiddenToMembers(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	for _, path := range []string{"/dialer", "/dialing", "/services", "/parked-records",
		"/parked-records/" + agentID + "/replay", "/audit", "/workspaces", "/workspaces/" + agentID,
		"/workspaces/" + agentID + "/rates", "/workspaces/" + agentID + "/wallet",
		"/trunks", "/trunks/" + agentID, "/trunks/" + agentID + "/dialing", "/trunks/" + agentID + "/check"} {
		for _, method := range []string{"GET", "PUT", "POST", "PATCH"} {
			s.set(method+" /admin/v1"+path, refusal{status: 403, code: "forbidden"})
		}
	}
	for _, path := range []string{"/people", "/people/" + agentID, "/people/" + agentID + "/sessions",
		"/people/" + agentID + "/operator", "/people/" + agentID + "/recovery", "/operator-invitations",
		"/operator-invitations/" + agentID} {
		for _, method := range []string{"GET", "DELETE", "POST"} {
			s.set(method+" /console/v1"+path, refusal{status: 403, code: "forbidden"})
		}
	}
	for _, route := range s.server.routes() {
		method, path, _ := strings.Cut(route.pattern, " ")
		if !strings.HasPrefix(path, "/operator/") {
			continue
		}
		var form url.Values
		if method == http.MethodPost {
			form = url.Values{"scope": {"everything"}, "state": {"paused"}, "confirmation": {"PAUSE"}, "reason": {"x"}}
		}
		path = strings.NewReplacer("{id}", agentID, "{trunk}", agentID, "{person}", agentID, "{invitation}", agentID,
			"{event}", agentID).Replace(path)
		if w := s.do(s.request(method, path, form)); w.Code != http.StatusForbidden {
			t.Errorf("%s = %d for an owner, want 403", route.pattern, w.Code)
		}
	}
}

func TestTrunk_CheckShowsItsSteps(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setSystem(s)
	s.set("POST /admin/v1/trunks/"+agentID+"/check", map[string]any{"ok": false, "steps": []any{
		map[string]any{"step": "dns", "result": "ok", "seen": "192.0.2.7"},
		map[string]any{"step": "options", "result": "failed", "seen": hostile, "remedy": "Open port 5060."}}})
	w := s.submit("/operator/trunks/"+agentID+"/check", url.Values{})
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{"192.0.2.7", "Open port 5060.", "&lt;script&gt;"} {
		wantBody(t, w, want)
	}
	if strings.Contains(w.Body.String(), `id="state" data-live`) {
		t.Error("the page of a check would be read again with GET, which has no route")
	}
}

func TestTrunk_ExplainsWhyACheckIsNotPossible(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setSystem(s)
	s.set("POST /admin/v1/trunks/"+agentID+"/check", refusal{status: 409, code: "no_sip", message: "Set CARRIER=sip."})
	wantBody(t, s.submit("/operator/trunks/"+agentID+"/check", url.Values{}), "Set CARRIER=sip.")
}

func TestFaultOf_NamesTheFieldOfAValidationError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want *fault
	}{
		{nil, nil},
		{errors.New("x"), nil},
		{&gateway.Error{Status: 403, Message: "name is"}, nil},
		{&gateway.Error{Status: 422, Field: "Ringfence-Reason"}, nil},
		{&gateway.Error{Status: 422, Message: "plan must be"}, &fault{422, "plan", "plan must be"}},
		{&gateway.Error{Status: 422, Message: "destinations[1] must"}, &fault{422, "destinations", "destinations[1] must"}},
		{&gateway.Error{Status: 422, Message: "script.speaks must"}, &fault{422, "script.speaks", "script.speaks must"}},
		{&gateway.Error{Status: 422, Message: "Something else"}, &fault{422, "", "Something else"}},
		{&gateway.Error{Status: 409, Message: "another trunk"}, &fault{409, "", "another trunk"}},
	} {
		if diff := cmp.Diff(tt.want, faultOf(tt.err)); diff != "" {
			t.Errorf("faultOf(%v) differs (-want +got):\n%s", tt.err, diff)
		}
	}
}

func TestFault_IsShownAtItsField(t *testing.T) {
	t.Parallel()
	for field, where := range map[string]string{"name": "name", "retention.calls_days": "calls_days",
		"calling_policy.window": "calling_policy", "": "", "mode": ""} {
		refused := &fault{Field: field, Message: "refused"}
		for _, known := range []string{"name", "calls_days", "calling_policy", "days", "calling"} {
			want := ""
			if known == where {
				want = "refused"
			}
			if got := refused.At(known); got != want {
				t.Errorf("fault of %q at %q = %q, want %q", field, known, got, want)
			}
		}
		elsewhere := refused.Elsewhere("name", "calls_days", "calling_policy") != ""
		if elsewhere != (where == "") {
			t.Errorf("fault of %q is shown elsewhere = %t", field, elsewhere)
		}
	}
}
