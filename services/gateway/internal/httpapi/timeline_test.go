package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

const (
	aRequestID = "0190c2a0-0000-7000-8000-000000000001"
	aCallID    = "0190c2a0-0000-7000-8000-000000000002"
	anObjectID = "0190c2a0-0000-7000-8000-000000000003"
	aSIPCallID = "call@ringfence.example"
)

// timelineOwners returns the responses of the fake services, by path. The fake services have data
// about one request.
func timelineOwners() map[string]string {
	return map[string]string{
		"/v1/call-requests/" + aRequestID: `{"id":"` + aRequestID + `","status":"completed",
			"call_id":"` + aCallID + `","to":"+15550100","agent_id":"` + anObjectID + `","created_at":"2026-06-04T09:00:00.000Z",
			"completed_at":"2026-06-04T09:00:30.000Z"}`,
		"/v1/calls/" + aCallID: `{"call_id":"` + aCallID + `","status":"completed",
			"hangup_cause":"normal_clearing","credits_charged":0.01,
			"timings":{"dialed_at":"2026-06-04T09:00:02.000Z","answered_at":"2026-06-04T09:00:05.000Z",
			"ended_at":"2026-06-04T09:00:29.000Z"}}`,
		"/internal/v1/attempts": `{"data":[{"id":"` + anObjectID + `","call_id":"` + aCallID + `",
			"started_at":"2026-06-04T09:00:02.100Z","ended_at":"2026-06-04T09:00:29.000Z","sip_status":200,
			"sip_call_id":"` + aSIPCallID + `","sip_reason":"OK","hangup_cause":"normal_clearing"}],"has_more":false}`,
		"/internal/v1/calls/" + aRequestID + "/deliveries": `{"data":[{"id":"` + anObjectID + `",
			"event_type":"call_request.failed","status":"queued","created_at":"2026-06-04T09:00:30.500Z","attempts":[]}]}`,
		"/internal/v1/calls/" + aCallID + "/deliveries": `{"data":[{"id":"` + anObjectID + `",
			"event_type":"call.completed","status":"delivered","created_at":"2026-06-04T09:00:31.000Z","attempts":[
			{"at":"2026-06-04T09:00:31.100Z","status_code":500,"error":null,"duration_ms":3},
			{"at":"2026-06-04T09:01:31.000Z","status_code":200,"error":null,"duration_ms":4}]}]}`,
	}
}

// decisionPages returns two pages: the first contains the dial-time check, the second the
// pre-check.
func decisionPages(query string) string {
	const dial = `{"data":[{"id":"` + anObjectID + `","kind":"dial","result":"open",
		"judged_at":"2026-06-04T09:00:01.000Z"}],"has_more":true}`
	const preCheck = `{"data":[{"id":"` + aCallID + `","kind":"precheck","result":"open",
		"judged_at":"2026-06-04T09:00:00.000Z"}],"has_more":false}`
	if strings.Contains(query, "starting_after="+anObjectID) {
		return preCheck
	}
	return dial
}

// answerTimeline makes the fake services respond with data about a request. The service with the
// name broken responds 503.
func (r *rig) answerTimeline(broken string) {
	bodies := timelineOwners()
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		path, query, _ := strings.Cut(h.uri, "?")
		body, known := bodies[path]
		if path == "/v1/decisions" {
			body, known = decisionPages(query), true
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case h.owner == broken:
			w.WriteHeader(http.StatusServiceUnavailable)
			body = `{"error":{"code":"unavailable","message":"x"}}`
		case !known:
			w.WriteHeader(http.StatusNotFound)
			body = `{"error":{"code":"not_found","message":"No such call request in this workspace."}}`
		}
		_, _ = w.Write([]byte(body))
		return true
	})
}

// The timeline must contain the Call-ID, because an operator uses it to search for the call at the
// provider.
func TestTimeline_AttemptsHaveTheCallIDAndTheResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	r.answerTimeline("")
	got := r.customer("GET", "/v1/call-requests/"+aRequestID+"/timeline", key, "")
	var read openapi.Timeline
	if err := json.Unmarshal([]byte(got.body), &read); err != nil {
		t.Fatalf("timeline = %d %s: %v", got.status, got.body, err)
	}
	attempts := map[string]map[string]any{}
	for _, e := range read.Data {
		if strings.HasPrefix(e.Type, "attempt.") {
			attempts[e.Type] = e.Details
		}
	}
	want := map[string]map[string]any{
		"attempt.started": {"call_id": aCallID, "sip_call_id": aSIPCallID},
		"attempt.ended": {
			"call_id": aCallID, "sip_call_id": aSIPCallID, "sip_status": 200.0, "sip_reason": "OK",
			"hangup_cause": "normal_clearing", "error": nil,
		},
	}
	if diff := cmp.Diff(want, attempts); diff != "" {
		t.Errorf("details of the attempts (-want +got):\n%s", diff)
	}
}

func TestTimeline_ListsAllEntriesInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace("")
	key, _ := r.key(workspaceID, "read")
	mute, _ := r.key(r.workspace(`"features":{"webhooks":false}`), "read")
	r.answerTimeline("")
	want := []string{
		"09:00:00.000 call_request.created", "09:00:00.000 decision", "09:00:01.000 decision", "09:00:02.000 call.dialed",
		"09:00:02.100 attempt.started", "09:00:05.000 call.answered", "09:00:29.000 attempt.ended", "09:00:29.000 call.ended",
		"09:00:30.000 call_request.completed", "09:00:30.500 delivery.created", "09:00:31.000 delivery.created",
		"09:00:31.100 delivery.attempted", "09:01:31.000 delivery.attempted",
	}
	shown := func(got answered) (lines []string) {
		t.Helper()
		if got.status != http.StatusOK {
			t.Fatalf("timeline = %d %s", got.status, got.body)
		}
		var read openapi.Timeline
		if err := json.Unmarshal([]byte(got.body), &read); err != nil {
			t.Fatal(err)
		}
		for _, e := range read.Data {
			lines = append(lines, e.At.Format("15:04:05.000 ")+e.Type)
			if e.Message == "" {
				t.Errorf("entry = %+v, want a message", e)
			}
			if e.Details == nil {
				t.Errorf("entry = %+v, want details", e)
			}
		}
		return lines
	}
	const path = "/v1/call-requests/" + aRequestID + "/timeline"
	if diff := cmp.Diff(want, shown(r.customer("GET", path, key, ""))); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:9], shown(r.customer("GET", path, mute, ""))); diff != "" {
		t.Errorf("timeline without the webhooks feature (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(
		want,
		shown(r.operator("GET", "/admin/v1/workspaces/"+workspaceID+"/call-requests/"+aRequestID+"/timeline", "")),
	); diff != "" {
		t.Errorf("timeline of an operator (-want +got):\n%s", diff)
	}
	for _, owner := range []string{proxy.Calls, proxy.Contacts, proxy.Dialer, proxy.Webhooks} {
		for _, h := range r.requestsTo(owner) {
			if h.caller.Operator == "" && h.caller.Access != serviceauth.Read {
				t.Errorf("%s received access %q, want read", owner, h.caller.Access)
			}
		}
	}
}

func TestTimeline_ContainsDeliveriesOfARequestWithoutACall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	bodies := map[string]string{
		"/v1/call-requests/" + aRequestID: `{"id":"` + aRequestID + `","status":"canceled","call_id":null,
			"created_at":"2026-06-04T09:00:00.000Z","completed_at":"2026-06-04T09:00:30.000Z"}`,
		"/internal/v1/calls/" + aRequestID + "/deliveries": `{"data":[{"id":"` + anObjectID + `",
			"event_type":"call_request.canceled","status":"queued","created_at":"2026-06-04T09:00:31.000Z","attempts":[]}]}`,
	}
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		path, _, _ := strings.Cut(h.uri, "?")
		body, known := bodies[path]
		if !known {
			body = `{"data":[],"has_more":false}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
		return true
	})
	got := r.customer("GET", "/v1/call-requests/"+aRequestID+"/timeline", key, "")
	if got.status != http.StatusOK {
		t.Fatalf("timeline = %d %s", got.status, got.body)
	}
	if want := "A delivery of call_request.canceled was created; it is now queued."; !strings.Contains(got.body, want) {
		t.Errorf("timeline = %s, want it to contain %q", got.body, want)
	}
}

func TestTimeline_UnavailableServiceGives503(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	for _, owner := range []string{proxy.Calls, proxy.Contacts, proxy.Dialer, proxy.Webhooks} {
		r.answerTimeline(owner)
		got := r.customer("GET", "/v1/call-requests/"+aRequestID+"/timeline", key, "")
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("without %s: status = %d, want 503; body = %s", owner, got.status, got.body)
		}
		if got.code() != "unavailable" {
			t.Errorf("without %s: code = %q, want unavailable", owner, got.code())
		}
	}
	r.answerTimeline("")
	for _, id := range []string{anObjectID, "x", "{" + aRequestID + "}", strings.ReplaceAll(aRequestID, "-", "")} {
		got := r.customer(
			"GET",
			"/v1/call-requests/"+strings.NewReplacer("{", "%7B", "}", "%7D").Replace(id)+"/timeline",
			key,
			"",
		)
		if got.status != http.StatusNotFound {
			t.Errorf("timeline of %s: status = %d, want 404; body = %s", id, got.status, got.body)
		}
		if got.code() != "not_found" {
			t.Errorf("timeline of %s: code = %q, want not_found", id, got.code())
		}
	}
}
