package contract

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const sinceLongAgo = "2026-01-01T00:00:00Z"

// delivery waits until the delivery has the status and the number of attempts.
func (w *tenant) delivery(t *testing.T, id, status string, attempts int) answer {
	t.Helper()
	var got answer
	until(t, fmt.Sprintf("delivery %s is %s after %d attempts", id, status, attempts), func() bool {
		got = w.read.want(t, 200, "GET", deliveries+"/"+id, nil)
		return got.text("status") == status && len(got.members()["attempts"].([]any)) == attempts
	})
	return got
}

func members(object any) []string { return slices.Sorted(maps.Keys(object.(map[string]any))) }

func TestDeliveries_ShowEachAttemptWithItsCauseAndCanBeResent(t *testing.T) {
	w, hooks := workspace(t), stack(t).Hooks
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	made := w.write.want(t, 201, "POST", subscriptions, subscription(untrusted.URL))
	path := subscriptions + "/" + made.text("id")
	hooks.SetSecret("/"+w.id, made.text("signing_secret"))
	id := w.write.want(t, 202, "POST", path+"/test", nil).text("delivery_id")

	failed := w.delivery(t, id, "queued", 1)
	sharedstack.Equal(t, "members of a delivery", fmt.Sprint(members(failed.members())),
		"[attempts call_id event event_id event_type id next_attempt_at status]")
	attempt := failed.members()["attempts"].([]any)[0].(map[string]any)
	sharedstack.Equal(t, "members of its attempt", fmt.Sprint(members(attempt)),
		"[at duration_ms error request_headers response_body status_code]")
	const cause = "The TLS handshake failed: certificate signed by unknown authority."
	sharedstack.Equal(t, "error", fmt.Sprint(attempt["error"]), cause)
	if attempt["status_code"] != nil {
		t.Errorf("status_code = %v, want null", attempt["status_code"])
	}
	if failed.text("next_attempt_at") == "" {
		t.Error("next_attempt_at is null, want the time of the retry")
	}
	shown := w.read.want(t, 200, "GET", path, nil)
	sharedstack.Equal(t, "last_error", shown.text("last_error"), cause)
	sharedstack.Equal(t, "failure_reason", shown.text("failure_reason"), "")
	list := w.read.want(t, 200, "GET", path+"/deliveries?status=queued&event_type=webhook.test", nil)
	sharedstack.Equal(t, "listed deliveries", fmt.Sprint(list.ids()), fmt.Sprint([]string{id}))
	item := list.members()["data"].([]any)[0].(map[string]any)
	sharedstack.Equal(t, "members of a listed delivery", fmt.Sprint(members(item)),
		"[attempts call_id event_id event_type id next_attempt_at status]")
	sharedstack.Equal(
		t,
		"members of a listed attempt",
		fmt.Sprint(members(item["attempts"].([]any)[0])),
		"[at duration_ms error status_code]",
	)

	// The delivery's next retry is due in a minute. The resend starts a new series of attempts, which
	// replaces this retry.
	w.write.want(t, 200, "PATCH", path, set{"url": hooks.URL + "/" + w.id})
	queued := w.write.want(t, 202, "POST", deliveries+"/"+id+"/resend", nil)
	sharedstack.Equal(t, "status", queued.text("status"), "queued")
	delivered := w.delivery(t, id, "delivered", 2)
	sharedstack.Equal(t, "next_attempt_at", delivered.text("next_attempt_at"), "")
	arrived := hooks.Deliveries(w.id)
	if len(arrived) != 1 {
		t.Fatalf("arrived deliveries = %d, want 1", len(arrived))
	}
	sharedstack.Equal(t, "arrived[0].Signed", arrived[0].Signed, true)
	if !strings.Contains(delivered.body, `"event":`+string(arrived[0].Body)) {
		t.Errorf("delivery = %s, want the event %s", delivered.body, arrived[0].Body)
	}
	last := delivered.members()["attempts"].([]any)[1].(map[string]any)
	sharedstack.Equal(t, "status_code", fmt.Sprint(last["status_code"]), "200")
	sent := last["request_headers"].(map[string]any)
	for name, value := range sent {
		got := arrived[0].Header.Get(name)
		if name == "X-Service-Signature" {
			got, _, _ = strings.Cut(got, ",v1=")
			got += ",v1=…"
		}
		sharedstack.Equal(t, name, fmt.Sprint(value), got)
	}
	sharedstack.Equal(t, "shown headers", len(sent), 6)
	sharedstack.Equal(t, "last_error", w.read.want(t, 200, "GET", path, nil).text("last_error"), "")

	w.write.want(t, 202, "POST", deliveries+"/"+id+"/resend", nil)
	w.delivery(t, id, "delivered", 3)
	again := hooks.Deliveries(w.id)
	sharedstack.Equal(t, "arrived deliveries", len(again), 2)
	sharedstack.Equal(t, "event id of the repetition", again[1].EventID, again[0].EventID)
	sharedstack.Equal(t, "attempt of the repetition", again[1].Header.Get("X-Service-Delivery-Attempt"), "1")

	w.write.want(t, 200, "PATCH", path, set{"status": "paused"})
	w.write.refused(t, 409, "subscription_not_active", "POST", deliveries+"/"+id+"/resend", nil)
	w.write.refused(t, 409, "subscription_not_active", "POST", path+"/replay", set{"since": sinceLongAgo})
	w.write.want(t, 200, "DELETE", path, nil)
	w.read.refused(t, 404, "not_found", "GET", deliveries+"/"+id, nil)
	w.write.refused(t, 404, "not_found", "POST", deliveries+"/"+id+"/resend", nil)
	w.read.refused(t, 404, "not_found", "GET", path, nil)
	w.read.refused(t, 404, "not_found", "GET", path+"/deliveries", nil)
	w.write.refused(t, 404, "not_found", "POST", path+"/replay", set{"since": sinceLongAgo})
}

func TestDeliveries_ReplaySendsTheEventsOfACallInOrder(t *testing.T) {
	w, hooks := workspace(t), stack(t).Hooks
	w.topUp(t, "10")
	made := w.write.want(
		t,
		201,
		"POST",
		subscriptions,
		set{"name": "n", "url": hooks.URL + "/" + w.id, "events": everyEvent()},
	)
	hooks.SetSecret("/"+w.id, made.text("signing_secret"))
	path := subscriptions + "/" + made.text("id")
	to := number(1)
	call := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(to)).text("id")).text("call_id")
	list := func(query string) answer { return w.read.want(t, 200, "GET", path+"/deliveries?"+query, nil) }
	until(
		t,
		"the events of the call are delivered",
		func() bool { return len(list("status=delivered&call_id="+call).ids()) == 3 },
	)
	ids := list("").ids()
	if sorted := slices.Sorted(slices.Values(ids)); !slices.Equal(ids, slices.Compact(reversed(sorted))) {
		t.Errorf("deliveries = %v, want the newest first", ids)
	}
	sharedstack.Equal(t, "completed", len(list("event_type=call.completed").ids()), 1)
	sharedstack.Equal(t, "busy", len(list("event_type=call.busy").ids()), 0)
	sharedstack.Equal(t, "failed", len(list("status=failed").ids()), 0)
	sharedstack.Equal(t, "of another call", len(list("call_id="+unknownID()).ids()), 0)
	sharedstack.Equal(
		t,
		"of the second page",
		fmt.Sprint(list("limit=1&starting_after="+ids[0]).ids()),
		fmt.Sprint(ids[1:2]),
	)
	unknown := "starting_after=" + unknownID()
	for _, query := range []string{"status=sent", "event_type=call.started", "call_id=7", unknown, "limit=0"} {
		w.read.refused(t, 422, "validation_error", "GET", path+"/deliveries?"+query, nil)
	}

	for body, want := range map[string]string{
		`{"since":"` + sinceLongAgo + `","only_failed":true}`:             "0",
		`{"since":"` + sinceLongAgo + `","until":"2026-01-02T00:00:00Z"}`: "0",
		`{"since":"` + sinceLongAgo + `","only_failed":false}`:            "3",
	} {
		sharedstack.Equal(t, body, w.write.want(t, 202, "POST", path+"/replay", body).text("deliveries"), want)
	}
	until(t, "the events arrive again", func() bool { return len(hooks.Deliveries(w.id)) == 6 })
	arrived := hooks.Deliveries(w.id)
	for i, d := range arrived[3:] {
		sharedstack.Equal(t, "event id", d.EventID, arrived[i].EventID)
		sharedstack.Equal(t, "delivery id", d.DeliveryID, arrived[i].DeliveryID)
		sharedstack.Equal(t, "body", string(d.Body), string(arrived[i].Body))
		sharedstack.Equal(t, "signed", d.Signed, true)
	}
	for name, body := range map[string]string{
		"no since": `{}`, "a date": `{"since":"2026-01-01"}`,
		"until is since":        `{"since":"` + sinceLongAgo + `","until":"` + sinceLongAgo + `"}`,
		"only_failed is a text": `{"since":"` + sinceLongAgo + `","only_failed":"x"}`, "not JSON": `{`,
	} {
		t.Run(name, func(t *testing.T) { w.write.refused(t, 422, "validation_error", "POST", path+"/replay", body) })
	}

	// An operator erases the data of the called person.
	w.operator.want(t, 200, "DELETE", w.admin+"/contacts/"+to, nil)
	until(t, "the event is erased", func() bool {
		got := w.read.want(t, 200, "GET", deliveries+"/"+ids[0], nil)
		return got.members()["event"] == nil
	})
	w.write.refused(t, 409, "invalid_state", "POST", deliveries+"/"+ids[0]+"/resend", nil)
	sharedstack.Equal(
		t,
		"replayed after the erasure",
		w.write.want(t, 202, "POST", path+"/replay", set{"since": sinceLongAgo}).text("deliveries"),
		"0",
	)
}

func reversed(sorted []string) []string {
	slices.Reverse(sorted)
	return sorted
}

func TestDeliveries_CustomerCanReplayEventsSkippedDuringAPause(t *testing.T) {
	w, hooks := workspace(t), stack(t).Hooks
	w.topUp(t, "10")
	made := w.write.want(
		t,
		201,
		"POST",
		subscriptions,
		set{"name": "n", "url": hooks.URL + "/" + w.id, "events": everyEvent()},
	)
	hooks.SetSecret("/"+w.id, made.text("signing_secret"))
	path := subscriptions + "/" + made.text("id")
	w.write.want(t, 200, "PATCH", path, set{"status": "paused"})
	since := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id"))
	until(t, "the events of the call are skipped", func() bool {
		return len(w.read.want(t, 200, "GET", path+"/deliveries?status=skipped", nil).ids()) == 3
	})
	w.write.want(t, 200, "PATCH", path, set{"status": "active"})
	sharedstack.Equal(
		t,
		"replayed",
		w.write.want(t, 202, "POST", path+"/replay", set{"since": since}).text("deliveries"),
		"3",
	)
	until(t, "the skipped events arrive", func() bool { return len(hooks.Deliveries(w.id)) == 3 })
	got := hooks.Deliveries(w.id)
	order := slices.IsSortedFunc(got, func(a, b kit.Delivery) int { return a.Sequence - b.Sequence })
	sharedstack.Equal(t, "the events arrive in their order", order, true)
}
