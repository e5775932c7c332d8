package pages

import (
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

func TestLive_LeadsToTheOptOutOfThePerson(t *testing.T) {
	t.Parallel()
	call := func(direction, from, to string) map[string]any {
		return map[string]any{"id": agentID, "direction": direction, "from": from, "to": to, "status": "ringing",
			"agent_id": agentID, "created_at": updatedAt}
	}
	for name, tt := range map[string]struct {
		call map[string]any
		role string
		want string // the start of the query, or "" for no link
	}{
		"an outbound call":  {call("outbound", "+15005550100", "+14155550101"), gateway.Compliance, "?new=%2B14155550101&"},
		"an inbound call":   {call("inbound", "+14155550102", "+15005550100"), gateway.Owner, "?new=%2B14155550102&"},
		"a withheld number": {call("inbound", "anonymous", "+15005550100"), gateway.Owner, ""},
		"a viewer":          {call("outbound", "+15005550100", "+14155550101"), gateway.Viewer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, tt.role)
			s.set("GET /v1/calls", map[string]any{"data": []any{tt.call}, "has_more": false})
			w := s.get("/w/" + workspaceID + "/live")
			if tt.want == "" {
				if strings.Contains(w.Body.String(), "/opt-outs?new=") {
					t.Error("the page has a link to an opt-out")
				}
				return
			}
			wantBody(t, w, "/opt-outs"+tt.want+"reason=Asked")
		})
	}
	s := newSite(t, gateway.Compliance)
	w := s.get("/w/" + workspaceID + "/opt-outs?new=%2B14155550101&reason=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
	wantBody(t, w, `name="phone" type="tel" required value="+14155550101"`)
	if strings.Contains(w.Body.String(), "<script>alert") {
		t.Error("the form contains a script of the address")
	}
}
