package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/compliancev1"
)

func TestDecisions_FilterByCallRequestAndNumber(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	first, second := uuid.Must(uuid.NewV7()).String(), uuid.Must(uuid.NewV7()).String()
	place := func(request, number string) {
		t.Helper()
		_, err := r.preCheck("calls").PreCheck(t.Context(),
			connect.NewRequest(&compliancev1.PreCheckRequest{CallRequestId: request, WorkspaceId: r.workspace.String(),
				ToE164: number}))
		if err != nil {
			t.Fatal(err)
		}
	}
	place(first, "+15005550001")
	r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001"}`)
	if _, err := r.dialCheck("dialer").Check(t.Context(),
		connect.NewRequest(&compliancev1.CheckRequest{CallRequestId: first, WorkspaceId: r.workspace.String(),
			ToE164: "+15005550001"})); err != nil {
		t.Fatal(err)
	}
	place(second, "+15005550002")

	const path = "/admin/v1/workspaces/%s/decisions"
	list := func(query string, want ...string) []any {
		t.Helper()
		got := r.operator(t, http.MethodGet, path+query, "")
		data, _ := got.body["data"].([]any)
		var lines []string
		for _, item := range data {
			d, _ := item.(map[string]any)
			lines = append(lines, fmt.Sprintf("%v %v %v %v %v", d["phone_e164"], d["kind"], d["result"], d["rule"], d["code"]))
		}
		if got.status != http.StatusOK {
			t.Errorf("%s: got.status = %v, want %v", query, got.status, http.StatusOK)
		} else if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: strings.Join(lines, \"\\n\") = %v, want %v",
				query, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		return data
	}
	refused, open := "+15005550001 dial closed dnd recipient_dnd", "+15005550001 precheck open <nil> <nil>"
	found := list("?call_request_id="+first, refused, open)
	list("?call_request_id="+second, "+15005550002 precheck open <nil> <nil>")
	list("?phone=+15005550001", refused, open)
	list("?phone=%%2B15005550001&call_request_id=" + second)
	list("?limit=1", "+15005550002 precheck open <nil> <nil>")
	newest, _ := found[0].(map[string]any)
	list("?call_request_id="+first+"&starting_after="+fmt.Sprint(newest["id"]), open)

	fields := map[string]bool{}
	for _, name := range strings.Fields(
		"id call_request_id phone_e164 contact_id kind result rule code message " +
			"call_at policy_version inputs judged_at created_at") {
		fields[name] = true
	}
	inputs, _ := newest["inputs"].(map[string]any)
	if !maps.Equal(keysOf(newest), fields) {
		t.Errorf("decision = %v, want all documented fields", newest)
	}
	if inputs["dnd_status"] != "dnd" {
		t.Errorf("dnd_status = %v, want dnd", inputs["dnd_status"])
	}
	if inputs["policy"] == nil {
		t.Fatalf("decision = %v, want all documented fields", newest)
	}
	if newest["call_request_id"] != first {
		t.Errorf("call_request_id = %v, want %v", newest["call_request_id"], first)
	}
	member := r.operator(t, http.MethodGet, path+"/"+fmt.Sprint(newest["id"]), "")
	if member.status != http.StatusOK {
		t.Errorf("one decision: status = %v, want %v", member.status, http.StatusOK)
	}
	if !maps.Equal(keysOf(member.body), fields) {
		t.Errorf("fields of one decision differ: %d %s, want those of the list", member.status, member.raw)
	}
	if member.body["id"] != newest["id"] {
		t.Errorf("one decision: id = %v, want %v", member.body["id"], newest["id"])
	}
	for _, id := range []string{"x", uuid.NewString()} {
		r.checkResponse(t, r.operator(t, http.MethodGet, path+"/"+id, ""), http.StatusNotFound, "not_found")
	}
	for _, query := range []string{"?call_request_id=x", "?phone=1", "?limit=0", "?starting_after=" + uuid.NewString()} {
		r.checkResponse(t, r.operator(t, http.MethodGet, path+query, ""), http.StatusUnprocessableEntity, "validation_error")
	}
	other := serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Write, Operator: "ann"}
	r.checkResponse(t, r.send(t, other, http.MethodGet, fmt.Sprintf(path, other.WorkspaceID)+"/"+fmt.Sprint(newest["id"]),
		""), http.StatusNotFound, "not_found")
}
