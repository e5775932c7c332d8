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
