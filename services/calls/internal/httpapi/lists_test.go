package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
)

func (r *rig) walk(path, query string, limit string) (ids []string) {
	r.t.Helper()
	after := ""
	for {
		page := r.want(http.StatusOK, "GET", path+"?limit="+limit+query+after, nil)
		for _, item := range page["data"].([]any) {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		if page["has_more"] != true {
			return ids
		}
		after = "&starting_after=" + ids[len(ids)-1]
	}
}

func TestLists_PagesNeitherSkipNorRepeatAnItem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var requests, calls []string
	for range 7 {
		a := r.account(r.place())
		a.publish(a.ringing())
		requests, calls = append(requests, a.request.String()), append(calls, a.id())
	}
	slices.Reverse(requests)
	slices.Reverse(calls)
	for _, limit := range []string{"1", "2", "3", "7", "100"} {
		if got := r.walk("/v1/call-requests", "", limit); !slices.Equal(got, requests) {
			t.Errorf("limit %s: requests %v, want %v", limit, got, requests)
		}
		if got := r.walk("/v1/calls", "", limit); !slices.Equal(got, calls) {
			t.Errorf("limit %s: calls %v, want %v", limit, got, calls)
		}
	}
	if other := r.doAs(newID(t), "GET", "/v1/calls", nil); len(other.body["data"].([]any)) != 0 {
		t.Errorf(`doAs: other.body["data"].([]any) = %v, want none`, other.body["data"].([]any))
	} else if other.body["has_more"] != false {
		t.Errorf(`doAs: other.body["has_more"] = %v, want false`, other.body["has_more"])
	}
	if other := r.doAs(newID(t), "GET", "/v1/calls?starting_after="+calls[0], nil); other.code() != "validation_error" {
		t.Errorf("another workspace's cursor = %d %v, want 422", other.status, other.body)
	}
}

func TestLists_FiltersSelectMatchingItems(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.account(r.place("external_ref", "a b"))
	first.publish(first.ended("busy", "user_busy"))
	second := r.account(r.place("external_ref", "other", "to", "+14155550199"))
	second.call.ToE164 = "+14155550199"
	second.publish(second.ringing())
	unnamed := r.account(r.place("external_ref", ""))
	unnamed.publish(unnamed.answered())
	inbound := r.account(uuid.Nil)
	inbound.publish(inbound.ringing())
	talked := r.account(r.place("to", "+14155550198"))
	talked.call.ToE164 = "+14155550198"
	talked.publish(talked.answered(), talked.ended("completed", "normal_clearing"), talked.analysed())
	queued := r.place("external_ref", "a b")
	created := r.want(http.StatusOK, "GET", "/v1/calls?status=busy", nil)["data"].([]any)[0].(map[string]any)["created_at"].(string)
	at, err := time.Parse(time.RFC3339, created)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := time.Parse(time.RFC3339, r.request(queued)["created_at"].(string))
	if err != nil {
		t.Fatal(err)
	}
	stamp := func(t time.Time) string { return url.QueryEscape(t.Format(time.RFC3339Nano)) }
	tests := []struct {
		path string
		want []string
	}{
		{"/v1/calls?status=busy", []string{first.id()}},
		{"/v1/calls?direction=inbound", []string{inbound.id()}},
		{"/v1/calls?contact_id=" + second.call.GetContactId(), []string{second.id()}},
		{"/v1/calls?agent_id=" + newID(t).String(), nil},
		{"/v1/calls?external_ref=a%20b", []string{first.id()}},
		{"/v1/calls?external_ref=", []string{unnamed.id()}},
		{"/v1/calls?unknown=1&status=ringing&direction=outbound", []string{second.id()}},
		{"/v1/calls?created_before=" + stamp(at), nil},
		{"/v1/calls?created_before=" + stamp(at.Add(time.Nanosecond)) + "&status=busy", []string{first.id()}},
		{"/v1/calls?status=busy&created_after=" + stamp(at), nil},
		{"/v1/calls?status=busy&created_after=" + stamp(at.Add(-time.Nanosecond)), []string{first.id()}},
		{"/v1/calls?status=busy&created_after=" + strings.Replace(at.Add(-time.Hour).Format("2006-01-02T15:04:05-07:00"), "Z", "+00:00", 1), []string{first.id()}},
		{"/v1/calls?to=%2B14155550199", []string{second.id()}},
		{"/v1/calls?to=+14155550199", []string{second.id()}},
		{"/v1/calls?to=%2B14155559999", nil},
		{"/v1/calls?call_request_id=" + first.request.String(), []string{first.id()}},
		{"/v1/calls?call_request_id=" + queued.String(), nil},
		{"/v1/calls?call_request_id=" + first.request.String() + "&status=ringing", nil},
		{"/v1/calls?outcome=interested", []string{talked.id()}},
		{"/v1/calls?outcome=interested&direction=inbound", nil},
		{"/v1/call-requests?to=%2B14155550199", []string{second.request.String()}},
		{"/v1/call-requests?to=%2B14155550199&status=queued", nil},
		{"/v1/call-requests?status=queued", []string{queued.String()}},
		{"/v1/call-requests?status=queued&created_before=" + stamp(placed), nil},
		{"/v1/call-requests?status=queued&created_before=" + stamp(placed.Add(time.Nanosecond)), []string{queued.String()}},
		{"/v1/call-requests?created_after=" + stamp(placed.Add(-time.Nanosecond)), []string{queued.String()}},
		{"/v1/call-requests?created_after=" + stamp(placed), nil},
		{"/v1/call-requests?external_ref=a%20b", []string{queued.String(), first.request.String()}},
		{"/v1/call-requests?external_ref=", []string{unnamed.request.String()}},
		{"/v1/call-requests?external_ref=a%20b&status=completed", []string{first.request.String()}},
	}
	for _, tt := range tests {
		var got []string
		for _, item := range r.want(http.StatusOK, "GET", tt.path, nil)["data"].([]any) {
			got = append(got, item.(map[string]any)["id"].(string))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s = %v, want %v", tt.path, got, tt.want)
		}
	}
}

func TestLists_ErrorNamesTheMalformedParameter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for path, field := range map[string]string{
		"/v1/calls?limit=0": "limit", "/v1/calls?limit=101": "limit", "/v1/calls?limit=x": "limit",
		"/v1/calls?starting_after=x": "starting_after", "/v1/calls?starting_after=" + newID(t).String(): "starting_after",
		"/v1/calls?status=queued": "status", "/v1/calls?direction=up": "direction", "/v1/calls?agent_id=x": "agent_id",
		"/v1/calls?contact_id=x": "contact_id", "/v1/calls?call_request_id=x": "call_request_id",
		"/v1/calls?to=4155550100": "to", "/v1/calls?to=": "to", "/v1/calls?outcome=%00": "outcome",
		"/v1/call-requests?to=x": "to", "/v1/calls?created_after=yesterday": "created_after",
		"/v1/call-requests?created_after=x": "created_after", "/v1/call-requests?created_before=1": "created_before",
		"/v1/calls?created_before=2026-06-04": "created_before", "/v1/calls?external_ref=%00": "external_ref",
		"/v1/call-requests?status=ringing": "status", "/v1/call-requests?starting_after=" + newID(t).String(): "starting_after",
		"/v1/call-requests?external_ref=%ff": "external_ref",
	} {
		a := r.do("GET", path, nil)
		if a.status != 422 {
			t.Errorf("%s: a.status = %v, want 422", path, a.status)
		}
		if a.code() != "validation_error" {
			t.Errorf("%s: a.code() = %q, want \"validation_error\"", path, a.code())
		}
		if !strings.HasPrefix(a.message(), field) {
			t.Errorf("%s: a.message() = %q, want it to begin with %q", path, a.message(), field)
		}
	}
}

func TestCalls_MissingTranscriptAndRecordingAre404(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.ended("completed", "normal_clearing"), a.analysed())
	other := newID(t)
	for _, tt := range []struct {
		as   uuid.UUID
		path string
		code string
	}{
		{r.workspace, "/v1/calls/" + a.id() + "/transcript", "transcript_not_available"},
		{r.workspace, "/v1/calls/" + a.id() + "/recording", "recording_not_available"},
		{r.workspace, "/v1/calls/" + other.String() + "/transcript", "not_found"},
		{r.workspace, "/v1/calls/" + other.String(), "not_found"},
		{r.workspace, "/v1/calls/x", "not_found"},
		{r.workspace, "/v1/call-requests/" + a.id(), "not_found"},
		{other, "/v1/calls/" + a.id(), "not_found"},
		{other, "/v1/calls/" + a.id() + "/recording", "not_found"},
		{other, "/v1/call-requests/" + a.request.String(), "not_found"},
	} {
		if got := r.doAs(tt.as, "GET", tt.path, nil); got.status != http.StatusNotFound {
			t.Errorf("%s: got.status = %v, want %v; got.body = %v", tt.path, got.status, http.StatusNotFound, got.body)
		} else if got.code() != tt.code {
			t.Errorf("%s: got.code() = %q, want %q; got.body = %v", tt.path, got.code(), tt.code, got.body)
		}
	}
}

func TestAgents_CanBeCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	added := r.want(http.StatusCreated, "POST", r.admin("/agents"), `{"name":"Bo","from_number":"+15005550006","max_call_seconds":60,"voice":"calm"}`)
	path := r.admin("/agents/" + added["id"].(string))
	got := r.want(http.StatusOK, "GET", path, nil)
	testkit.Members(t, "agent", got, map[string]any{
		"name": "Bo", "voice": "calm", "from_number": "+15005550006", "max_call_seconds": 60.0,
	})
	if got := r.want(http.StatusOK, "PATCH", path, `{"voice":null,"name":"Bob"}`); got["name"] != "Bob" {
		t.Errorf(`changed agent: got["name"] = %q, want "Bob"`, got["name"])
	} else if got["voice"] != nil {
		t.Errorf(`changed agent: got["voice"] = %v, want nil`, got["voice"])
	}
	if a := r.do("PATCH", path, `{"max_call_seconds":0}`); a.code() != "validation_error" {
		t.Errorf("bad change = %d %v", a.status, a.body)
	}
	if got := r.walk(r.admin("/agents"), "", "1"); !slices.Equal(got, []string{added["id"].(string), r.agent.String()}) {
		t.Errorf("agents = %v", got)
	}
	r.want(http.StatusOK, "DELETE", path, nil)
	for _, method := range []string{"GET", "DELETE"} {
		if a := r.do(method, path, nil); a.status != http.StatusNotFound {
			t.Errorf("%s of a deleted agent = %d, want 404", method, a.status)
		}
	}
	if a := r.do("POST", "/v1/calls", r.order("agent_id", added["id"])); a.code() != "invalid_agent" {
		t.Errorf("POST with a deleted agent = %d %v", a.status, a.body)
	}
	var versions []int64
	var last *eventv1.AgentEvent
	for _, event := range outboxEvents[eventv1.AgentEvent](r, kafka.Agents) {
		if event.GetAgentId() == added["id"] {
			versions, last = append(versions, event.GetVersion()), event
		}
	}
	if !slices.Equal(versions, []int64{1, 2, 3}) {
		t.Errorf("versions = %v, want %v", versions, []int64{1, 2, 3})
	}
	if !last.GetAgent().GetDeleted() {
		t.Errorf("last.GetAgent().GetDeleted() = false, want true")
	}
	if last.GetAgent().GetMaxCallSeconds() != 60 {
		t.Errorf("last.GetAgent().GetMaxCallSeconds() = %v, want 60", last.GetAgent().GetMaxCallSeconds())
	}
	elsewhere := strings.Replace(path, r.workspace.String(), newID(t).String(), 1)
	if a := r.do("GET", elsewhere, nil); a.status != http.StatusNotFound {
		t.Errorf("a path of another workspace than the signed one = %d, want 404", a.status)
	}
}
