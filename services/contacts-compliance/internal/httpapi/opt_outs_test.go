package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

func TestImports_UploadedListOptsOutItsNumbers(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/admin/v1/workspaces/%s/opt-out-imports"
	opened := r.operator(t, http.MethodPost, path, `{"reason":"bought with the shop"}`)
	id := fmt.Sprint(opened.body["id"])
	if opened.status != http.StatusCreated {
		t.Fatalf("opened: status = %v, want %v", opened.status, http.StatusCreated)
	}
	testkit.Members(t, "opened", opened.body, map[string]any{
		"status": "receiving", "reason": "bought with the shop", "actor": "operator:ann",
	})
	member := path + "/" + id
	r.checkResponse(t, r.operator(t, http.MethodPost, member+"/start", ""), http.StatusUnprocessableEntity,
		"validation_error")
	r.checkResponse(t, r.operator(t, http.MethodPut, member+"/parts/2", "50001\n+15005550002\nabsent\n"), http.StatusOK,
		"")
	if got := r.operator(t, http.MethodPost, member+"/start", ""); got.status != 422 {
		t.Errorf("start with a missing part: got.status = %v, want 422; got.raw = %s", got.status, got.raw)
	} else if !strings.Contains(got.message(), "part 1 is missing") {
		t.Errorf(`start with a gap: got.message() = %q, want it to contain "part 1 is missing"; got.raw = %s`,
			got.message(), got.raw)
	}
	for range 2 {
		r.checkResponse(t, r.operator(t, http.MethodPut, member+"/parts/1", "phone\n+150055"), http.StatusOK, "")
	}
	for range 2 {
		got := r.operator(t, http.MethodPost, member+"/start", "")
		if got.status != http.StatusAccepted {
			t.Errorf("start: status = %v, want %v", got.status, http.StatusAccepted)
		}
		if got.body["status"] != "reading" {
			t.Errorf("start: status = %v, want reading", got.body["status"])
		}
		if got := fmt.Sprint(got.body["bytes"]); got != "39" {
			t.Errorf("start: bytes = %v, want 39", got)
		}
	}
	r.checkResponse(t, r.operator(t, http.MethodPut, member+"/parts/3", "+15005550003"), http.StatusUnprocessableEntity,
		"validation_error")
	if more, err := r.importer.RunNext(t.Context()); err != nil {
		t.Fatalf("RunNext: %v", err)
	} else if !more {
		t.Fatal("RunNext: more = false, want true")
	}
	done := r.operator(t, http.MethodGet, member, "")
	fields := map[string]bool{}
	for _, name := range strings.Fields(
		"id status reason actor bytes lines numbers applied bad bad_rows " +
			"file_sha256 list_sha256 same_as record_id created_at updated_at done_at") {
		fields[name] = true
	}
	bad := fmt.Sprint(done.body["bad_rows"])
	if done.body["status"] != "done" {
		t.Errorf("done: status = %v, want done", done.body["status"])
	}
	if got := fmt.Sprint(done.body["numbers"]); got != "2" {
		t.Errorf("done: numbers = %v, want 2", got)
	}
	if !strings.Contains(bad, "line:4") {
		t.Errorf("import = %s, want it to contain %q", bad, "line:4")
	}
	if !strings.Contains(bad, "value:absent") {
		t.Errorf("import = %s, want it to contain %q", bad, "value:absent")
	}
	if !maps.Equal(keysOf(done.body), fields) {
		t.Errorf("fields of the import differ: %d %s", done.status, done.raw)
	}
	if got := r.customer(t, http.MethodGet, "/v1/opt-outs/+15005550001", ""); got.body["dnd_status"] != "dnd" {
		t.Errorf("opt-out of a number of the list = %s, want dnd", got.raw)
	}
	records := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records?phone=+15005550002", "")
	data, _ := records.body["data"].([]any)
	if len(data) != 1 {
		t.Fatalf("records: %s", records.raw)
	}
	rec, _ := data[0].(map[string]any)
	testkit.Members(t, "its record", rec, map[string]any{
		"id": done.body["record_id"], "kind": "opt_out", "source": "import", "phone_e164": nil, "before": nil,
		"after": "dnd", "reason": "bought with the shop",
	})
	if list := r.operator(t, http.MethodGet, path, ""); list.status != http.StatusOK {
		t.Errorf("list: list.status = %v, want %v", list.status, http.StatusOK)
	} else if !strings.Contains(list.raw, `"bad_rows":null`) {
		t.Errorf("list: list.raw = %q, want it to contain %q", list.raw, `"bad_rows":null`)
	}
}

func TestImports_RefuseInvalidRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/admin/v1/workspaces/%s/opt-out-imports"
	id := fmt.Sprint(r.operator(t, http.MethodPost, path, `{}`).body["id"])
	for _, row := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{method: "PUT", path: path + "/" + id + "/parts/0", body: "x", status: 422, code: "validation_error"},
		{method: "PUT", path: path + "/" + id + "/parts/4097", body: "x", status: 422, code: "validation_error"},
		{method: "PUT", path: path + "/" + id + "/parts/x", body: "x", status: 422, code: "validation_error"},
		{method: "PUT", path: path + "/" + id + "/parts/1", status: 422, code: "validation_error"},
		{method: "PUT", path: path + "/" + id + "/parts/1", body: strings.Repeat("x", 256<<10+1), status: 413,
			code: "request_too_large"},
		{method: "PUT", path: path + "/" + uuid.NewString() + "/parts/1", body: "x", status: 404, code: "not_found"},
		{method: "POST", path: path + "/" + uuid.NewString() + "/start", status: 404, code: "not_found"},
		{method: "GET", path: path + "/" + uuid.NewString(), status: 404, code: "not_found"},
		{method: "GET", path: path + "/x", status: 404, code: "not_found"},
		{method: "GET", path: path + "?starting_after=" + uuid.NewString(), status: 422, code: "validation_error"},
		{method: "POST", path: path, body: `{"reason":7}`, status: 422, code: "validation_error"},
	} {
		r.checkResponse(t, r.operator(t, row.method, row.path, row.body), row.status, row.code)
	}
	other := serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Write, Operator: "ann"}
	for method, rest := range map[string]string{"GET": "", "PUT": "/parts/1", "POST": "/start"} {
		r.checkResponse(t, r.send(t, other, method, fmt.Sprintf(path, other.WorkspaceID)+"/"+id+rest, "x"),
			http.StatusNotFound, "not_found")
	}
	r.checkResponse(t, r.customer(t, http.MethodGet, fmt.Sprintf(path, r.workspace), ""), http.StatusUnauthorized,
		"invalid_api_key")
}
