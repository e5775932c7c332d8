package httpapi_test

import (
	"net/http"
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

// FuzzAPI sends requests to the whole service, as a customer and as an operator of one workspace.
func FuzzAPI(f *testing.F) {
	r := newRig(f)
	placed := r.place()
	a := r.account(placed)
	a.publish(a.ringing())
	agents := r.admin("/agents")
	good := `{"agent_id":"` + r.agent.String() + `","to":"+14155550100","variables":{"a":{"b":[1]}},"external_ref":"order-1","idempotency_key":"k-1",` +
		`"scheduled_for":"2026-12-04T09:00:00+02:00","schedule_if_outside_hours":true}`
	testkit.Surface{
		Handler: r.server.Config.Handler,
		Prepare: func(t testing.TB, request *http.Request) {
			token, err := r.gateway.SignCaller("calls", serviceauth.Caller{WorkspaceID: r.workspace, RequestID: newID(t), Access: serviceauth.Write, Operator: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(serviceauth.CallerHeader, token)
		},
		Routes: []string{
			"POST /v1/calls", "GET /v1/calls", "GET /v1/calls/{}", "GET /v1/calls/{}/transcript", "GET /v1/calls/{}/recording",
			"GET /v1/call-requests", "GET /v1/call-requests/{}", "POST /v1/call-requests/{}/cancel",
			"GET " + r.admin("/calls"), "GET " + r.admin("/calls/{}"), "GET " + r.admin("/call-requests"), "GET " + r.admin("/call-requests/{}"),
			"POST " + agents, "GET " + agents, "GET " + agents + "/{}", "PATCH " + agents + "/{}",
		},
		IDs: []string{a.id(), placed.String(), r.agent.String()},
		Bodies: map[string][]string{
			"POST /v1/calls":          {good},
			"POST " + agents:          {`{"name":"Ada","from_number":"+15005550006","max_call_seconds":60,"instructions":"x","voice":"y","outcomes":["a"],"temperature":1e400000}`},
			"PATCH " + agents + "/{}": {`{"name":"Eve","from_number":null,"max_call_seconds":60,"outcomes":[],"temperature":0.5}`},
		},
		Queries: map[string][]string{
			"GET /v1/calls":         {"limit", "starting_after", "status", "direction", "agent_id", "contact_id", "external_ref", "created_after", "created_before"},
			"GET /v1/call-requests": {"limit", "starting_after", "status", "external_ref"},
			"GET " + agents:         {"limit", "starting_after"},
		},
	}.Fuzz(f)
}
