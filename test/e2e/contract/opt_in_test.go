package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func optInEvents() []string {
	return []string{
		"call.analyzed", "call.recording_ready", "call_request.blocked", "call_request.failed", "call_request.canceled",
		"webhook_subscription.failing", "webhook_subscription.failed", "wallet.low_balance",
	}
}

// subscribeTo creates a subscription and returns its id and a function that returns its deliveries.
func (w *tenant) subscribeTo(t *testing.T, name string, events ...string) (id string, received func() []kit.Delivery) {
	t.Helper()
	hooks, path := stack(t).Hooks, w.id+"/"+name
	made := w.write.want(t, 201, "POST", subscriptions, set{"name": name, "url": hooks.URL + "/" + path, "events": events})
	hooks.SetSecret("/"+path, made.text("signing_secret"))
	return made.text("id"), func() []kit.Delivery { return hooks.Deliveries(path) }
}

func typesOf(all []kit.Delivery) (types []string) {
	for _, d := range all {
		types = append(types, d.Type)
	}
	return types
}

// dataOf returns the member data of the delivery of a type, as a value of JSON.
func dataOf(t *testing.T, all []kit.Delivery, event string) map[string]any {
	t.Helper()
	for _, d := range all {
		if d.Type != event {
			continue
		}
		var envelope struct{ Data map[string]any }
		if err := json.Unmarshal(d.Body, &envelope); err != nil {
			t.Fatal(err)
		}
		return envelope.Data
	}
	t.Fatalf("no delivery of %s in %v", event, typesOf(all))
	return nil
}

func TestOptIn_EventIsSentOnlyToSubscriptionsThatListItsType(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	id, listed := w.subscribeTo(t, "listed", optInEvents()...)
	_, usual := w.subscribeTo(t, "usual", everyEvent()...)

	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	canceled := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", later)).text("id")
	w.write.want(t, 200, "POST", "/v1/call-requests/"+canceled+"/cancel", nil)
	until(t, "call_request.canceled arrives", func() bool { return len(listed()) == 1 })

	deliveries := subscriptions + "/" + id + "/deliveries"
	ofRequest := w.read.want(t, 200, "GET", deliveries+"?call_id="+canceled, nil)
	sharedstack.Equal(t, "deliveries with the request as call_id", len(ofRequest.ids()), 0)
	ofRequest = w.operator.want(t, 200, "GET",
		w.admin+"/webhook-subscriptions/"+id+"/deliveries?object_id="+canceled, nil)
	sharedstack.Equal(t, "deliveries with the request as object_id", len(ofRequest.ids()), 1)
	timeline := w.read.want(t, 200, "GET", "/v1/call-requests/"+canceled+"/timeline", nil)
	sharedstack.Contains(t, "timeline", timeline.body, "A delivery of call_request.canceled was created")

	to := number(1)
	soon := time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339)
	blocked := w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "scheduled_for", soon)).text("id")
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	until(t, "call_request.blocked arrives", func() bool { return len(listed()) == 2 })

	busy := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90))).text("id"))
	until(t, "call.busy arrives", func() bool { return len(usual()) == 1 })
	wantListed := []string{"call_request.canceled", "call_request.blocked"}
	if got := typesOf(listed()); !slices.Equal(got, wantListed) {
		t.Errorf("events of the subscription to opt-in events = %v, want %v", got, wantListed)
	}
	if got, want := typesOf(usual()), []string{"call.busy"}; !slices.Equal(got, want) {
		t.Errorf("events of the other subscription = %v, want %v", got, want)
	}
	for event, id := range map[string]string{"call_request.canceled": canceled, "call_request.blocked": blocked} {
		want := w.read.want(t, 200, "GET", "/v1/call-requests/"+id, nil).members()
		if diff := cmp.Diff(want, dataOf(t, listed(), event)); diff != "" {
			t.Errorf("data of %s differs from GET (-get +event):\n%s", event, diff)
		}
	}
	for _, d := range listed() {
		sharedstack.Equal(t, "sequence of "+d.Type, d.Sequence, 1)
	}
	sharedstack.Equal(t, "status of the request with a call", busy.text("status"), "completed")
}

// The test sets the due time, because a request can wait for a day.
func TestOptIn_RequestThatWaitedTooLongFails(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	_, listed := w.subscribeTo(t, "listed", optInEvents()...)
	id := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", ahead())).text("id")
	const age = `UPDATE dialer.dial_queue SET due_at = now() - interval '25 hours'
		WHERE call_request_id = $1 AND state = 'queued'`
	db := database(t)
	until(t, "the call request is in the queue", func() bool {
		aged, err := db.Exec(t.Context(), age, id)
		if err != nil {
			t.Fatal(err)
		}
		return aged.RowsAffected() == 1
	})
	request := w.ended(t, id)
	sharedstack.Equal(t, "status", request.text("status"), "failed")
	sharedstack.Equal(t, "error_code", request.text("error_code"), "queue_expired")
	until(t, "call_request.failed arrives", func() bool { return len(listed()) == 1 })
	if diff := cmp.Diff(request.members(), dataOf(t, listed(), "call_request.failed")); diff != "" {
		t.Errorf("data of call_request.failed differs from GET (-get +event):\n%s", diff)
	}
	sharedstack.Equal(t, "sequence", listed()[0].Sequence, 1)
}

// holdAnalyses creates a trigger that moves the analysis events of one workspace from the dialer's
// outbox to another table. So the relay does not publish them.
const holdAnalyses = `
CREATE TABLE dialer.held_analyses (LIKE dialer.outbox);
CREATE FUNCTION dialer.hold_analysis() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	INSERT INTO dialer.held_analyses SELECT NEW.*;
	RETURN NULL;
END $$;
CREATE TRIGGER hold_analyses BEFORE INSERT ON dialer.outbox FOR EACH ROW
	WHEN (NEW.headers->>'ce_workspaceid' = '%s' AND position('"turns"'::bytea IN NEW.payload) > 0)
	EXECUTE FUNCTION dialer.hold_analysis()`

const releaseAnalyses = `
DROP TRIGGER IF EXISTS hold_analyses ON dialer.outbox;
DROP FUNCTION IF EXISTS dialer.hold_analysis;
INSERT INTO dialer.outbox (event_id, topic, key, headers, payload)
	SELECT event_id, topic, key, headers, payload FROM dialer.held_analyses;
DROP TABLE dialer.held_analyses`

// The test delays the event of the analysis until call.completed was published without it.
func TestOptIn_LateAnalysisIsSentAsCallAnalyzed(t *testing.T) {
	w := workspace(t, set{"features": set{"transcripts": true}})
	w.topUp(t, "10")
	_, listed := w.subscribeTo(t, "listed", "call.completed", "call.analyzed")
	db := database(t)
	execute := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	execute(fmt.Sprintf(holdAnalyses, w.id))
	released := false
	defer func() {
		if !released {
			execute(releaseAnalyses)
		}
	}()
	call := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")).text("call_id")
	until(t, "call.completed arrives", func() bool { return len(listed()) == 1 })
	completed := dataOf(t, listed(), "call.completed")
	sharedstack.Equal(t, "summary of call.completed", completed["summary"], nil)
	execute(releaseAnalyses)
	released = true
	until(t, "call.analyzed arrives", func() bool { return len(listed()) == 2 })
	analyzed := dataOf(t, listed(), "call.analyzed")
	if analyzed["summary"] == nil || analyzed["transcript"] == nil {
		t.Errorf("call.analyzed = %v, want a summary and a transcript", analyzed)
	}
	var read map[string]any
	got := w.read.want(t, 200, "GET", "/v1/calls/"+call, nil)
	if err := json.Unmarshal([]byte(got.body), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read, analyzed); diff != "" {
		t.Errorf("data of call.analyzed differs from GET (-get +event):\n%s", diff)
	}
	sharedstack.Equal(t, "sequence", listed()[1].Sequence, listed()[0].Sequence+1)
}

func TestOptIn_LowBalanceIsSentOncePerCrossing(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	_, listed := w.subscribeTo(t, "listed", "wallet.low_balance")
	wallet := w.admin + "/wallet"
	w.operator.want(t, 200, "PATCH", wallet, set{"low_balance_threshold": "10"})
	w.operator.refused(t, 422, "validation_error", "PATCH", wallet, set{"low_balance_threshold": 10})
	for range 2 { // both calls are charged
		call := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")).text("call_id")
		until(t, "the call is charged", func() bool {
			return w.read.want(t, 200, "GET", "/v1/calls/"+call, nil).members()["credits_charged"] != nil
		})
	}
	until(t, "wallet.low_balance arrives", func() bool { return len(listed()) == 1 })
	data := dataOf(t, listed(), "wallet.low_balance")
	sharedstack.Equal(t, "threshold", data["threshold"], any(10.0))
	sharedstack.Equal(t, "currency", data["currency"], any("USD"))
	if balance, _ := data["balance"].(float64); balance <= 0 || balance >= 10 {
		t.Errorf("balance = %v, want less than 10", data["balance"])
	}
	w.topUp(t, "1")
	w.operator.want(t, 201, "POST", wallet+"/transactions", set{"type": "adjustment", "amount": "-2", "reference": "low"})
	until(t, "the second wallet.low_balance arrives", func() bool { return len(listed()) >= 2 })
	sequences := []int{listed()[0].Sequence, listed()[1].Sequence}
	if want := []int{1, 2}; !slices.Equal(sequences, want) {
		t.Errorf("sequences = %v, want %v", sequences, want)
	}
}

// The test sets the counters of a subscription, because the rule needs 15 minutes of failures.
func TestOptIn_FailingSubscriptionIsReportedToOtherSubscriptions(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	_, listed := w.subscribeTo(t, "listed", "webhook_subscription.failing", "webhook_subscription.failed")
	broken := w.write.want(t, 201, "POST", subscriptions, set{
		"name": "broken", "url": "https://127.0.0.1:1/x", "events": []string{"call.busy", "webhook_subscription.failed"},
	}).text("id")
	conn, err := pgx.Connect(t.Context(), stack(t).database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for i, row := range []struct {
		failures, exhausted int
		since, wantEvent    string
	}{
		{failures: 10, exhausted: 2, since: "10 minutes", wantEvent: "webhook_subscription.failing"},
		{failures: 20, exhausted: 3, since: "20 minutes", wantEvent: "webhook_subscription.failed"},
	} {
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(`UPDATE webhook_dispatcher.subscription_health
			SET failures = %d, exhausted = %d, failing_since = now() - interval '%s' WHERE subscription_id = $1`,
			row.failures, row.exhausted, row.since), broken); err != nil {
			t.Fatal(err)
		}
		w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90))).text("id"))
		until(t, row.wantEvent+" arrives", func() bool { return len(listed()) == i+1 })
		got := listed()[i]
		sharedstack.Equal(t, "type", got.Type, row.wantEvent)
		sharedstack.Equal(t, "sequence", got.Sequence, i+1)
		sharedstack.Equal[any](t, "id in data", dataOf(t, listed(), row.wantEvent)["id"], broken)
	}
	sharedstack.Equal[any](t, "status in data", dataOf(t, listed(), "webhook_subscription.failed")["status"], "failed")
}
