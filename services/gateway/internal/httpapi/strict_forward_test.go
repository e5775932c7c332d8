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
	received := r.requestsTo(proxy.Calls)
	if len(received) != 1 {
		t.Fatalf("the owner received %d requests, want 1", len(received))
	}
	if received[0].body != accepted {
		t.Errorf("the owner received %q, want %q", received[0].body, accepted)
	}
}
