package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

// FuzzAPI sends requests to all routes, as a customer and as an operator of one workspace.
func FuzzAPI(f *testing.F) {
	h, workspace := newFixture(f), uuid.Must(uuid.NewV7())
	id, _ := h.create(workspace)
	home := "/admin/v1/workspaces/" + workspace.String() + "/webhook-subscriptions"
	testkit.Surface{
		Handler: h.handler,
		Prepare: func(t testing.TB, request *http.Request) {
			token, err := h.gateway.SignCaller("webhook-dispatcher", serviceauth.Caller{
				WorkspaceID: workspace, RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Write, Webhooks: true, Operator: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(serviceauth.CallerHeader, token)
		},
		Routes: []string{
			"GET " + collection, "POST " + collection, "PATCH " + collection + "/{}", "POST " + collection + "/{}/rotate-secret",
			"POST " + collection + "/{}/test", "GET " + home, "GET " + home + "/{}", "GET " + home + "/{}/deliveries", "GET " + home + "/" + id + "/deliveries/{}",
			"POST " + home + "/{}/deliveries/replay", "POST " + home + "/" + id + "/deliveries/{}/replay",
		},
		IDs: []string{id},
		Bodies: map[string][]string{
			"POST " + collection: {
				`{"name":"orders","url":"https://example.com/hook","events":["call.completed"],"description":"x"}`,
				`{"name":"o","url":"https://[::1]:443/","events":["call.completed"]}`, `{"name":"o","url":"https://example.com:99999","events":["nope"]}`,
			},
			"POST " + home + "/{}/deliveries/replay": {
				`{"status":"failed","since":"2026-06-04T09:00:00Z","before":"2026-06-05T09:00:00+02:00"}`, `{"status":"skipped","since":"0000-01-01T00:00:00Z"}`,
				`{"call_id":"0190a6f0-0000-7000-8000-000000000001"}`,
			},
			"POST " + home + "/" + id + "/deliveries/{}/replay": {`{"before":"9999-12-31T23:59:59Z"}`, ``},
			"PATCH " + collection + "/{}":                       {`{"url":"https://example.com/other","events":["call.busy"],"status":"paused"}`, `{"status":"active"}`},
		},
		Queries: map[string][]string{
			"GET " + collection: {"limit", "starting_after"}, "GET " + home: {"limit", "starting_after"},
			"GET " + home + "/{}/deliveries": {"limit", "starting_after", "status", "event_type", "call_id"},
		},
	}.Fuzz(f)
}
