package contract

import (
	"strings"
	"testing"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	trunks = "/admin/v1/trunks"
	hook   = workspacePath + "/webhook-subscriptions/{subscription_id}"
)

// operatorChanges sends changes of the operator API and validates each success with the document.
type operatorChanges struct {
	*client
	document *Document
	// values replace the placeholders of a path.
	values map[string]string
}

func newOperatorChanges(t *testing.T, values map[string]string) operatorChanges {
	t.Helper()
	document, err := Load(openapi.OperatorDescription)
	if err != nil {
		t.Fatal(err)
	}
	return operatorChanges{operator(t), document, values}
}

func (c operatorChanges) want(t *testing.T, status int, method, path string, body any) answer {
	t.Helper()
	address := inPath.ReplaceAllStringFunc(path, func(name string) string { return c.values[strings.Trim(name, "{}")] })
	got := c.client.want(t, status, method, address, body)
	if !checkOperation(t, c.document, path, method, address, got) {
		t.Errorf("%s %s = %d %s, want a success that the document describes", method, address, got.status, got.body)
	}
	return got
}

// A trunk is created for the test. The calls of this stack are simulated, so no call uses it.
func TestOperatorDescription_DescribesPauseAndResume(t *testing.T) {
	w := workspace(t)
	c := newOperatorChanges(t, map[string]string{"id": w.id, "agent_id": w.agent})
	trunk := c.want(t, 201, "POST", trunks, set{"name": "of " + w.id, "host": "127.0.0.1", "status": "disabled"})
	c.values["trunk_id"] = trunk.text("id")
	for _, path := range []string{
		"/admin/v1/dialing", trunks + "/{trunk_id}/dialing", workspacePath + "/dialing",
		workspacePath + "/agents/{agent_id}/dialing",
	} {
		c.pauseAndResume(t, path)
	}
	list := c.want(t, 200, "GET", trunks+"/{trunk_id}", nil)
	sharedstack.Equal(t, "id of the trunk", list.text("id"), trunk.text("id"))
}

func (c operatorChanges) pauseAndResume(t *testing.T, path string) {
	t.Helper()
	defer func() { // also after a failure, because the other tests must be able to dial
		resumed := c.want(t, 200, "PUT", path, set{"state": "active", "reason": "Corrected"})
		sharedstack.Equal(t, "state after the second PUT "+path, resumed.text("state"), "active")
	}()
	paused := c.want(t, 200, "PUT", path, set{"state": "paused", "reason": "Wrong script"})
	sharedstack.Equal(t, "state after PUT "+path, paused.text("state"), "paused")
	sharedstack.Equal(t, "body of GET "+path, c.want(t, 200, "GET", path, nil).body, paused.body)
}

func TestOperatorDescription_DescribesHangups(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	c := newOperatorChanges(t, map[string]string{"id": w.id})
	for _, path := range []string{workspacePath + "/calls/{call_id}/hangup", workspacePath + "/hangup"} {
		call := w.liveCall(t, "hold", "in_progress")
		c.values["call_id"] = call
		c.want(t, 202, "POST", path, nil)
		sharedstack.Equal(t, "status after POST "+path, w.endOf(t, call).text("status"), "completed")
	}
}

func TestOperatorDescription_DescribesReplays(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	subscription, received := w.subscribeTo(t, "all", everyEvent()...)
	request := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90))).text("id"))
	c := newOperatorChanges(t, map[string]string{"id": w.id, "subscription_id": subscription})
	want := 0
	delivered := func() {
		t.Helper()
		want++
		until(t, "the delivery has arrived again and has ended", func() bool {
			list := c.want(t, 200, "GET", hook+"/deliveries", nil)
			ids := list.ids()
			if len(ids) != 1 || len(received()) < want {
				return false
			}
			c.values["delivery_id"] = ids[0]
			return c.want(t, 200, "GET", hook+"/deliveries/{delivery_id}", nil).text("status") == "delivered"
		})
		sharedstack.Equal(t, "deliveries", len(received()), want)
	}
	delivered()
	for _, row := range []struct {
		path string
		body any
	}{
		{hook + "/deliveries/{delivery_id}/resend", nil},
		{hook + "/deliveries/{delivery_id}/replay", nil},
		{hook + "/deliveries/replay", set{"call_id": request.text("call_id")}},
		{hook + "/replay", set{"since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}},
	} {
		c.want(t, 202, "POST", row.path, row.body)
		delivered()
	}
}

// No other test of this package runs at the same time, because the pause applies to every
// workspace.
func TestDialing_PauseOfTheDeploymentStopsTheDialsOfAWorkspace(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	const everything = "/admin/v1/dialing"
	resume := func() { w.operator.want(t, 200, "PUT", everything, set{"state": "active", "reason": "Corrected"}) }
	defer resume()
	w.operator.want(t, 200, "PUT", everything, set{"state": "paused", "reason": "Wrong script"})
	time.Sleep(2 * time.Second) // the time after which no dial may start
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	time.Sleep(2 * time.Second) // without the pause, the call would be dialed in this time
	request := w.read.want(t, 200, "GET", "/v1/call-requests/"+placed, nil)
	sharedstack.Equal(t, "status during the pause", request.text("status"), "queued")
	sharedstack.Equal(t, "state for the customer", w.read.want(t, 200, "GET", dialing, nil).text("state"), "active")
	resume()
	sharedstack.Equal(t, "status after the pause", w.ended(t, placed).text("status"), "completed")
}
