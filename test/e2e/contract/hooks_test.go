package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func TestHooks_CreateValidatesEachField(t *testing.T) {
	w := workspace(t)
	good := func(members ...any) set {
		body := set{"name": "CRM", "url": "https://127.0.0.1:1/x", "events": []string{"call.completed"}}
		for i := 0; i < len(members); i += 2 {
			if body[members[i].(string)] = members[i+1]; members[i+1] == "absent" {
				delete(body, members[i].(string))
			}
		}
		return body
	}
	host := "https://127.0.0.1/"
	for _, row := range []struct {
		name string
		body any
		code string // the error code, or "" if the response is 201
	}{
		{"only the required fields", good(), ""},
		{"every event type, including webhook.test", good("events", append(everyEvent(), "webhook.test")), ""},
		{"every opt-in event", good("events", optInEvents()), ""},
		{"a name of 200, a url of 2048 and a description of 500 characters", good("name", strings.Repeat("ü", 200), "url", host+strings.Repeat("x", 2048-len(host)), "description", strings.Repeat("ü", 500)), ""},
		{"a description that is null", good("description", nil), ""},
		{"unknown fields are ignored", good("status", "failed", "signing_secret", "whsec_mine", "id", 7), ""},
		{"no name", good("name", "absent"), "validation_error"},
		{"a name that is null", good("name", nil), "validation_error"},
		{"an empty name", good("name", ""), "validation_error"},
		{"a name of 201 characters", good("name", strings.Repeat("x", 201)), "validation_error"},
		{"a name that is a number", good("name", 7), "validation_error"},
		{"a description of 501 characters", good("description", strings.Repeat("x", 501)), "validation_error"},
		{"no url", good("url", "absent"), "validation_error"},
		{"a url that is null", good("url", nil), "validation_error"},
		{"a url that is a number", good("url", 7), "validation_error"},
		{"a url of 2049 characters", good("url", host+strings.Repeat("x", 2049-len(host))), "invalid_url"},
		{"an empty url", good("url", ""), "invalid_url"},
		{"an invalid url", good("url", "not a url"), "invalid_url"},
		{"a url with http", good("url", "http://127.0.0.1/x"), "invalid_url"},
		{"a url without a host", good("url", "https:///x"), "invalid_url"},
		{"a url with user info", good("url", "https://ada:secret@127.0.0.1/"), "invalid_url"},
		{"a url with a fragment", good("url", "https://127.0.0.1/#x"), "invalid_url"},
		{"a url with another scheme", good("url", "ftp://127.0.0.1/"), "invalid_url"},
		{"the cloud's metadata address", good("url", "https://169.254.169.254/latest"), "invalid_url"},
		{"no events", good("events", "absent"), "no_events"},
		{"events null", good("events", nil), "no_events"},
		{"events empty", good("events", []string{}), "no_events"},
		{"events as text", good("events", "call.completed"), "validation_error"},
		{"an event that is a number", good("events", []int{1}), "validation_error"},
		{"an unknown event type", good("events", []string{"call.completed", "call.started"}), "invalid_event_type"},
		{"an event type in upper case", good("events", []string{"CALL.COMPLETED"}), "invalid_event_type"},
		{"invalid JSON", "{", "validation_error"},
		{"an array instead of an object", "[]", "validation_error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.code != "" {
				w.write.refused(t, 422, row.code, "POST", subscriptions, row.body)
				return
			}
			made := w.write.want(t, 201, "POST", subscriptions, row.body)
			secret, list := made.text("signing_secret"), w.read.want(t, 200, "GET", subscriptions, nil)
			if strings.Contains(list.body, secret) {
				t.Errorf("list: list.body = %q, want it without %q", list.body, secret)
			} else if !strings.Contains(list.body, `"whsec_…`+secret[len(secret)-4:]+`"`) {
				t.Errorf("list: list.body = %q, want it to contain %q", list.body, `"whsec_…`+secret[len(secret)-4:]+`"`)
			}
			item := list.members()["data"].([]any)[0].(map[string]any)
			sent := row.body.(set)
			sharedstack.Equal[any](t, "id", item["id"], made.text("id"))
			sharedstack.Equal[any](t, "status", item["status"], "active")
			sharedstack.Equal[any](t, "name", item["name"], sent["name"])
			sharedstack.Equal[any](t, "url", item["url"], sent["url"])
			sharedstack.Equal(t, "events", fmt.Sprint(item["events"]), fmt.Sprint(sent["events"]))
			sharedstack.Equal(t, "consecutive_failures", fmt.Sprint(item["consecutive_failures"]), "0")
			if item["last_success_at"] != nil {
				t.Errorf("last_success_at = %v, want nil", item["last_success_at"])
			}
			if item["last_failure_at"] != nil {
				t.Errorf("last_failure_at = %v, want nil", item["last_failure_at"])
			}
			mustBeBornWithItsID(t, made.text("id"), item["created_at"].(string))
			gone := w.write.want(t, 200, "DELETE", subscriptions+"/"+made.text("id"), nil)
			if gone.text("deleted") != "true" {
				t.Errorf(`deleted: gone.text("deleted") = %q, want "true"; gone.body = %s`, gone.text("deleted"), gone.body)
			} else if gone.text("id") != made.text("id") {
				t.Errorf(`deleted: gone.text("id") = %q, want %q; gone.body = %s`, gone.text("id"), made.text("id"), gone.body)
			}
			w.write.refused(t, 404, "not_found", "DELETE", subscriptions+"/"+made.text("id"), nil)
		})
	}
	if got := w.read.want(t, 200, "GET", subscriptions, nil).ids(); len(got) != 0 {
		t.Errorf("refusals left %v", got)
	}
}

func TestHooks_EachChangeOfASubscriptionChangesItsDeliveries(t *testing.T) {
	w := workspace(t)
	hooks := stack(t).Hooks
	one, other := "/"+w.id+"/one", "/"+w.id+"/other"
	at := func(path string) []kit.Delivery { return hooks.Deliveries(path[1:]) }
	made := w.write.want(t, 201, "POST", subscriptions, set{"name": "one", "url": hooks.URL + one, "events": []string{"call.busy"}})
	hooks.SetSecret(one, made.text("signing_secret"))
	silent := w.write.want(t, 201, "POST", subscriptions, set{"name": "other", "url": hooks.URL + other, "events": []string{"call.completed", "webhook.test"}})
	hooks.SetSecret(other, silent.text("signing_secret"))
	path := subscriptions + "/" + made.text("id")
	shown := func() map[string]any {
		for _, item := range w.read.want(t, 200, "GET", subscriptions, nil).members()["data"].([]any) {
			if it := item.(map[string]any); it["id"] == made.text("id") {
				return it
			}
		}
		t.Fatal("the subscription is not in the list")
		return nil
	}
	arrives := func(to string, want answer) kit.Delivery {
		t.Helper()
		var got kit.Delivery
		until(t, "the test event arrives", func() bool {
			for _, d := range at(to) {
				if d.EventID == want.text("event_id") {
					got = d
				}
			}
			return got.EventID != ""
		})
		sharedstack.Equal(t, "got.Type", got.Type, "webhook.test")
		sharedstack.Equal(t, "got.DeliveryID", got.DeliveryID, want.text("delivery_id"))
		sharedstack.Equal(t, "got.Signed", got.Signed, true)
		sharedstack.Equal(t, "X-Service-Delivery-Attempt", got.Header.Get("X-Service-Delivery-Attempt"), "1")
		if !strings.Contains(string(got.Body), `"subscription_id":"`+made.text("id")+`"`) {
			t.Errorf("delivery: got.Body = %q, want it to contain %q",
				string(got.Body), `"subscription_id":"`+made.text("id")+`"`)
		} else if !strings.Contains(string(got.Body), `"workspace_id":"`+w.id+`"`) {
			t.Errorf("delivery: got.Body = %q, want it to contain %q", string(got.Body), `"workspace_id":"`+w.id+`"`)
		}
		return got
	}
	tested := w.write.want(t, 202, "POST", path+"/test", nil)
	if tested.text("queued") != "true" {
		t.Errorf("test = %s", tested.body)
	}
	arrives(one, tested)
	until(t, "the subscription shows the success", func() bool { return shown()["last_success_at"] != nil })

	rotated := w.write.want(t, 200, "POST", path+"/rotate-secret", nil)
	if rotated.text("signing_secret") == made.text("signing_secret") {
		t.Errorf(`rotated: rotated.text("signing_secret") = %q, want another value; rotated.body = %s`,
			rotated.text("signing_secret"), rotated.body)
	} else if rotated.text("store_this") == "" {
		t.Errorf(`rotated: rotated.text("store_this") is empty, want a value; rotated.body = %s`, rotated.body)
	}
	hooks.SetSecret(one, rotated.text("signing_secret"))
	arrives(one, w.write.want(t, 202, "POST", path+"/test", nil))
	if mask := shown()["signing_secret"]; mask != "whsec_…"+rotated.text("signing_secret")[len(rotated.text("signing_secret"))-4:] {
		t.Errorf("masked = %v, want the end of the new secret", mask)
	}

	w.write.want(t, 200, "PATCH", path, set{"status": "paused"})
	w.write.refused(t, 409, "subscription_not_active", "POST", path+"/test", nil)
	// the secret can be rotated while the subscription is paused
	if got := w.write.want(t, 200, "POST", path+"/rotate-secret", nil); got.text("signing_secret") == "" {
		t.Errorf("rotated while paused = %s", got.body)
	} else {
		hooks.SetSecret(one, got.text("signing_secret"))
	}
	w.write.want(t, 200, "PATCH", path, set{"status": "active", "url": hooks.URL + other + "/moved", "events": []string{"call.busy", "call.busy"}})
	hooks.SetSecret(other+"/moved", "not yet known")
	latest := w.write.want(t, 200, "POST", path+"/rotate-secret", nil)
	hooks.SetSecret(other+"/moved", latest.text("signing_secret"))
	arrives(other+"/moved", w.write.want(t, 202, "POST", path+"/test", nil))
	if n := len(at(other)); n != 0 {
		t.Errorf("the other subscription received %d test events, want none: they go to one alone", n)
	}
	w.write.want(t, 200, "DELETE", path, nil)
	for _, row := range [][2]string{{"PATCH", path}, {"DELETE", path}, {"POST", path + "/test"}, {"POST", path + "/rotate-secret"}} {
		var body any
		if row[0] == "PATCH" {
			body = set{"status": "active"}
		}
		w.write.refused(t, 404, "not_found", row[0], row[1], body)
	}
}

func TestSubscriptions_ReceiveOnlyTheirTypesWhileActive(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	hooks := stack(t).Hooks
	subscribe := func(name string, events ...string) (path string, id string) {
		path = "/" + w.id + "/" + name
		made := w.write.want(t, 201, "POST", subscriptions, set{"name": name, "url": hooks.URL + path, "events": events})
		hooks.SetSecret(path, made.text("signing_secret"))
		return path, made.text("id")
	}
	all, _ := subscribe("all", everyEvent()...)
	ends, _ := subscribe("ends", "call.busy", "call.completed")
	rings, _ := subscribe("rings", "call.ringing")
	paused, pausedID := subscribe("paused", everyEvent()...)
	w.write.want(t, 200, "PATCH", subscriptions+"/"+pausedID, set{"status": "paused"})
	types := func(path string) []string {
		var got []string
		for _, d := range hooks.Deliveries(path[1:]) {
			if !d.Signed {
				t.Errorf("a delivery at %s is not signed by its secret", path)
			}
			got = append(got, d.Type)
		}
		return got
	}
	talked := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "external_ref", "echoed")).text("id"))
	until(t, "the events of the first call have arrived", func() bool {
		return len(types(all)) == 3 && len(types(ends)) == 1 && len(types(rings)) == 1
	})
	w.write.want(t, 200, "PATCH", subscriptions+"/"+pausedID, set{"status": "active"})
	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90))).text("id"))
	until(t, "the events of the second call have arrived", func() bool {
		return len(types(all)) == 4 && len(types(ends)) == 2 && len(types(paused)) > 0
	})
	for path, want := range map[string][]string{
		all: {"call.ringing", "call.answered", "call.completed", "call.busy"}, ends: {"call.completed", "call.busy"}, rings: {"call.ringing"},
		paused: {"call.busy"}, // no deliveries are created while paused
	} {
		if got := types(path); !slices.Equal(got, want) {
			t.Errorf("%s received %v, want %v", path, got, want)
		}
	}
	first, second := hooks.Deliveries(all[1:])[2], hooks.Deliveries(ends[1:])[0]
	sharedstack.Equal(t, "first.EventID", first.EventID, second.EventID)
	sharedstack.Equal(t, "string(first.Body)", string(first.Body), string(second.Body))
	if first.DeliveryID == second.DeliveryID {
		t.Errorf("first.DeliveryID = %v, want another value", first.DeliveryID)
	}
	if !strings.Contains(string(first.Body), `"external_ref":"echoed"`) {
		t.Errorf("event: first.Body = %q, want it to contain %q", string(first.Body), `"external_ref":"echoed"`)
	} else if !strings.Contains(string(first.Body), talked.text("call_id")) {
		t.Errorf("event: first.Body = %q, want it to contain %q", string(first.Body), talked.text("call_id"))
	}
	w.write.refused(t, 404, "not_found", "POST", subscriptions+"/"+uuid.NewString()+"/test", nil)
}

// Operators must be able to list and replay the events that were skipped during the pause. The
// audit log must name the operator.
func TestSubscriptions_EventsSkippedDuringAPauseCanBeReplayed(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	hooks, path := stack(t).Hooks, "/"+w.id+"/late"
	made := w.write.want(t, 201, "POST", subscriptions, set{"name": "late", "url": hooks.URL + path, "events": everyEvent()})
	hooks.SetSecret(path, made.text("signing_secret"))
	w.write.want(t, 200, "PATCH", subscriptions+"/"+made.text("id"), set{"status": "paused"})
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id"))

	home := w.admin + "/webhook-subscriptions/" + made.text("id") + "/deliveries"
	until(t, "the call's events are listed as skipped", func() bool {
		return len(w.operator.want(t, 200, "GET", home+"?status=skipped", nil).ids()) == 3
	})
	asked := set{"status": "skipped", "since": since}
	w.operator.refused(t, 409, "subscription_not_active", "POST", home+"/replay", asked)
	w.write.want(t, 200, "PATCH", subscriptions+"/"+made.text("id"), set{"status": "active"})
	if got := w.operator.want(t, 202, "POST", home+"/replay", asked); !strings.Contains(got.body, `"replayed":3`) {
		t.Errorf("replay = %s, want three", got.body)
	}
	until(t, "the skipped events arrive", func() bool { return len(hooks.Deliveries(path[1:])) == 3 })
	if got := w.operator.want(t, 202, "POST", home+"/replay", asked); !strings.Contains(got.body, `"replayed":0`) {
		t.Errorf("the same again = %s, want none", got.body)
	}
	var types []string
	for _, d := range hooks.Deliveries(path[1:]) {
		if !d.Signed {
			t.Error("a replayed delivery is not signed by the subscription's secret")
		}
		types = append(types, d.Type)
	}
	if want := []string{"call.ringing", "call.answered", "call.completed"}; !slices.Equal(types, want) {
		t.Errorf("replayed %v, want %v in the call's order", types, want)
	}
	audit := w.operator.want(t, 200, "GET", "/admin/v1/audit?limit=100&workspace_id="+w.id, nil).body
	if strings.Count(audit, home+"/replay") != 2 {
		t.Errorf("audit = %s, want the two replays and not the refusal", audit)
	}
}
