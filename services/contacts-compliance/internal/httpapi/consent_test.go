package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
)

func TestOptOuts_ChangeTheStateAndStoreARecord(t *testing.T) {
	t.Parallel()
	r := start(t)
	status := func(got response, dnd, consent string) {
		t.Helper()
		want := map[string]any{"phone_e164": "+15005550001", "dnd_status": dnd, "consent_status": consent}
		if got.status != http.StatusOK {
			t.Errorf("got.status = %v, want %v; got.raw = %s", got.status, http.StatusOK, got.raw)
		} else if !maps.Equal(got.body, want) {
			t.Errorf("got.body = %v, want %v; got.raw = %s", got.body, want, got.raw)
		}
	}
	status(r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001","reason":"asked by mail"}`), "dnd",
		"unknown")
	status(r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001"}`), "dnd", "unknown")
	status(r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/+15005550001/consent",
		`{"status":"consented","source":"web form","evidence":{"ip":"192.0.2.1"}}`), "dnd", "consented")
	status(r.customer(t, http.MethodGet, "/v1/opt-outs/+15005550001", ""), "dnd", "consented")
	status(r.customer(t, http.MethodDelete, "/v1/opt-outs/%2B15005550001", ""), "clean", "consented")
	status(r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/%%2B15005550001/consent",
		`{"status":"withdrawn","source":"letter","evidence":"scan 7"}`), "clean", "withdrawn")
	status(r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/contacts/+15005550001/consent", ""), "clean",
		"withdrawn")

	got := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records?phone=+15005550001", "")
	data, _ := got.body["data"].([]any)
	want := []string{ // newest first
		"consent_withdrawn letter operator:ann <nil> scan 7 consented→withdrawn",
		"opt_out_removed api request <nil> <nil> dnd→clean",
		"consent_granted web form operator:ann <nil> map[ip:192.0.2.1] unknown→consented",
		"opt_out api request <nil> <nil> dnd→dnd",
		"opt_out api request asked by mail <nil> unknown→dnd",
	}
	if got.status != http.StatusOK {
		t.Fatalf("records: got.status = %v, want %v; got.raw = %s", got.status, http.StatusOK, got.raw)
	}
	if len(data) != len(want) {
		t.Fatalf("records: length of data = %d, want %d; got.raw = %s", len(data), len(want), got.raw)
	}
	fields := map[string]bool{}
	for _, name := range strings.Fields(
		"id phone_e164 contact_id kind source actor reason evidence before after occurred_at created_at") {
		fields[name] = true
	}
	for i, item := range data {
		rec, _ := item.(map[string]any)
		actor, _ := rec["actor"].(string)
		if name, _, isRequest := strings.Cut(actor, ":"); isRequest && name == "request" {
			actor = name
		}
		line := fmt.Sprintf("%v %v %v %v %v %v→%v", rec["kind"], rec["source"], actor, rec["reason"], rec["evidence"],
			rec["before"], rec["after"])
		if line != want[i] {
			t.Errorf("record %d = %s, want %s", i, line, want[i])
		}
		if !maps.Equal(keysOf(rec), fields) {
			t.Errorf("record fields = %v", keysOf(rec))
		}
	}
	newest, _ := data[0].(map[string]any)
	member := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records/"+fmt.Sprint(newest["id"]), "")
	if member.status != http.StatusOK {
		t.Errorf("one record: member.status = %v, want %v; member.raw = %s", member.status, http.StatusOK, member.raw)
	} else if !reflect.DeepEqual(member.body, newest) {
		t.Errorf("one record: member.body = %v, want %v; member.raw = %s", member.body, newest, member.raw)
	}
	for _, id := range []string{"x", uuid.NewString()} {
		if got := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records/"+id,
			""); got.status != http.StatusNotFound {
			t.Errorf("record %s = %d, want 404", id, got.status)
		}
	}
	page := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records?limit=2", "")
	if items, _ := page.body["data"].([]any); len(items) != 2 {
		t.Errorf("a page of two: length of items = %d, want 2; page.raw = %s", len(items), page.raw)
	} else if page.body["has_more"] != true {
		t.Errorf(`a page of two: page.body["has_more"] = %v, want true; page.raw = %s`, page.body["has_more"], page.raw)
	}
}

func TestOptOuts_RefuseInvalidRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	tests := []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{name: "no number", method: "POST", path: "/v1/opt-outs", body: `{}`, status: 422, code: "validation_error"},
		{name: "a null number", method: "POST", path: "/v1/opt-outs", body: `{"phone_e164":null}`, status: 422,
			code: "validation_error"},
		{name: "a number that is no string", method: "POST", path: "/v1/opt-outs", body: `{"phone_e164":1}`, status: 422,
			code: "validation_error"},
		{name: "a malformed number", method: "POST", path: "/v1/opt-outs", body: `{"phone_e164":"+0123"}`, status: 422,
			code: "invalid_phone"},
		{name: "a number that is far too long", method: "POST", path: "/v1/opt-outs",
			body: `{"phone_e164":"+` + strings.Repeat("1", 3000) + `"}`, status: 422, code: "invalid_phone"},
		{name: "an empty number", method: "POST", path: "/v1/opt-outs", body: `{"phone_e164":""}`, status: 422,
			code: "invalid_phone"},
		{name: "a reason above the limit", method: "POST", path: "/v1/opt-outs",
			body: `{"phone_e164":"+15005550001","reason":"` + strings.Repeat("x", 501) + `"}`, status: 422,
			code: "validation_error"},
		{name: "a malformed number in the path", method: "GET", path: "/v1/opt-outs/15005550001", status: 422,
			code: "invalid_phone"},
		{name: "a word instead of a number in the path", method: "DELETE", path: "/v1/opt-outs/everyone", status: 422,
			code: "invalid_phone"},
		{name: "an unknown number", method: "GET", path: "/v1/opt-outs/+15005550099", status: 404, code: "not_found"},
		{name: "removal of an opt-out of an unknown number", method: "DELETE", path: "/v1/opt-outs/+15005550099", status: 404,
			code: "not_found"},
		{name: "a wrong method", method: "PUT", path: "/v1/opt-outs", body: `{}`, status: 405, code: "method_not_allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r.checkResponse(t, r.customer(t, tt.method, tt.path, tt.body), tt.status, tt.code)
		})
	}
}

func TestConsent_RefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/admin/v1/workspaces/%s/contacts/+15005550001/consent"
	for body, field := range map[string]string{
		`{}`: "status", `{"status":"unknown","source":"x"}`: "status", `{"status":7,"source":"x"}`: "status",
		`{"status":"consented"}`: "source", `{"status":"consented","source":" "}`: "source",
		`{"status":"consented","source":"x","evidence":7}`:                 "evidence",
		`{"status":"consented","source":"x","evidence":{"a":[[[[[1]]]]]}}`: "evidence",
	} {
		got := r.operator(t, http.MethodPut, path, body)
		r.checkResponse(t, got, http.StatusUnprocessableEntity, "validation_error")
		if !strings.HasPrefix(got.message(), field) {
			t.Errorf("%s: message = %q, want it to name %s", body, got.message(), field)
		}
	}
	r.checkResponse(t, r.operator(t, http.MethodGet, path, ""), http.StatusNotFound, "not_found")
	r.checkResponse(t, r.customer(t, http.MethodPut, fmt.Sprintf(path, r.workspace),
		`{"status":"consented","source":"x"}`), http.StatusUnauthorized, "invalid_api_key")
	other := serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Write, Operator: "ann"}
	r.checkResponse(t, r.send(t, other, http.MethodPut, fmt.Sprintf(path, r.workspace),
		`{"status":"consented","source":"x"}`), http.StatusNotFound, "not_found")
	var rows int
	if err := r.pool.QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM contacts) + (SELECT count(*) FROM consent_records)").Scan(&rows); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if rows != 0 {
		t.Errorf("rows = %v, want 0", rows)
	}
}

func TestRoutes_Respond503WithoutTheDatabase(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.pool.Close()
	r.checkResponse(t, r.customer(t, http.MethodGet, "/v1/opt-outs/+15005550001", ""), http.StatusServiceUnavailable,
		"unavailable")
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001"}`),
		http.StatusServiceUnavailable, "unavailable")
}
