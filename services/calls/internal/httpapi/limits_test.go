package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
)

// The limits count characters, not bytes.
func TestLimits_AcceptTheMaximumAndRefuseMoreThanTheMaximum(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct{ name, path, field, at, one string }{
		{"external_ref of a request", "/v1/calls", "external_ref", strings.Repeat("é", 255), strings.Repeat("é", 256)},
		{"idempotency_key of a request", "/v1/calls", "idempotency_key", strings.Repeat("~", 255), strings.Repeat("~", 256)},
		{"name of an agent", r.admin("/agents"), "name", strings.Repeat("é", 200), strings.Repeat("é", 201)},
	} {
		if got := r.do("POST", row.path, r.order("name", "Ada", row.field, row.at)); got.status >= 300 {
			t.Errorf("%s at the limit = %d %v", row.name, got.status, got.body)
		}
		if got := r.do("POST", row.path, r.order("name", "Ada", row.field, row.one)); got.code() != "validation_error" {
			t.Errorf(`%s past the limit: got.code() = %q, want "validation_error"; got.status = %d; got.body = %v`,
				row.name, got.code(), got.status, got.body)
		} else if !strings.HasPrefix(got.message(), row.field+" ") {
			t.Errorf("%s past the limit: got.message() = %q, want it to begin with %q; got.status = %d; got.body = %v",
				row.name, got.message(), row.field+" ", got.status, got.body)
		}
	}
	if got := r.do("POST", "/v1/calls", r.order(), "Idempotency-Key", strings.Repeat("~", 255)); got.status != http.StatusOK {
		t.Errorf("the same key in the header = %d %v, want the replay", got.status, got.body)
	}
	if got := r.do("POST", "/v1/calls", r.order(), "Idempotency-Key", strings.Repeat("~",
		256)); got.code() != "validation_error" {
		t.Errorf(`a key of 256 in the header: got.code() = %q, want "validation_error"; got.status = %d; got.body = %v`,
			got.code(), got.status, got.body)
	} else if !strings.HasPrefix(got.message(), "Idempotency-Key ") {
		t.Errorf(`a key of 256: got.message() = %q, want it to begin with "Idempotency-Key "; got.status = %d; got.body = %v`,
			got.message(), got.status, got.body)
	}
}

// Variables that do not fit into the pre-check request must give 422. The status 503 would mean
// that a retry can succeed.
func TestLimits_VariablesTooLargeForThePreCheckAre422(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := `{"agent_id":"` + r.agent.String() + `","to":"+14155550100","variables":{"a":""}}`
	filled := strings.Replace(body, `""`, `"`+strings.Repeat("x", httpserver.MaxBody-len(body))+`"`, 1)
	if got := r.do("POST", "/v1/calls", filled); got.code() != "validation_error" {
		t.Errorf(`a body of %d bytes: got.code() = %q, want "validation_error"; got.status = %d; got.body = %v`,
			len(filled), got.code(), got.status, got.body)
	} else if !strings.HasPrefix(got.message(), "variables ") {
		t.Errorf(`a body of %d bytes: got.message() = %q, want it to begin with "variables "; got.status = %d; got.body = %v`,
			len(filled), got.message(), got.status, got.body)
	}
	if got := r.do("POST", "/v1/calls", filled+" "); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("one byte more = %d %v, want 413", got.status, got.body)
	}
	spaced := strings.Replace(body, `""`, strings.Repeat(" ", 200<<10)+`"x"`, 1)
	if got := r.do("POST", "/v1/calls", spaced); got.status != http.StatusAccepted {
		t.Errorf("variables that are mostly spaces = %d %v, want 202", got.status, got.body)
	}
}

func TestAgents_KeepUnknownSettingsUnchanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.admin("/agents/" + r.agent.String())
	r.mustKeep(path, `{"temperature":1e400000,"price":0.10,"deep":{"a":[null]}}`, `"temperature":1e400000`, `"price":0.10`)
	r.mustKeep(path, `{"temperature":null}`, `"deep":{"a":[null]}`)
	large := strings.Repeat("x", 150<<10)
	r.want(http.StatusOK, "PATCH", path, map[string]any{"notes": large})
	if got := r.do("PATCH", path, map[string]any{"more": large}); got.status != 422 {
		t.Errorf("settings past 256 KiB: got.status = %v, want 422", got.status)
	} else if got.code() != "validation_error" {
		t.Errorf(`settings past 256 KiB: got.code() = %q, want "validation_error"`, got.code())
	}
	r.want(http.StatusOK, "PATCH", path, map[string]any{"notes": nil, "more": large})
}

func (r *rig) raw(request *http.Request) string {
	r.t.Helper()
	token, err := r.gateway.SignCaller("calls", serviceauth.Caller{WorkspaceID: r.workspace, RequestID: newID(r.t), Access: serviceauth.Write, Operator: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set(serviceauth.CallerHeader, token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

func (r *rig) mustKeep(path, change string, parts ...string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPatch, r.server.URL+path, strings.NewReader(change))
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.raw(request)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			r.t.Errorf("PATCH %s = %s, want %s in it", change, got, part)
		}
	}
}

func TestAgents_UnknownAgentIs404ForAnyBody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, body := range []string{"", "{", "[]", `{"name":7}`, "{}"} {
		for _, id := range []string{uuid.NewString(), "seven"} {
			if got := r.do("PATCH", r.admin("/agents/"+id), body); got.status != 404 {
				t.Errorf("PATCH with %q: got.status = %v, want 404; got.body = %v", body, got.status, got.body)
			} else if got.code() != "not_found" {
				t.Errorf(`PATCH with %q: got.code() = %q, want "not_found"; got.body = %v`, body, got.code(), got.body)
			}
		}
	}
}

func TestCreate_TwoIdempotencyKeyHeadersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.server.URL+"/v1/calls", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header["Idempotency-Key"] = []string{"a", "b"}
	if got := r.raw(request); !strings.Contains(got, `"message":"Idempotency-Key must stand once`) {
		t.Errorf("two keys = %s", got)
	}
}
