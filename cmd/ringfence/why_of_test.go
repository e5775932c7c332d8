package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// newWhyServer serves one call request with its call, and an inbound call.
func newWhyServer(t *testing.T) {
	t.Helper()
	const empty = `{"data":[],"has_more":false}`
	const request = `{"id":"01970000-0001-7000-8000-000000000001","status":"completed","to":"+14155550100",
		"scheduled_for":"2026-01-01T09:00:00.000Z","call_id":"01970000-0002-7000-8000-000000000002"}`
	const call = `{"call_id":"01970000-0002-7000-8000-000000000002",
		"call_request_id":"01970000-0001-7000-8000-000000000001","status":"completed","hangup_cause":"normal_clearing"}`
	routes := http.NewServeMux()
	for path, body := range map[string]string{
		"call-requests/01970000-0001-7000-8000-000000000001": request,
		"calls/01970000-0002-7000-8000-000000000002":         call,
		"calls/01970000-0003-7000-8000-000000000003": `{"call_id":"01970000-0003-7000-8000-000000000003",
			"call_request_id":null,"status":"busy","hangup_cause":"user_busy"}`,
		"contacts/+14155550100/preview": `{"may_be_called":true,"gates":[]}`,
		"decisions":                     empty, "attempts": empty, "webhook-subscriptions": empty,
	} {
		routes.HandleFunc("GET /admin/v1/workspaces/1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(body))
		})
	}
	routes.HandleFunc("GET /admin/v1/workspaces/1/call-requests", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[` + request + `],"has_more":false}`))
	})
	routes.HandleFunc("GET /admin/v1/workspaces/1/calls", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"01970000-0003-7000-8000-000000000003"},
			{"id":"01970000-0002-7000-8000-000000000002"}],"has_more":false}`))
	})
	routes.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":{"code":"not_found","message":"No such call request in this workspace."}}`))
	})
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	t.Setenv("RINGFENCE_WORKSPACE", "1")
}

func TestCallsWhy_AcceptsIDsOfRequestsAndCalls(t *testing.T) {
	const outbound = "The number was called. The call ended completed, normal_clearing."
	for _, test := range []struct{ name, of, want string }{
		{name: "a call request", of: "01970000-0001-7000-8000-000000000001", want: outbound},
		{name: "its call", of: "01970000-0002-7000-8000-000000000002", want: outbound},
		{name: "the short id of its call", of: "01970000-0002", want: outbound},
		{name: "an inbound call", of: "01970000-0003-7000-8000-000000000003", want: "The call is inbound"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newWhyServer(t)
			code, out, _ := runCommand(t, "calls", "why", test.of)
			wantCode(t, "calls why", code, 0)
			wantContains(t, "stdout", out, test.want)
		})
	}
	newWhyServer(t)
	code, out, _ := runCommand(t, "calls", "why", "+14155550100")
	wantCode(t, "calls why +14155550100", code, 0)
	wantContains(t, "stdout", out, "The number can be called now.")
	wantContains(t, "stdout", out, "NEWEST CALL REQUEST\n"+outbound)
	for of, want := range map[string]string{
		"01970000-0009-7000-8000-000000000009": "No such call request in this workspace.",
		"01970000-0009":                        "no id begins with 01970000-0009",
	} {
		newWhyServer(t)
		code, out, faults := runCommand(t, "calls", "why", of)
		wantCode(t, "calls why "+of, code, 1)
		wantText(t, "stdout", out, "")
		wantContains(t, "stderr", faults, want)
	}
}
