package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

func (p *replayFixture) get(path string) response {
	p.t.Helper()
	return p.customer(p.ws, http.MethodGet, path, "")
}

func (p *replayFixture) post(path, body string) response {
	p.t.Helper()
	return p.customer(p.ws, http.MethodPost, path, body)
}

// complete claims the due deliveries and stores the same response for each.
func (p *replayFixture) complete(outcome deliveries.Outcome, response deliveries.Response) {
	p.t.Helper()
	claimed, err := p.store.ClaimDue(p.t.Context(), claimUpTo(p.sub, 100))
	if err != nil {
		p.t.Fatal(err)
	}
	response.At = time.Unix(1780574460, 0)
	for _, w := range claimed.Work {
		result := deliveries.Result{
			DeliveryID: w.DeliveryID,
			Attempt:    w.Attempt,
			Replay:     w.Replay,
			Outcome:    outcome,
			Delay:      time.Hour,
			Response:   response,
		}
		if _, err := p.store.Complete(p.t.Context(), []deliveries.Result{result}); err != nil {
			p.t.Fatal(err)
		}
	}
}

const deliveryPath = "/v1/webhook-deliveries/"

func TestReadSubscription_ReturnsTheFailureReasonAndTheLastError(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	path := collection + "/" + p.sub
	got := p.get(path)
	wantStatus(t, "GET", got, 200, "")
	listed, _ := p.get(collection).body["data"].([]any)[0].(map[string]any)
	listed["failure_reason"], listed["last_error"] = nil, nil
	if diff := cmp.Diff(listed, got.body); diff != "" {
		t.Errorf("subscription, compared with the list (-want +got):\n%s", diff)
	}
	p.event(uuid.New(), 1)
	p.complete(
		deliveries.OutcomeFailed,
		deliveries.Response{Failure: deliveries.TLSFailed, Detail: "certificate signed by unknown authority"},
	)
	wantEqual(
		t,
		"last_error",
		p.get(path).text("last_error"),
		"The TLS handshake failed: certificate signed by unknown authority.",
	)
	if _, err := p.pool.Exec(
		t.Context(),
		`UPDATE subscriptions SET status = 'failed', failed_at = now(), failed_reason = 'It failed.'`,
	); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "failure_reason", p.get(path).text("failure_reason"), "It failed.")
	p.setStatus("active")
	wantEqual(t, "failure_reason after the resumption", p.get(path).body["failure_reason"], nil)
	wantEqual(t, "last_error after the resumption", p.get(path).body["last_error"], nil)
	p.event(uuid.New(), 1)
	p.complete(deliveries.OutcomeFailed, deliveries.Response{Code: 302, Failure: deliveries.BadStatus})
	wantEqual(
		t,
		"last_error",
		p.get(path).text("last_error"),
		"The endpoint responded with status 302: redirects are not followed.",
	)
	p.event(uuid.New(), 1)
	p.complete(deliveries.OutcomeDelivered, deliveries.Response{Code: 200})
	wantEqual(t, "last_error after a success", p.get(path).body["last_error"], nil)
	for _, id := range []string{uuid.NewString(), "seven"} {
		wantStatus(t, "GET of another id", p.get(collection+"/"+id), 404, "not_found")
	}
	if got := p.customer(uuid.New(), http.MethodGet, path, ""); got.status != 404 {
		t.Errorf("GET in another workspace = %d, want 404", got.status)
	}
}

func TestReadDelivery_ReturnsEventHeadersAndResponses(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	call := uuid.New()
	id := p.event(call, 1)
	p.complete(
		deliveries.OutcomeRetry,
		deliveries.Response{Code: 500, Failure: deliveries.BadStatus, Excerpt: "oops", Duration: 42 * time.Millisecond},
	)
	list := p.get(collection + "/" + p.sub + "/deliveries")
	wantStatus(t, "list", list, 200, "")
	item, _ := list.body["data"].([]any)[0].(map[string]any)
	one := p.get(deliveryPath + id.String())
	wantStatus(t, "delivery", one, 200, "")
	wantEqual(t, "next_attempt_at is set", one.body["next_attempt_at"] != nil, true)
	eventID := one.text("event_id")
	attempt := map[string]any{
		"at":          "2026-06-04T12:01:00.000Z",
		"status_code": 500.0,
		"error":       "The endpoint responded with status 500.",
		"duration_ms": 42.0,
	}
	want := map[string]any{
		"id": id.String(), "event_id": eventID, "event_type": "call.completed",
		"call_id": call.String(), "status": "queued",
		"attempts": []any{attempt}, "next_attempt_at": one.body["next_attempt_at"],
	}
	if diff := cmp.Diff(want, item); diff != "" {
		t.Errorf("listed delivery (-want +got):\n%s", diff)
	}
	attempt["response_body"] = "oops"
	attempt["request_headers"] = map[string]any{
		"Content-Type": "application/json", "User-Agent": deliveries.UserAgent,
		"X-Service-Signature": "t=1780574460,v1=…",
		"X-Service-Event-Id":  eventID, "X-Service-Delivery-Id": id.String(), "X-Service-Delivery-Attempt": "1",
	}
	want["event"] = map[string]any{}
	if diff := cmp.Diff(want, one.body); diff != "" {
		t.Errorf("delivery (-want +got):\n%s", diff)
	}
	p.setStatus("paused")
	held := p.get(deliveryPath + id.String())
	wantEqual(t, "status while paused", held.text("status"), "held")
	wantEqual(t, "next_attempt_at while paused", held.body["next_attempt_at"], nil)
	p.setStatus("active")
	if _, err := p.pool.Exec(t.Context(), `UPDATE delivery_queue SET due_at = now()`); err != nil {
		t.Fatal(err)
	}
	p.complete(deliveries.OutcomeFailed, deliveries.Response{Failure: deliveries.NotSendable})
	attempts, _ := p.get(deliveryPath + id.String()).body["attempts"].([]any)
	if len(attempts) != 2 {
		t.Fatalf("attempts = %v, want 2", attempts)
	}
	unsent, _ := attempts[1].(map[string]any)
	for _, name := range []string{"request_headers", "response_body", "status_code"} {
		wantEqual(t, name+" of an attempt without a request", unsent[name], nil)
	}
	for _, id := range []string{uuid.NewString(), uuid.Must(uuid.NewV7()).String(), "seven"} {
		wantStatus(t, "GET of another id", p.get(deliveryPath+id), 404, "not_found")
	}
	if got := p.customer(uuid.New(), http.MethodGet, deliveryPath+id.String(), ""); got.status != 404 {
		t.Errorf("GET in another workspace = %d, want 404", got.status)
	}
}

func TestListDeliveries_PagesAreInTheOrderOfTheIDs(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	var want []string
	for n := range int32(7) {
		want = append([]string{p.event(uuid.New(), n).String()}, want...)
	}
	var got []string
	for after := ""; ; {
		page := p.get(collection + "/" + p.sub + "/deliveries?limit=3" + after)
		wantStatus(t, "page", page, 200, "")
		got = append(got, page.list()...)
		if page.body["has_more"] != true {
			break
		}
		after = "&starting_after=" + got[len(got)-1]
	}
	wantList(t, "deliveries of all pages", got, want)
	unknown := "starting_after=" + uuid.NewString()
	for _, query := range []string{"status=sent", "event_type=call", "call_id=7", "limit=0", unknown} {
		wantStatus(t, query, p.get(collection+"/"+p.sub+"/deliveries?"+query), 422, "validation_error")
	}
	wantStatus(t, "another subscription", p.get(collection+"/"+uuid.NewString()+"/deliveries"), 404, "not_found")
}

func TestResend_RespondsWithTheQueuedDelivery(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	id := p.event(uuid.New(), 1)
	p.complete(deliveries.OutcomeFailed, deliveries.Response{Code: 500, Failure: deliveries.BadStatus})
	for range 2 {
		got := p.post(deliveryPath+id.String()+"/resend", "")
		wantStatus(t, "resend", got, 202, "")
		wantEqual(t, "status", got.text("status"), "queued")
		wantEqual(t, "id", got.text("id"), id.String())
		attempts, _ := got.body["attempts"].([]any)
		wantEqual(t, "attempts", len(attempts), 1)
	}
	p.complete(deliveries.OutcomeDelivered, deliveries.Response{Code: 200})
	wantEqual(t, "claimable deliveries", len(p.sendAll(deliveries.OutcomeDelivered)), 0)
	byOperator := p.operator(http.MethodPost, p.path()+"/"+id.String()+"/resend", "")
	wantStatus(t, "resend by an operator", byOperator, 202, "")
	wantEqual(t, "replays", byOperator.body["replays"], any(2.0))
	elsewhere := strings.Replace(p.path(), p.sub, uuid.NewString(), 1)
	wantStatus(
		t,
		"resend under another subscription",
		p.operator(http.MethodPost, elsewhere+"/"+id.String()+"/resend", ""),
		404,
		"not_found",
	)
	p.setStatus("paused")
	wantStatus(t, "resend while paused", p.post(deliveryPath+id.String()+"/resend", ""), 409, "subscription_not_active")
	p.setStatus("active")
	if _, err := p.pool.Exec(t.Context(), `DELETE FROM events`); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "resend without a stored event", p.post(deliveryPath+id.String()+"/resend", ""), 409, "invalid_state")
	wantEqual(t, "event", p.get(deliveryPath + id.String()).body["event"], nil)
	wantStatus(t, "resend of another id", p.post(deliveryPath+uuid.NewString()+"/resend", ""), 404, "not_found")
	if got := p.customer(uuid.New(), http.MethodPost, deliveryPath+id.String()+"/resend", ""); got.status != 404 {
		t.Errorf("resend in another workspace = %d, want 404", got.status)
	}
}

func TestReplayPeriod_InvalidRequestIsRefused(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	id := p.event(uuid.New(), 1)
	p.complete(deliveries.OutcomeDelivered, deliveries.Response{Code: 200})
	path := collection + "/" + p.sub + "/replay"
	for name, body := range map[string]string{
		"no body": "", "not JSON": "{", "no since": `{}`, "since null": `{"since":null}`,
		"since without an offset": `{"since":"2026-06-04T09:00:00"}`,
		"since is a number":       `{"since":7}`, "until is not a time": `{` + longAgo + `,"until":"soon"}`,
		"until is since":        `{` + longAgo + `,"until":"2026-01-01T00:00:00Z"}`,
		"only_failed is a text": `{` + longAgo + `,"only_failed":"yes"}`,
		"until is before since": `{` + longAgo + `,"until":"2025-01-01T00:00:00Z"}`,
	} {
		wantStatus(t, name, p.post(path, body), 422, "validation_error")
	}
	const late = `,"until":"2099-01-01T00:00:00Z"`
	for body, want := range map[string]float64{
		`{` + longAgo + late + `,"only_failed":true}`: 0, `{"since":"2098-01-01T00:00:00Z"` + late + `}`: 0,
		`{` + longAgo + `,"until":"2026-01-02T00:00:00Z"}`: 0,
	} {
		got := p.post(path, body)
		wantStatus(t, body, got, 202, "")
		wantEqual(t, body, got.body["deliveries"], any(want))
	}
	got := p.post(path, `{`+longAgo+late+`,"only_failed":null}`)
	wantStatus(t, "replay", got, 202, "")
	if diff := cmp.Diff(map[string]any{"deliveries": 1.0}, got.body); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	byOperator := p.operator(
		http.MethodPost,
		"/admin/v1/workspaces/"+p.ws.String()+"/webhook-subscriptions/"+p.sub+"/replay",
		`{`+longAgo+`}`,
	)
	wantStatus(t, "replay by an operator", byOperator, 202, "")
	p.setStatus("paused")
	wantStatus(t, "replay while paused", p.post(path, `{`+longAgo+`}`), 409, "subscription_not_active")
	for _, id := range []string{uuid.NewString(), "seven"} {
		wantStatus(t, "replay of another id", p.post(collection+"/"+id+"/replay", "{"), 404, "not_found")
	}
	other := uuid.New()
	if got := p.customer(other, http.MethodPost, path, `{`+longAgo+`}`); got.status != 404 {
		t.Errorf("replay in another workspace = %d, want 404", got.status)
	}
	for _, action := range []string{"/replay", "/deliveries/" + id.String() + "/resend"} {
		got := p.fixture.operator(other, http.MethodPost, operatorPath(other, p.sub)+action, `{`+longAgo+`}`)
		wantStatus(t, action+" by an operator in another workspace", got, 404, "not_found")
	}
}
