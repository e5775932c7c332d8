package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

// gates returns one line per gate of a decision or preview: gate, result and reason.
func gates(decision map[string]any) (lines []string) {
	all, _ := decision["gates"].([]any)
	for _, item := range all {
		gate, _ := item.(map[string]any)
		lines = append(lines, fmt.Sprintf("%v %v: %v", gate["gate"], gate["result"], gate["reason"]))
	}
	return lines
}

// decisions returns the decisions about a number, newest first.
func (w *tenant) decisions(t *testing.T, number string) (found []map[string]any) {
	t.Helper()
	data, _ := w.read.want(t, 200, "GET", "/v1/decisions?phone="+number, nil).members()["data"].([]any)
	for _, item := range data {
		decision, _ := item.(map[string]any)
		found = append(found, decision)
	}
	return found
}

// A call that was placed has a decision of the pre-check and one of the dial. Both state why each
// gate passed. A refused call has a decision that states which gate failed.
func TestDecisions_ExplainWhyANumberWasCalledOrRefused(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	to := number(1)
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(to)).text("id")
	w.ended(t, placed)
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	w.write.refused(t, 422, "recipient_dnd", "POST", "/v1/calls", w.order(to))
	found := w.decisions(t, to)
	if len(found) != 3 {
		t.Fatalf("decisions = %v, want 3", found)
	}
	for i, want := range []struct{ kind, result, optOut string }{
		{kind: "precheck", result: "closed", optOut: "opt_out failed: an opt-out is on record"},
		{kind: "dial", result: "open", optOut: "opt_out passed: no opt-out on record"},
		{kind: "precheck", result: "open", optOut: "opt_out passed: no opt-out on record"},
	} {
		decision := found[i]
		sharedstack.Equal(t, "kind", decision["kind"], any(want.kind))
		sharedstack.Equal(t, "result", decision["result"], any(want.result))
		lines := gates(decision)
		if !slices.Contains(lines, want.optOut) {
			t.Errorf("gates of decision %d = %v, want %q", i, lines, want.optOut)
		}
		for _, begin := range []string{
			"destination passed: numbers of this kind can be called, and the workspace has no list",
			"consent passed: ", "time_zone passed: ", "calling_window passed: ", "frequency passed: ",
		} {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) }) {
				t.Errorf("gates of decision %d = %v, want a line that begins with %q", i, lines, begin)
			}
		}
	}
	sharedstack.Equal(t, "call_request_id", found[2]["call_request_id"], any(placed))
	one := w.read.want(t, 200, "GET", "/v1/decisions?call_request_id="+placed, nil).ids()
	sharedstack.Equal(t, "decisions of the request", len(one), 2)
	first := w.read.want(t, 200, "GET", "/v1/decisions?limit=1", nil)
	sharedstack.Equal(t, "first page", len(first.ids()), 1)
	sharedstack.Contains(t, "first page", first.body, `"has_more":true`)
	rest := w.read.want(t, 200, "GET", "/v1/decisions?starting_after="+first.ids()[0], nil)
	sharedstack.Equal(t, "second page", len(rest.ids()), 2)
	for _, query := range []string{"phone=1", "call_request_id=x", "limit=0", "starting_after=" + unknownID()} {
		w.read.refused(t, 422, "validation_error", "GET", "/v1/decisions?"+query, nil)
	}
}

// POST /v1/calls responds with validation_error, and the decision names the gate.
func TestDecisions_ContainRefusedDestinations(t *testing.T) {
	w := workspace(t)
	const premium = "+19005550101"
	w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", w.order(premium))
	found := w.decisions(t, premium)
	if len(found) != 1 {
		t.Fatalf("decisions = %v, want 1", found)
	}
	sharedstack.Equal(t, "result", found[0]["result"], any("closed"))
	sharedstack.Equal(t, "code", found[0]["code"], any("destination_not_allowed"))
	if lines := gates(found[0]); !strings.HasPrefix(lines[0], "destination failed: ") {
		t.Errorf("gates = %v, want first that the destination failed", lines)
	}
}

// A preview must have the result that POST /v1/calls has, and must leave nothing behind.
func TestDecisions_PreviewEvaluatesTheGatesAndStoresNothing(t *testing.T) {
	closed := closedWindow(time.Now())
	w := workspace(t, set{"calling_policy": set{"window": closed.window, "timezone": "UTC"}})
	const path = "/v1/decisions/preview"
	to := number(1)
	now := w.read.want(t, 200, "POST", path, set{"to": to})
	sharedstack.Equal(t, "result", now.text("result"), "closed")
	sharedstack.Equal(t, "code", now.text("code"), "outside_calling_hours")
	if opens := instant(t, now.text("next_opening")); !opens.Equal(closed.next) {
		t.Errorf("next_opening = %s, want %s", opens, closed.next)
	}
	if lines := gates(now.members()); !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "calling_window failed: ")
	}) {
		t.Errorf("gates = %v, want a failed calling window", lines)
	}
	then := w.read.want(t, 200, "POST", path, set{"to": to, "scheduled_for": closed.next.Format(time.RFC3339)})
	sharedstack.Equal(t, "result at the opening", then.text("result"), "open")
	sharedstack.Equal(t, "next_opening at the opening", then.text("next_opening"), "")
	sharedstack.Equal(t, "decisions", len(w.decisions(t, to)), 0)
	for _, list := range []string{"/v1/contacts", "/v1/call-requests"} {
		sharedstack.Equal(t, list, len(w.read.want(t, 200, "GET", list, nil).ids()), 0)
	}
	w.operator.want(t, 200, "PATCH", w.admin, set{"destinations": []string{"+44"}})
	outside := w.read.want(t, 200, "POST", path, set{"to": to})
	sharedstack.Equal(t, "code outside of the destinations", outside.text("code"), "destination_not_allowed")
	for body, code := range map[string]string{
		`{}`: "validation_error", `{"to":7}`: "validation_error", `{"to":"1"}`: "invalid_phone",
		`{"to":"` + to + `","scheduled_for":"tomorrow"}`: "validation_error", `{`: "validation_error"} {
		w.read.refused(t, 422, code, "POST", path, body)
	}
	w.operator.want(t, 200, "PATCH", w.admin, set{"destinations": []string{}})
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	optedOut := w.read.want(t, 200, "POST", path, set{"to": to})
	sharedstack.Equal(t, "code of an opted-out number", optedOut.text("code"), "recipient_dnd")
	sharedstack.Equal(t, "next_opening of an opted-out number", optedOut.text("next_opening"), "")
}

// The timeline must contain every step of a request, from POST to the last attempt of each
// delivery.
func TestTimeline_ListsEveryStepOfARequest(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	w.write.want(t, 201, "POST", subscriptions, subscription(stack(t).Hooks.URL+"/"+w.id))
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	w.ended(t, placed)
	path := "/v1/call-requests/" + placed + "/timeline"
	var types []string
	until(t, "the timeline has the last delivery", func() bool {
		data, _ := w.read.want(t, 200, "GET", path, nil).members()["data"].([]any)
		types = nil
		completed := false
		for _, item := range data {
			entry, _ := item.(map[string]any)
			details, _ := entry["details"].(map[string]any)
			types = append(types, fmt.Sprint(entry["type"]))
			completed = completed || entry["type"] == "delivery.attempted" && details["event_type"] == "call.completed"
		}
		return completed
	})
	sharedstack.Equal(t, "first entry", types[0], "call_request.created")
	sharedstack.Equal(t, "last entry", types[len(types)-1], "delivery.attempted")
	position := -1
	for _, want := range []string{
		"call_request.created", "decision", "call.dialed", "call.answered", "call.ended", "delivery.attempted",
	} {
		next := slices.Index(types[position+1:], want)
		if next < 0 {
			t.Fatalf("timeline = %v, want %s after position %d", types, want, position)
		}
		position += next + 1
	}
	decisions := 0
	for _, name := range types {
		if name == "decision" {
			decisions++
		}
	}
	sharedstack.Equal(t, "decisions", decisions, 2)
	if !slices.Contains(types, "call_request.completed") {
		t.Errorf("timeline = %v, want the end of the request", types)
	}
	byOperator := w.operator.want(t, 200, "GET", w.admin+"/call-requests/"+placed+"/timeline", nil)
	sharedstack.Contains(t, "timeline of the operator", byOperator.body, `"type":"call_request.created"`)
	w.read.refused(t, 404, "not_found", "GET", "/v1/call-requests/"+unknownID()+"/timeline", nil)
}
