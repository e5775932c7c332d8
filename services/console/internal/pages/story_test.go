package pages

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

const requestID = "01a218e7-414b-74f9-993b-ec8a849a3f81"

// setStory gives the fake gateway a completed call with its request.
func (s site) setStory() {
	call := map[string]any{
		"call_id": workspaceID, "call_request_id": requestID, "direction": "outbound", "from": "+15005550100",
		"to": "+14155550103", "agent_id": workspaceID, "status": "completed", "outcome": "interested",
		"credits_charged": 0.003334, "hangup_cause": "normal_clearing", "timings": map[string]any{
			"answered_at": "2026-06-04T09:00:02.000Z", "ended_at": "2026-06-04T09:00:06.000Z", "talk_seconds": 4,
		},
	}
	s.set("GET /admin/v1/workspaces/"+workspaceID+"/calls/"+workspaceID, call)
	s.set("GET /v1/call-requests/"+requestID, map[string]any{
		"id":            requestID,
		"status":        "completed",
		"call_id":       workspaceID,
		"to":            "+14155550103",
		"agent_id":      workspaceID,
		"scheduled_for": "2026-06-04T09:00:00.000Z",
		"created_at":    "2026-06-04T09:00:00.000Z",
		"updated_at":    "2026-06-04T09:00:00.000Z",
	})
	entry := func(kind string, details map[string]any) map[string]any {
		return map[string]any{"at": "2026-06-04T09:00:00.000Z", "type": kind, "message": "message of " + kind,
			"object_id": requestID, "details": details}
	}
	s.set("GET /v1/call-requests/"+requestID+"/timeline", map[string]any{"call_request_id": requestID, "data": []any{
		entry("call_request.created", map[string]any{"to": "+14155550103"}),
		entry("decision", map[string]any{"kind": "dial", "result": "closed", "gates": []any{
			map[string]any{
				"gate":    "calling_window",
				"result":  "failed",
				"checked": "02:45",
				"reason":  "02:45 in Los Angeles, outside the window",
			},
		}}),
		entry("attempt.ended", map[string]any{"sip_status": 486, "sip_reason": "Busy Here", "hangup_cause": "user_busy"}),
		entry("delivery.attempted", map[string]any{"event_type": "call.completed", "status_code": 500, "duration_ms": 12}),
		entry("delivery.attempted", map[string]any{"event_type": "call.completed", "error": "tls_failed"}),
		entry("a.later.type", map[string]any{}),
	}})
	full := maps.Clone(call)
	full["summary"] = map[string]any{
		"customer_name": "<b>Grace</b>",
		"scheduled_for": "2026-06-05T10:00:00.000-08:00",
		"key_interests": []string{"a", "b"},
	}
	full["transcript"] = map[string]any{"turns": []any{map[string]any{
		"role": "person", "text": "<script>alert(1)</script>", "at": "2026-06-04T09:00:03.500Z",
	}}}
	s.set("GET /v1/calls/"+workspaceID, full)
}

func TestTimeline_ShowsEachStepAsASentence(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.setStory()
	for _, path := range []string{"/calls/" + workspaceID, "/call-requests/" + requestID} {
		w := s.get("/w/" + workspaceID + path)
		wantStatus(t, w, http.StatusOK)
		for _, want := range []string{
			"The call to +14155550103 was requested.", "Directly before dialing, the checks refused the call.",
			"02:45 in Los Angeles, outside the window", "The attempt to dial ended: 486 Busy Here user_busy.",
			"The webhook endpoint responded to call.completed with 500 after 12 ms.",
			"The webhook endpoint did not respond to call.completed.",
			"message of a.later.type", "0.003334", "a · b", "Jun 5, 18:00:00 UTC", "<script>alert(1)</script>",
		} {
			wantBody(t, w, want)
		}
		for _, hostile := range []string{"<b>Grace", "<script>alert"} {
			if strings.Contains(w.Body.String(), hostile) {
				t.Errorf("%s: body contains %s", path, hostile)
			}
		}
	}
}

func TestTranscript_OperatorMustGiveAReasonToReadIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.setStory()
	w := s.get("/w/" + workspaceID + "/calls/" + workspaceID)
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, `name="reason"`)
	if sent := s.sent("/v1/calls/" + workspaceID); len(sent) != 0 {
		t.Errorf("requests for the transcript = %d, want none", len(sent))
	}
	if strings.Contains(w.Body.String(), "Grace") {
		t.Error("the page shows the summary to an operator who gave no reason")
	}
}

func TestTranscript_IsNotShownToViewers(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	s.setStory()
	s.set("GET /v1/calls/"+workspaceID, refusal{status: 403, code: "forbidden"})
	w := s.get("/w/" + workspaceID + "/calls/" + workspaceID)
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, "Your role does not permit reading transcripts.")
	plain := s.get("/w/" + workspaceID + "/call-requests/" + requestID + "/json")
	for _, page := range []string{w.Body.String(), plain.Body.String()} {
		if strings.Contains(page, "4155550103") {
			t.Errorf("the page shows a whole number to a viewer:\n%s", page)
		}
		if strings.Contains(page, "Grace") {
			t.Errorf("the page shows the summary to a viewer:\n%s", page)
		}
	}
}
