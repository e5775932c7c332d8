package contract

import (
	"strings"
	"testing"
)

// Requests, responses, events and charges of a test workspace must be the same as those of a live
// workspace.
func TestModes_TestWorkspaceWorksLikeALiveOne(t *testing.T) {
	w := workspace(t, set{"mode": "test"})
	made := w.operator.want(t, 201, "POST", w.admin+"/api-keys", set{"name": "kept", "access": "write"})
	if key := made.text("key"); !strings.HasPrefix(key, "rf_test_") {
		t.Errorf("key = %q, want it to begin with rf_test_", key)
	}
	if got := w.operator.want(t, 200, "GET", w.admin, nil).text("mode"); got != "test" {
		t.Errorf("mode = %q, want test", got)
	}
	hears := w.subscribeAll(t)
	refused := w.write.want(t, 402, "POST", "/v1/calls", w.order(number(1)))
	if code := refused.code(); code != "insufficient_credits" {
		t.Errorf("a call without test credit = %q, want insufficient_credits", code)
	}
	w.topUp(t, "10")
	id := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	request := w.ended(t, id)
	if got := request.text("status"); got != "completed" {
		t.Errorf("status of the request = %q, want completed", got)
	}
	var charged string
	until(t, "the call is charged", func() bool {
		charged = w.read.want(t, 200, "GET", "/v1/calls/"+request.text("call_id"), nil).text("credits_charged")
		return charged != ""
	})
	until(t, "the event of the end is delivered", func() bool {
		for _, d := range hears() {
			if d.Type == "call.completed" && d.CallID == request.text("call_id") {
				return true
			}
		}
		return false
	})
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance"); got == "10" {
		t.Errorf("balance after a charge of %s = %s, want less test credit", charged, got)
	}
}

func TestModes_ModeOfAWorkspaceCannotChange(t *testing.T) {
	live, test := workspace(t), workspace(t, set{"mode": "test"})
	if got := live.operator.want(t, 200, "GET", live.admin, nil).text("mode"); got != "live" {
		t.Errorf("default mode = %q, want live", got)
	}
	for _, c := range []struct {
		admin, mode string
	}{{live.admin, "test"}, {test.admin, "live"}} {
		refused := live.operator.want(t, 422, "PATCH", c.admin, set{"mode": c.mode})
		if got := refused.code(); got != "validation_error" {
			t.Errorf("code of a PATCH to mode %s = %q, want validation_error", c.mode, got)
		}
	}
	live.operator.want(t, 422, "POST", "/admin/v1/workspaces",
		set{"name": "x", "plan": "scale", "currency": "USD", "mode": "sandbox"})
}

// A live and a test workspace of the same customer are separate tenants.
func TestModes_LiveAndTestWorkspaceAreIsolated(t *testing.T) {
	live, test := workspace(t), workspace(t, set{"mode": "test"})
	for _, w := range []*tenant{live, test} {
		w.topUp(t, "10")
	}
	liveID := live.write.want(t, 202, "POST", "/v1/calls", live.order(number(1))).text("id")
	testID := test.write.want(t, 202, "POST", "/v1/calls", test.order(number(1))).text("id")
	for _, c := range []struct {
		name        string
		w           *tenant
		own, theirs string
	}{{"live", live, liveID, testID}, {"test", test, testID, liveID}} {
		c.w.read.want(t, 200, "GET", "/v1/call-requests/"+c.own, nil)
		if got := c.w.read.want(t, 404, "GET", "/v1/call-requests/"+c.theirs, nil).code(); got != "not_found" {
			t.Errorf("%s workspace: code for the request of the other workspace = %q, want not_found", c.name, got)
		}
		c.w.write.want(t, 404, "POST", "/v1/call-requests/"+c.theirs+"/cancel", nil)
		if got := c.w.write.want(t, 422, "POST", "/v1/calls", c.w.order(number(1), "agent_id",
			map[bool]string{true: test.agent, false: live.agent}[c.w == live])).code(); got != "invalid_agent" {
			t.Errorf("%s workspace: code for the agent of the other workspace = %q, want invalid_agent", c.name, got)
		}
	}
}
