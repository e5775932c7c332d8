package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/services/gateway/internal/proxy"
)

func TestPublic_StrictRequestIsCheckedBeforeItIsForwarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	strict := http.Header{"Prefer": {"handling=strict"}}
	const accepted, refused = `{"agent_id":"a","to":"b"}`, `{"agent_id":"a","too":"b"}`

	got := send(t, "POST", r.public.URL+"/v1/calls", key, refused, strict)
	if got.status != http.StatusUnprocessableEntity {
		t.Errorf("unknown field: status = %d, want 422; body = %s", got.status, got.body)
	}
	if !strings.Contains(got.body, "too is not a field") {
		t.Errorf("unknown field: body = %s, want it to name too", got.body)
	}
	if applied, ok := got.header["Preference-Applied"]; ok {
		t.Errorf("unknown field: Preference-Applied = %q, want none", applied)
	}
	if received := r.requestsTo(proxy.Calls); len(received) != 0 {
		t.Errorf("the owner received %d requests, want 0", len(received))
	}

	got = send(t, "POST", r.public.URL+"/v1/calls", key, accepted, strict)
	if got.status != http.StatusOK {
		t.Errorf("known fields: status = %d, want 200; body = %s", got.status, got.body)
	}
	if applied := got.header.Get("Preference-Applied"); applied != "handling=strict" {
		t.Errorf("known fields: Preference-Applied = %q, want handling=strict", applied)
	}
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"error":{"code":"validation_error","message":"to is invalid."}}`))
		return true
	})
	for _, path := range []string{"/v1/calls", "/v1/call-requests/" + aRequestID + "/timeline"} {
		method, body := "POST", accepted
		if path != "/v1/calls" {
			method, body = "GET", ""
		}
		got = send(t, method, r.public.URL+path, key, body, strict)
		if got.status != http.StatusUnprocessableEntity {
			t.Errorf("%s refused by the owner: status = %d, want 422; body = %s", path, got.status, got.body)
		}
		if applied, ok := got.header["Preference-Applied"]; ok {
			t.Errorf("%s refused by the owner: Preference-Applied = %q, want none", path, applied)
		}
	}
	received := r.requestsTo(proxy.Calls)[:1]
	if len(received) != 1 {
		t.Fatalf("the owner received %d requests, want 1", len(received))
	}
	if received[0].body != accepted {
		t.Errorf("the owner received %q, want %q", received[0].body, accepted)
	}
}

// For example, the dialer would ignore the unknown field `ends` of a pause, and the pause
// would never end.
func TestAdmin_StrictRequestIsCheckedBeforeItIsForwarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	strict := http.Header{"Prefer": {"handling=strict"}}
	const pause = `{"state":"paused","reason":"x"}`
	session := r.operatorSession()
	console := func(method, path, body string) answered {
		return send(t, method, r.console.URL+path, session, body, strict)
	}
	admin := func(method, path, body string) answered {
		return send(t, method, r.admin.URL+path, operatorToken, body, strict)
	}
	tests := []struct {
		name, method, path, body string
		request                  func(method, path, body string) answered
		// unknown is the name that the refusal has to contain. It is empty if the request is accepted.
		unknown string
	}{
		{name: "operator, known", method: "PUT", path: "/admin/v1/dialing", body: pause, request: admin},
		{
			name: "operator, field", method: "PUT", path: "/admin/v1/dialing", body: `{"state":"paused","ends":"x"}`,
			request: admin, unknown: "ends",
		},
		{name: "operator, parameter", method: "GET", path: "/admin/v1/audit?actor=1", request: admin, unknown: "actor"},
		{name: "operator, parameters", method: "GET", path: "/admin/v1/audit?limit=1", request: admin},
		{name: "person, known", method: "PUT", path: "/admin/v1/dialing", body: pause, request: console},
		{
			name: "person, field of the operator API", method: "PUT", path: "/admin/v1/dialing",
			body: `{"state":"paused","ends":"x"}`, request: console, unknown: "ends",
		},
		{
			name: "person, field of the console API", method: "POST", path: "/console/v1/operator-invitations",
			body: `{"rol":"operator"}`, request: console, unknown: "rol",
		},
		{name: "person, parameter", method: "GET", path: "/console/v1/people?name=x", request: console, unknown: "name"},
		{name: "person, no parameter", method: "GET", path: "/console/v1/people", request: console},
		{
			name: "sign-in, field", method: "POST", path: "/console/v1/sign-in/code", body: `{"cod":"x"}`,
			request: console, unknown: "cod",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(r.requestsTo(proxy.Dialer))
			got := tt.request(tt.method, tt.path, tt.body)
			applied := got.header.Get("Preference-Applied")
			if tt.unknown == "" {
				if got.status >= http.StatusBadRequest {
					t.Errorf("status = %d, want success; body = %s", got.status, got.body)
				}
				if applied != "handling=strict" {
					t.Errorf("Preference-Applied = %q, want handling=strict", applied)
				}
				return
			}
			if got.status != http.StatusUnprocessableEntity {
				t.Errorf("status = %d, want 422; body = %s", got.status, got.body)
			}
			if !strings.Contains(got.body, tt.unknown+" is not a ") {
				t.Errorf("body = %s, want it to name %s", got.body, tt.unknown)
			}
			if applied != "" {
				t.Errorf("Preference-Applied = %q, want none", applied)
			}
			if after := len(r.requestsTo(proxy.Dialer)); after != before {
				t.Errorf("the owner received %d requests, want 0", after-before)
			}
		})
	}
}
