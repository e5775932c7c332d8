package contract

import (
	"slices"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

const dialing = "/v1/dialing"

// A request is due during the pause. It must stay queued, and it must be dialed after the pause.
func TestDialing_PausedRequestsStayQueuedAndAreDialedLater(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	agent := w.admin + "/agents/" + w.agent + "/dialing"
	for _, row := range []struct {
		name          string
		pause, resume func(body set) answer
	}{
		{"the workspace, by its key",
			func(body set) answer { return w.write.want(t, 200, "PUT", dialing, body) },
			func(body set) answer { return w.write.want(t, 200, "PUT", dialing, body) }},
		{"the workspace, by an operator",
			func(body set) answer { return w.operator.want(t, 200, "PUT", w.admin+"/dialing", body) },
			func(body set) answer { return w.operator.want(t, 200, "PUT", w.admin+"/dialing", body) }},
		{"an agent",
			func(body set) answer { return w.operator.want(t, 200, "PUT", agent, body) },
			func(body set) answer { return w.operator.want(t, 200, "PUT", agent, body) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			paused := row.pause(set{"state": "paused", "reason": "Wrong script"})
			sharedstack.Equal(t, "state", paused.text("state"), "paused")
			sharedstack.Equal(t, "reason", paused.text("reason"), "Wrong script")
			time.Sleep(2 * time.Second) // the time after which no dial may start
			placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1)))
			time.Sleep(2 * time.Second)
			request := w.read.want(t, 200, "GET", "/v1/call-requests/"+placed.text("id"), nil)
			sharedstack.Equal(t, "status during the pause", request.text("status"), "queued")
			sharedstack.Equal(t, "state after the pause", row.resume(set{"state": "active"}).text("state"), "active")
			sharedstack.Equal(t, "status after the pause", w.ended(t, placed.text("id")).text("status"), "completed")
		})
	}
}

func TestDialing_PauseWithAnEndEndsByItself(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	until := time.Now().Add(3 * time.Second)
	pause := set{"state": "paused", "reason": "r", "until": until.UTC().Format(time.RFC3339Nano)}
	w.write.want(t, 200, "PUT", dialing, pause)
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1)))
	request := w.ended(t, placed.text("id"))
	sharedstack.Equal(t, "status", request.text("status"), "completed")
	if dialed := instant(t, request.text("dialed_at")); dialed.Before(until.Add(-time.Second)) {
		t.Errorf("dialed_at = %s, want it after the pause, %s", dialed, until)
	}
	state := w.read.want(t, 200, "GET", dialing, nil)
	sharedstack.Equal(t, "state", state.text("state"), "active")
	sharedstack.Equal(t, "reason", state.text("reason"), "r")
}

func TestDialing_StateContainsWhoPausedDialingAndWhy(t *testing.T) {
	w := workspace(t)
	unset := w.read.want(t, 200, "GET", dialing, nil)
	for name, want := range map[string]string{
		"state": "active", "reason": "", "until": "", "set_by": "", "set_at": "",
	} {
		sharedstack.Equal(t, name+" before the first change", unset.text(name), want)
	}
	byKey := w.write.want(t, 200, "PUT", dialing, set{"state": "paused", "reason": "Wrong script"})
	key, _ := byKey.members()["set_by"].(map[string]any)
	sharedstack.Equal(t, "type of the key", key["type"], any("api_key"))
	sharedstack.Equal(t, "id of the key", key["id"], any(w.writeID))
	if at := instant(t, byKey.text("set_at")); time.Since(at) > time.Minute {
		t.Errorf("set_at = %s, want the time of the request", at)
	}
	byOperator := w.operator.want(t, 200, "PUT", w.admin+"/dialing", set{"state": "active", "reason": "Corrected"})
	actor, _ := byOperator.members()["set_by"].(map[string]any)
	sharedstack.Equal(t, "type of the operator", actor["type"], any("operator"))
	if actor["name"] == nil || actor["id"] != nil {
		t.Errorf("set_by of the operator = %v, want a name and no id", actor)
	}
	sharedstack.Equal(t, "state for the customer", w.read.want(t, 200, "GET", dialing, nil).body, byOperator.body)
	audit := w.operator.want(t, 200, "GET", "/admin/v1/audit?workspace_id="+w.id, nil)
	entries, _ := audit.members()["data"].([]any)
	newest, _ := entries[0].(map[string]any)
	before, _ := newest["before"].(map[string]any)
	after, _ := newest["after"].(map[string]any)
	sharedstack.Equal(t, "before in the audit log", before["state"], any("paused"))
	sharedstack.Equal(t, "after in the audit log", after["state"], any("active"))
}

func TestDialing_RefusesInvalidChanges(t *testing.T) {
	w := workspace(t)
	for name, body := range map[string]set{
		"no state": {"reason": "r"}, "an unknown state": {"state": "stopped", "reason": "r"},
		"no reason":         {"state": "paused"},
		"until in the past": {"state": "paused", "reason": "r", "until": "2020-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) { w.write.refused(t, 422, "validation_error", "PUT", dialing, body) })
	}
	pause := set{"state": "paused", "reason": "r"}
	w.read.refused(t, 403, "missing_scope", "PUT", dialing, pause)
	w.write.refused(t, 405, "method_not_allowed", "POST", dialing, pause)
	w.operator.refused(t, 404, "not_found", "PUT", w.admin+"/agents/"+unknownID()+"/dialing", pause)
	w.operator.refused(t, 404, "not_found", "PUT", "/admin/v1/workspaces/"+unknownID()+"/dialing", pause)
	w.operator.refused(t, 404, "not_found", "PUT", "/admin/v1/trunks/"+unknownID()+"/dialing", pause)
	sharedstack.Equal(t, "state", w.read.want(t, 200, "GET", dialing, nil).text("state"), "active")
	// The other tests of this stack must be able to dial. Therefore this test does not pause the whole
	// deployment and only reads its state.
	everything := w.operator.want(t, 200, "GET", "/admin/v1/dialing", nil)
	sharedstack.Equal(t, "state of everything", everything.text("state"), "active")
}

// liveCall places a call that lasts until it is hung up, and returns the id of the call.
func (w *tenant) liveCall(t *testing.T, fault, status string) string {
	t.Helper()
	to := number(1)
	carrier := &client{base: stack(t).Demo.SimURL, http: w.operator.http}
	carrier.want(t, 201, "POST", "/faults", set{"fault": fault, "to": to, "times": 1})
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(to))
	var id string
	until(t, "the call is "+status, func() bool {
		ids := w.read.want(t, 200, "GET", "/v1/calls?status="+status+"&call_request_id="+placed.text("id"), nil).ids()
		if len(ids) == 1 {
			id = ids[0]
		}
		return id != ""
	})
	return id
}

func (w *tenant) endOf(t *testing.T, call string) (ended answer) {
	t.Helper()
	until(t, "the call ends", func() bool {
		ended = w.read.want(t, 200, "GET", "/v1/calls/"+call, nil)
		return slices.Contains([]string{"completed", "no_answer", "busy", "failed", "canceled"}, ended.text("status"))
	})
	return ended
}

func TestHangup_EndsACallWithTheDocumentedResult(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	hears := w.subscribeAll(t)
	for _, row := range []struct {
		name, fault, during, status, cause, event string
		byOperator, charged                       bool
	}{
		{name: "answered", fault: "hold", during: "in_progress", status: "completed", cause: "normal_clearing",
			event: "call.completed", charged: true},
		{name: "ringing", fault: "endless", during: "ringing", status: "canceled", cause: "originator_cancel",
			event: "call.failed"},
		{name: "answered, by an operator", fault: "hold", during: "in_progress", status: "completed",
			cause: "normal_clearing", event: "call.completed", byOperator: true, charged: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := w.liveCall(t, row.fault, row.during)
			caller, path := w.write, "/v1/calls/"+id+"/hangup"
			if row.byOperator {
				caller, path = w.operator, w.admin+"/calls/"+id+"/hangup"
			}
			sharedstack.Equal(t, "call of the response", caller.want(t, 202, "POST", path, nil).text("call_id"), id)
			ended := w.endOf(t, id)
			sharedstack.Equal(t, "status", ended.text("status"), row.status)
			sharedstack.Equal(t, "hangup_cause", ended.text("hangup_cause"), row.cause)
			if row.charged {
				until(t, "the call is charged", func() bool {
					return w.read.want(t, 200, "GET", "/v1/calls/"+id, nil).text("credits_charged") != ""
				})
			}
			var types []string
			until(t, "its last event arrives", func() bool {
				types = nil
				for _, d := range hears() {
					if d.CallID == id {
						types = append(types, d.Type)
					}
				}
				return slices.Contains(types, row.event)
			})
			caller.refused(t, 409, "invalid_state", "POST", path, nil)
		})
	}
}

func TestHangup_AllCallsOfAWorkspaceCanBeEnded(t *testing.T) {
	w, other := workspace(t), workspace(t)
	w.topUp(t, "100")
	other.topUp(t, "100")
	calls := []string{
		w.liveCall(t, "hold", "in_progress"), w.liveCall(t, "endless", "ringing"), w.liveCall(t, "hold", "in_progress"),
	}
	untouched := other.liveCall(t, "hold", "in_progress")
	sharedstack.Equal(t, "calls", w.operator.want(t, 202, "POST", w.admin+"/hangup", nil).text("calls"), "3")
	for i, want := range []string{"completed", "canceled", "completed"} {
		sharedstack.Equal(t, "status", w.endOf(t, calls[i]).text("status"), want)
	}
	again := w.operator.want(t, 202, "POST", w.admin+"/hangup", nil)
	sharedstack.Equal(t, "calls after the end", again.text("calls"), "0")
	call := other.read.want(t, 200, "GET", "/v1/calls/"+untouched, nil)
	sharedstack.Equal(t, "status of another workspace's call", call.text("status"), "in_progress")
	other.write.want(t, 202, "POST", "/v1/calls/"+untouched+"/hangup", nil)
	other.endOf(t, untouched)
}

func TestHangup_RefusesUnknownCallsAndKeysWithReadAccess(t *testing.T) {
	w := workspace(t)
	path := "/v1/calls/" + unknownID() + "/hangup"
	w.write.refused(t, 404, "not_found", "POST", path, nil)
	w.write.refused(t, 404, "not_found", "POST", "/v1/calls/call/hangup", nil)
	w.read.refused(t, 403, "missing_scope", "POST", path, nil)
	w.operator.refused(t, 404, "not_found", "POST", w.admin+"/calls/"+unknownID()+"/hangup", nil)
	w.operator.refused(t, 404, "not_found", "POST", "/admin/v1/workspaces/"+unknownID()+"/hangup", nil)
}
