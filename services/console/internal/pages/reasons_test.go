package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

// Every form that ends, stops or deletes something needs a reason. The console sends the reason in
// a header, and the gateway stores it in the audit log.
func TestForms_ReasonReachesTheGateway(t *testing.T) {
	t.Parallel()
	const base, call = "/w/" + workspaceID, "/v1/calls/" + agentID
	named := map[string]any{"id": agentID, "name": "Ada", "prefix": "Ada", "phone_e164": "+14155550101",
		"status": "active"}
	number := url.Values{"confirmation": {"+14155550101"}, "phone": {"+14155550101"}}
	typed := url.Values{"confirmation": {"Ada"}}
	for name, tt := range map[string]struct {
		page, path, method string
		form               url.Values
	}{
		"hang-up": {page: base + "/calls/" + agentID + "/hangup",
			path: call + "/hangup", method: "POST"},
		"cancellation": {page: base + "/call-requests/" + agentID + "/cancel",
			path: "/v1/call-requests/" + agentID + "/cancel", method: "POST"},
		"hang-up of all calls": {page: base + "/emergency/hangup",
			path: admin + "/hangup", method: "POST", form: url.Values{"confirmation": {"Demo"}}},
		"erasure": {page: base + "/contacts/" + agentID + "/erase",
			path: admin + "/contacts/+14155550101", method: "DELETE", form: number},
		"removal of an opt-out": {page: base + "/opt-outs/remove",
			path: "/v1/opt-outs/+14155550101", method: "DELETE", form: number},
		"top-up": {page: base + "/wallet/transactions", path: admin + "/wallet/transactions", method: "POST",
			form: url.Values{"amount": {"5"}, "confirmation": {"5"}, "key": {"k"}}},
		"agent": {page: base + "/agents/" + agentID + "/delete",
			path: admin + "/agents/" + agentID, method: "DELETE", form: typed},
		"number": {page: base + "/numbers/" + agentID + "/delete",
			path: admin + "/numbers/" + agentID, method: "DELETE", form: number},
		"key": {page: base + "/integrations/api-keys/" + agentID + "/revoke",
			path: admin + "/api-keys/" + agentID, method: "DELETE", form: typed},
		"subscription": {page: base + "/webhooks/" + agentID + "/delete",
			path: "/v1/webhook-subscriptions/" + agentID, method: "DELETE", form: typed},
		"member": {page: base + "/members/" + agentID + "/remove",
			path: "/console/v1/members/" + agentID, method: "DELETE"},
		"operator": {page: personPage + "/remove-operator",
			path: personPath + "/operator", method: "DELETE", form: typed},
		"trunk": {page: trunkPage + "/remove",
			path: trunkAPIPath, method: "DELETE", form: url.Values{"confirmation": {"Carrier"}}},
		"suspension": {page: settingsPage + "/suspend",
			path: settingsPath, method: "PATCH", form: url.Values{"confirmation": {"Acme"}}},
		"activation": {page: settingsPage + "/activate", path: settingsPath, method: "PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			setWorkspace(s)
			setPerson(s, gateway.Operator)
			s.set("GET "+personPath, map[string]any{"id": agentID, "name": "Ada"})
			s.set("GET "+admin, map[string]any{"id": workspaceID, "name": "Demo"})
			for _, path := range []string{"/v1/contacts/" + agentID, admin + "/agents/" + agentID, admin + "/numbers/" + agentID,
				admin + "/api-keys/" + agentID, "/v1/webhook-subscriptions/" + agentID} {
				s.set("GET "+path, named)
			}
			s.set("GET "+trunkAPIPath, savedTrunk)
			form := url.Values{}
			for key, values := range tt.form {
				form[key] = values
			}
			for _, reason := range []string{"", " \t", strings.Repeat("x", 501)} {
				form.Set("reason", reason)
				w := s.submit(tt.page, form)
				wantStatus(t, w, http.StatusSeeOther)
				if got := w.Header().Get("Location"); !strings.Contains(got, "done=not_confirmed") {
					t.Errorf("reason %q: Location = %q, want done=not_confirmed", reason, got)
				}
			}
			wantEqual(t, "requests without a reason", s.sentBy(tt.method, tt.path), 0)
			form.Set("reason", " Ticket 7\r\n– für Ada ")
			wantStatus(t, s.submit(tt.page, form), http.StatusSeeOther)
			wantEqual(t, "requests", s.sentBy(tt.method, tt.path), 1)
			for _, r := range s.sent(tt.path) {
				if r.Method == tt.method {
					wantEqual(t, "reason", r.Header.Get("Ringfence-Reason"), "Ticket 7 – für Ada")
				}
			}
		})
	}
}

func TestHangUp_ReturnsToTheReferringConsolePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET "+admin+"/calls/"+agentID, map[string]any{"call_id": agentID, "direction": "outbound",
		"to": "+14155550101", "status": "ringing", "agent_id": agentID})
	page := home + "/calls/" + agentID + "/hangup"
	for referer, want := range map[string]string{
		address + home + "/emergency": home + "/emergency",
		"https://evil.example/":       home + "/live",
		"":                            home + "/live",
	} {
		r := s.request("GET", page, nil)
		r.Header.Set("Referer", referer)
		w := s.do(r)
		wantStatus(t, w, http.StatusOK)
		wantBody(t, w, `name="next" value="`+want+`"`)
		wantBody(t, w, "+14155550101")
	}
	form := url.Values{"reason": {"x"}, "next": {"//evil.example"}}
	wantHeader(t, s.submit(page, form), "Location", "/?done=hung_up")
	form.Set("next", home+"/emergency")
	wantHeader(t, s.submit(page, form), "Location", home+"/emergency?done=hung_up")
	wantStatus(t, newSite(t, gateway.Viewer).get(page), http.StatusForbidden)
}
