package contract

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func everyEvent() []string {
	return []string{"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy"}
}

// subscribeAll subscribes the workspace to every call event. The returned function returns the
// deliveries so far.
func (w *tenant) subscribeAll(t *testing.T) func() []kit.Delivery {
	t.Helper()
	hooks := stack(t).Hooks
	made := w.write.want(t, 201, "POST", subscriptions, set{"name": "all", "url": hooks.URL + "/" + w.id, "events": everyEvent()})
	hooks.SetSecret("/"+w.id, made.text("signing_secret"))
	return func() []kit.Delivery { return hooks.Deliveries(w.id) }
}

// callEnding is one group of simulated phone numbers with the documented result of their calls
// (docs/test-numbers.md).
type callEnding struct {
	name                             string
	digits                           int
	request, errorCode               string
	status, cause, outcome, who      string
	charged, answered, rang, summary bool
	events                           []string
	// zone is the contact's time zone. If it is empty, the time zone of the number applies.
	zone string
}

func endings() []callEnding {
	talked := []string{"call.ringing", "call.answered", "call.completed"}
	return []callEnding{
		{"a person talks", 0, "completed", "", "completed", "normal_clearing", "interested", "human", true, true, true, true, talked, ""},
		{"the line is busy", 90, "completed", "", "busy", "user_busy", "", "busy", false, false, false, false, []string{"call.busy"}, ""},
		{"the call is not answered", 91, "completed", "", "no_answer", "no_answer", "", "no_answer", false, false, true,
			false, []string{"call.ringing", "call.no_answer"}, ""},
		{"the number does not exist", 92, "failed", "invalid_number", "failed", "unallocated_number", "", "invalid_number", false, false, false, false, []string{"call.failed"}, ""},
		{"the carrier is unavailable", 93, "failed", "provider_unavailable", "failed", "normal_temporary_failure", "",
			"unreachable", false, false, false, false, []string{"call.failed"}, ""},
		{"a voicemail answers", 94, "completed", "", "completed", "normal_clearing", "no_conversation", "voicemail", true,
			true, true, false, talked, ""},
		{"the person hangs up immediately", 95, "completed", "", "completed", "normal_clearing", "no_conversation",
			"abandoned", true, true, true, false, talked, ""},
		{"the person opts out", 96, "completed", "", "completed", "normal_clearing", "opted_out", "human", true, true, true,
			true, talked, ""},
		{"the person asks for a call back", 97, "completed", "", "completed", "normal_clearing", "callback_requested",
			"human", true, true, true, true, talked, ""},
		{"a person in another time zone asks for a call back", 97, "completed", "", "completed", "normal_clearing",
			"callback_requested", "human", true, true, true, true, talked, "Asia/Tokyo"},
		{"the phone rings for a long time", 98, "completed", "", "completed", "normal_clearing", "interested", "human", true,
			true, true, true, talked, ""},
		{"the agent fails", 99, "failed", "agent_unavailable", "failed", "agent_error", "", "error", false, true, true, false,
			[]string{"call.ringing", "call.answered", "call.failed"}, ""},
	}
}

func TestCalls_EndAsDocumentedForEachNumber(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	hears := w.subscribeAll(t)
	for _, row := range endings() {
		t.Run(row.name, func(t *testing.T) {
			to, ref := number(row.digits), "order of "+row.name
			if row.zone != "" {
				w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": to, "metadata": set{"time_zone": row.zone}})
			}
			placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "external_ref", ref))
			request := w.ended(t, placed.text("id"))
			row.mustBeTheRequest(t, request, placed)
			id := request.text("call_id")
			var events []kit.Delivery
			until(t, "the last event arrives", func() bool {
				events = nil
				for _, d := range hears() {
					if d.CallID == id {
						events = append(events, d)
					}
				}
				return len(events) >= len(row.events)
			})
			call := w.read.want(t, 200, "GET", "/v1/calls/"+id, nil)
			row.mustBeTheCall(t, call, w, request.text("id"), to, ref)
			row.mustBeTheEvents(t, events, call)
			row.mustBeTheLightForm(t, w, call)
			if row.digits == 96 {
				if got := w.read.want(t, 200, "GET", "/v1/opt-outs/"+to, nil); got.text("dnd_status") != "dnd" {
					t.Errorf("opt-out after the call = %s", got.body)
				}
				w.write.refused(t, 422, "recipient_dnd", "POST", "/v1/calls", w.order(to))
			}
			w.write.refused(t, 409, "not_cancelable", "POST", "/v1/call-requests/"+request.text("id")+"/cancel", nil)
		})
	}
}

func (e callEnding) mustBeTheRequest(t *testing.T, got, placed answer) {
	t.Helper()
	sharedstack.Equal(t, "status", got.text("status"), e.request)
	sharedstack.Equal(t, "error_code", got.text("error_code"), e.errorCode)
	sharedstack.Equal(t, "got.text('error_detail') == ''", got.text("error_detail") == "", e.errorCode == "")
	for _, name := range []string{"call_id", "dialed_at", "completed_at"} {
		if got.text(name) == "" {
			t.Errorf("%s: got.text(name) is empty, want a value", name)
		} else if placed.text(name) != "" {
			t.Errorf("%s: placed.text(name) = %q, want it empty", name, placed.text(name))
		}
	}
	for _, name := range []string{"id", "to", "agent_id", "external_ref", "created_at", "scheduled_for"} {
		if got.text(name) != placed.text(name) {
			t.Errorf("got.text(name) = %q, want %q", got.text(name), placed.text(name))
		} else if got.text(name) == "" {
			t.Error("got.text(name) is empty, want a value")
		}
	}
	if instant(t, got.text("updated_at")).Before(instant(t, got.text("completed_at"))) {
		t.Errorf("updated_at lies before completed_at: %s", got.body)
	}
}

func (e callEnding) mustBeTheCall(t *testing.T, got answer, w *tenant, request, to, ref string) {
	t.Helper()
	call := got.members()
	for name, want := range map[string]string{
		"status": e.status, "hangup_cause": e.cause, "outcome": e.outcome, "disposition": e.who, "direction": "outbound", "from": "+15005550006",
		"to": to, "agent_id": w.agent, "external_ref": ref, "campaign_id": "",
		"call_request_id": request,
	} {
		if got.text(name) != want {
			t.Errorf("%s = %q, want %q", name, got.text(name), want)
		}
	}
	if (call["credits_charged"] != nil) != e.charged {
		t.Errorf(`call["credits_charged"] is set = %v, want %v`, call["credits_charged"] != nil, e.charged)
	} else if call["contact_id"] == nil {
		t.Error(`call["contact_id"] = nil, want a value`)
	}
	timings, _ := call["timings"].(map[string]any)
	for name, there := range map[string]bool{
		"queued_at": true, "dialed_at": true, "ended_at": true, "total_seconds": true, "answered_at": e.answered, "talk_seconds": e.answered, "ring_seconds": e.rang,
	} {
		if (timings[name] != nil) != there {
			t.Errorf("timings.%s = %v, there: %v", name, timings[name], there)
		}
	}
	summary, _ := call["summary"].(map[string]any)
	if (summary != nil) != e.summary {
		t.Errorf("summary = %v, there: %v", summary, e.summary)
	}
	if e.outcome == "interested" {
		for _, key := range []string{"outcome", "confidence", "next_action", "business_type", "customer_name", "key_interests", "key_objections", "scheduled_for"} {
			if summary[key] == nil {
				t.Errorf("summary has no %s: %v", key, summary)
			}
		}
	}
	// the person asks to be called at ten o'clock on the next day, in the person's time zone
	if e.outcome == "callback_requested" {
		zone, _ := time.LoadLocation(cmp.Or(e.zone, "America/Los_Angeles"))
		ended, at := instant(t, timings["ended_at"].(string)).In(zone), instant(t, summary["scheduled_for"].(string)).In(zone)
		if want := time.Date(ended.Year(), ended.Month(), ended.Day()+1, 10, 0, 0, 0, zone); !at.Equal(want) {
			t.Errorf("summary.scheduled_for = %s, want %s", at, want)
		}
	}
}

// Each expected event must arrive once, in order and signed. No other event may arrive. The last
// event must contain the call as GET returns it.
func (e callEnding) mustBeTheEvents(t *testing.T, events []kit.Delivery, call answer) {
	t.Helper()
	var types []string
	ids := map[string]bool{}
	for i, d := range events {
		types = append(types, d.Type)
		sharedstack.Equal(t, "d.Signed", d.Signed, true)
		sharedstack.Equal(t, "d.Sequence", d.Sequence, i+1)
		sharedstack.Equal(t, "ids[d.EventID]", ids[d.EventID], false)
		ids[d.EventID] = true
	}
	if !slices.Equal(types, e.events) {
		t.Fatalf("events = %v, want %v", types, e.events)
	}
	var last struct{ Data map[string]any }
	decoder := json.NewDecoder(strings.NewReader(string(events[len(events)-1].Body)))
	decoder.UseNumber()
	if err := decoder.Decode(&last); err != nil {
		t.Errorf("Decode: %v", err)
	} else if !reflect.DeepEqual(last.Data, call.members()) {
		t.Errorf("last.Data = %v, want %v; call.body = %s", last.Data, call.members(), call.body)
	}
}

func (e callEnding) mustBeTheLightForm(t *testing.T, w *tenant, call answer) {
	t.Helper()
	page := w.read.want(t, 200, "GET", "/v1/calls?limit=100", nil).members()["data"].([]any)
	for _, item := range page {
		light := item.(map[string]any)
		if light["id"] != call.text("call_id") {
			continue
		}
		full := call.members()
		for _, name := range []string{"direction", "from", "to", "status", "agent_id", "contact_id", "outcome", "external_ref"} {
			if light[name] != full[name] {
				t.Errorf("light %s = %v, full %v", name, light[name], full[name])
			}
		}
		if talk := full["timings"].(map[string]any)["talk_seconds"]; light["talk_seconds"] != talk {
			t.Errorf("light talk_seconds = %v, full %v", light["talk_seconds"], talk)
		}
		mustBeBornWithItsID(t, light["id"].(string), light["created_at"].(string))
		return
	}
	t.Errorf("call %s is not in the list", call.text("call_id"))
}
