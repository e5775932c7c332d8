package pages

import (
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

func TestLivePage_LinksToTheOptOutFormOfThePerson(t *testing.T) {
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

// After an event, the script reads the changed calls only: two requests per call instead of eight.
// So the page can follow every event.
func TestLivePage_ReadsOnlyTheChangedCalls(t *testing.T) {
	t.Parallel()
	const running, ended = "01a218cb-00ad-7433-a772-000000000001", "01a218cb-00ad-7433-a772-000000000002"
	const unknown = "01a218cb-00ad-7433-a772-000000000003"
	s := newSite(t, gateway.Viewer)
	call := func(id, status string) map[string]any {
		return map[string]any{"call_id": id, "direction": "outbound", "from": "+15005550100", "to": "+14155550101",
			"status": status, "agent_id": agentID, "timings": map[string]any{}}
	}
	base := "/admin/v1/workspaces/" + workspaceID
	s.set("GET "+base+"/calls/"+running, call(running, "in_progress"))
	s.set("GET "+base+"/calls/"+ended, call(ended, "completed"))
	s.set("GET "+base+"/calls/"+unknown, refusal{status: 404, code: "not_found"})
	s.set("GET "+base+"/agents", map[string]any{"data": []any{map[string]any{"id": agentID, "name": "Reminders"}}})
	for _, tt := range []struct {
		name, calls, names, cost string
		background               bool
	}{
		{name: "one call", calls: running, background: true, cost: "2"},
		{name: "a new call", calls: running, names: "1", background: true, cost: "3"},
		{name: "three calls", calls: running + "," + ended + "," + unknown, background: true, cost: "4"},
		{name: "no id", calls: "x", background: true, cost: "8"},
		{name: "a person who opens the page", calls: running, cost: "9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := s.request("GET", "/w/"+workspaceID+"/live", nil)
			r.Header.Set("RF-Calls", tt.calls)
			if tt.background {
				r.Header.Set("RF-Background", "1")
			}
			if tt.names != "" {
				r.Header.Set("RF-Names", tt.names)
			}
			w := s.do(r)
			wantStatus(t, w, http.StatusOK)
			wantHeader(t, w, "RF-Cost", tt.cost)
			body := w.Body.String()
			whole := tt.cost == "8" || tt.cost == "9"
			if got := strings.Contains(body, `id="live-`+running); got == whole {
				t.Errorf("the page shows the running call: %t, want %t", got, !whole)
			}
			if got, want := strings.Contains(body, `id="ended-`+ended), strings.Contains(tt.calls, ended); got != want {
				t.Errorf("the page shows the ended call: %t, want %t", got, want)
			}
			if strings.Contains(body, unknown) {
				t.Error("the page shows a call that does not exist")
			}
			if strings.Contains(body, "4155550101") {
				t.Error("the page shows the whole number to a viewer")
			}
			if got, want := strings.Contains(body, "Reminders"), tt.names != ""; got != want {
				t.Errorf("the page names the agent: %t, want %t", got, want)
			}
		})
	}
}
