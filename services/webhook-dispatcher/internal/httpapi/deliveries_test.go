package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
)

func TestDelete_RemovesTheDeliveryHistoryOfTheSubscription(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeFailed)
	p.requireReplayed("replay", p.replay(`{"status":"failed",`+longAgo+`}`), 1, false)
	p.event(uuid.New(), 1)
	p.event(uuid.New(), 1)
	claimed, err := p.store.ClaimDue(t.Context(), claimUpTo(p.sub, 2))
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	inFlight := claimed.Work
	if len(inFlight) != 2 {
		t.Fatalf("claimed deliveries = %d, want 2", len(inFlight))
	}
	if got := p.customer(p.ws, http.MethodDelete, collection+"/"+p.sub, ""); got.status != 200 {
		t.Fatalf("DELETE = %d %v", got.status, got.body)
	}
	for _, path := range []string{p.path(), p.path() + "/" + inFlight[0].DeliveryID.String()} {
		if got := p.operator(http.MethodGet, path, ""); got.status != 404 {
			t.Errorf("GET %s = %d, want 404", path, got.status)
		}
	}
	if got := p.replay(`{"status":"failed",` + longAgo + `}`); got.status != 404 {
		t.Errorf("replay = %d %v, want 404", got.status, got.body)
	}
	if err := retention.New(p.store, retention.Config{}).DeleteSubscriptions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if n := p.settle(inFlight, deliveries.OutcomeDelivered); n != 0 {
		t.Errorf("results of requests in flight stored after the deletion = %d, want 0", n)
	}
	for _, table := range []string{"deliveries", "attempts", "delivery_queue", "subscriptions", "subscription_health"} {
		var n int
		if err := p.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatalf("count rows of %s: %v", table, err)
		}
		wantEqual(t, "rows of "+table, n, 0)
	}
}

func TestDeliveries_FilteredListContainsOnlyMatchingDeliveries(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	call := uuid.New()
	delivered := p.event(call, 1)
	p.sendAll(deliveries.OutcomeDelivered)
	failed := p.event(uuid.New(), 2)
	p.sendAll(deliveries.OutcomeFailed)
	held := p.event(call, 3)
	p.setStatus("paused")
	skipped := p.event(uuid.New(), 4)
	for query, want := range map[string][]uuid.UUID{
		"": {skipped, held, failed, delivered}, "?status=delivered": {delivered}, "?status=failed": {failed}, "?status=held": {held}, "?status=queued": nil,
		"?status=skipped": {skipped}, "?event_type=call.completed": {skipped, held, failed, delivered}, "?event_type=call.busy": nil, "?event_type=webhook.test": nil,
		"?call_id=" + call.String(): {held, delivered}, "?status=held&call_id=" + call.String() + "&event_type=call.completed": {held},
		"?status=delivered&starting_after=" + held.String(): {delivered},
	} {
		var ids []string
		for _, id := range want {
			ids = append(ids, id.String())
		}
		got := p.operator(http.MethodGet, p.path()+query, "")
		wantStatus(t, "query "+query, got, 200, "")
		wantList(t, "deliveries of query "+query, got.list(), ids)
	}
	p.setStatus("active")
	queued := p.operator(http.MethodGet, p.path()+"?status=queued", "").list()
	wantList(t, "queued deliveries after the resumption", queued, []string{held.String()})
	other, _ := p.create(p.ws)
	p.event(uuid.New(), 5)
	home := strings.Replace(p.path(), p.sub, other, 1)
	foreign := p.operator(http.MethodGet, home, "").list()
	if len(foreign) != 1 {
		t.Fatalf("deliveries of the other subscription = %v, want one", foreign)
	}
	for _, query := range []string{
		"?status=nope", "?event_type=call.nope", "?call_id=seven", "?starting_after=" + uuid.NewString(), "?starting_after=" + foreign[0], "?limit=0", "?limit=101",
	} {
		if got := p.operator(http.MethodGet, p.path()+query, ""); got.status != 422 {
			t.Errorf("%q = %d, want 422", query, got.status)
		}
	}
}

// The filter call_id selects the deliveries for the events of a call. It must not select deliveries
// for the events of a call request.
func TestDeliveries_ListCanBeFilteredByCallAndByObject(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	created := p.customer(p.ws, http.MethodPost, collection,
		`{"name":"x","url":"https://example.com/","events":["call.completed","call_request.canceled"]}`)
	wantStatus(t, "POST", created, 201, "")
	p.sub = created.text("id")
	call, request := uuid.New(), uuid.New()
	ofCall := p.event(call, 1)
	ofRequest := p.eventOf("call_request.canceled", request, 2)
	public := collection + "/" + p.sub + "/deliveries"
	for _, tt := range []struct {
		name string
		got  response
		want []string
	}{
		{"call_id, a call", p.get(public + "?call_id=" + call.String()), []string{ofCall.String()}},
		{"call_id, a call request", p.get(public + "?call_id=" + request.String()), nil},
		{
			"call_id, a call request and its event type",
			p.get(public + "?event_type=call_request.canceled&call_id=" + request.String()), nil,
		},
		{
			"object_id, a call", p.operator(http.MethodGet, p.path()+"?object_id="+call.String(), ""),
			[]string{ofCall.String()},
		},
		{
			"object_id, a call request", p.operator(http.MethodGet, p.path()+"?object_id="+request.String(), ""),
			[]string{ofRequest.String()},
		},
	} {
		wantStatus(t, tt.name, tt.got, 200, "")
		wantList(t, tt.name, tt.got.list(), tt.want)
	}
	wantStatus(t, "invalid object_id", p.operator(http.MethodGet, p.path()+"?object_id=x", ""), 422, "validation_error")
}

func TestCallDeliveries_ContainTheirStatusAndFailureCauses(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	call := uuid.New()
	p.event(call, 1)
	p.complete(
		deliveries.OutcomeRetry,
		deliveries.Response{Failure: deliveries.TLSFailed, Detail: "certificate signed by unknown authority"},
	)
	read := func() map[string]any {
		t.Helper()
		got := p.get("/internal/v1/calls/" + call.String() + "/deliveries")
		wantStatus(t, "deliveries", got, 200, "")
		data, _ := got.body["data"].([]any)
		if len(data) != 1 {
			t.Fatalf("deliveries = %v, want 1", got.body)
		}
		delivery, _ := data[0].(map[string]any)
		return delivery
	}
	queued := read()
	attempts, _ := queued["attempts"].([]any)
	if len(attempts) != 1 {
		t.Fatalf("attempts = %v, want 1", queued)
	}
	attempt, _ := attempts[0].(map[string]any)
	wantEqual(t, "error", attempt["error"],
		any("The TLS handshake failed: certificate signed by unknown authority."))
	wantEqual(t, "status", queued["status"], any("queued"))
	wantEqual(t, "next_attempt_at is set", queued["next_attempt_at"] != nil, true)
	p.setStatus("paused")
	held := read()
	wantEqual(t, "status while paused", held["status"], any("held"))
	wantEqual(t, "next_attempt_at while paused", held["next_attempt_at"], nil)
}

// The list must contain the deliveries of all events of the call with each attempt, and no delivery
// of another call or of another workspace.
func TestCallDeliveries_ListEveryAttempt(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	call := uuid.New()
	failed := p.event(call, 1)
	p.sendAll(deliveries.OutcomeFailed)
	p.requireReplayed("replay", p.replay(`{"status":"failed",`+longAgo+`}`), 1, false)
	p.sendAll(deliveries.OutcomeDelivered)
	queued := p.event(call, 2)
	p.event(uuid.New(), 3)
	path := "/internal/v1/calls/" + call.String() + "/deliveries"
	got := p.customer(p.ws, http.MethodGet, path, "")
	wantStatus(t, "deliveries of the call", got, 200, "")
	data, _ := got.body["data"].([]any)
	if len(data) != 2 {
		t.Fatalf("deliveries = %v, want 2", got.body)
	}
	for i, want := range []struct {
		id       uuid.UUID
		status   string
		attempts int
	}{{id: failed, status: "delivered", attempts: 2}, {id: queued, status: "queued", attempts: 0}} {
		d, _ := data[i].(map[string]any)
		attempts, _ := d["attempts"].([]any)
		wantEqual(t, "id", d["id"], any(want.id.String()))
		wantEqual(t, "status", d["status"], any(want.status))
		wantEqual(t, "attempts", len(attempts), want.attempts)
	}
	for what, other := range map[string]response{
		"unknown call": p.customer(p.ws, http.MethodGet, "/internal/v1/calls/"+uuid.NewString()+"/deliveries", ""),
		"workspace":    p.customer(uuid.New(), http.MethodGet, path, ""),
	} {
		wantStatus(t, what, other, 200, "")
		if data, _ := other.body["data"].([]any); len(data) != 0 {
			t.Errorf("deliveries of another %s = %v, want none", what, other.body)
		}
	}
}
