package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/gateway/internal/people"
)

func TestAudit_ReasonOfAChangeIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	operator := r.operatorSession()
	developer, _ := r.memberSession(workspace, people.Developer)
	r.answers(func(w http.ResponseWriter, request receivedRequest) bool {
		if request.method == http.MethodGet {
			return false
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"status":"accepted"}`)
		return true
	})
	base := "/admin/v1/workspaces/" + workspace
	rows := []struct {
		name, method, address, token, body, action string
		listed                                     bool
	}{
		{name: "hang-up by a key", method: "POST", address: r.public.URL + "/v1/calls/" + anID + "/hangup", token: key,
			action: "call.hangup", listed: true},
		{name: "opt-out removal", method: "DELETE", address: r.public.URL + "/v1/opt-outs/+14155550100", token: key,
			action: "opt_out.delete", listed: true},
		{name: "hang-up by a person", method: "POST", address: r.console.URL + base + "/calls/" + anID + "/hangup",
			token: operator, action: "call.hangup", listed: true},
		{name: "hang-up of all calls", method: "POST", address: r.console.URL + base + "/hangup", token: operator,
			action: "workspace.hangup", listed: true},
		{name: "erasure", method: "DELETE", address: r.admin.URL + base + "/contacts/+14155550100", token: operatorToken,
			action: "contact.erase", listed: true},
		{name: "other change", method: "POST", address: r.public.URL + "/v1/call-requests/" + anID + "/cancel", token: key,
			action: "call_request.cancel"},
		{name: "change by a member", method: "PATCH", address: r.console.URL + base + "/agents/" + anID, token: developer,
			body: `{"name":"Ada"}`, action: "agent.update", listed: true},
		{name: "suspension", method: "PATCH", address: r.admin.URL + base, token: operatorToken,
			body: `{"status":"suspended"}`, action: "workspace.update", listed: true},
		{name: "resumption", method: "PATCH", address: r.admin.URL + base, token: operatorToken,
			body: `{"status":"active"}`, action: "workspace.update", listed: true},
	}
	for _, row := range rows {
		header := http.Header{"Ringfence-Reason": {" Beschwerde Nr. 7 – zurückgezogen "}}
		if got := send(t, row.method, row.address, row.token, row.body, header); got.status >= 300 {
			t.Fatalf("%s: status = %d %s", row.name, got.status, got.body)
		}
	}
	entries := r.entries(key, "")
	for i, row := range rows {
		entry := entries[len(rows)-1-i] // the audit log lists the newest entry first
		if entry.Action != row.action {
			t.Fatalf("%s: action = %s, want %s", row.name, entry.Action, row.action)
		}
		var want any
		if row.listed {
			want = "Beschwerde Nr. 7 – zurückgezogen"
		}
		if got := entry.After["reason"]; got != want {
			t.Errorf("%s: reason = %v, want %v", row.name, got, want)
		}
		if entry.After["status"] == nil {
			t.Errorf("%s: after = %v, want the response too", row.name, entry.After)
		}
	}
	long := http.Header{"Ringfence-Reason": {strings.Repeat("x", 501)}}
	wantAnswer(t, "long reason", send(t, "POST", r.public.URL+"/v1/calls/"+anID+"/hangup", key, "", long),
		http.StatusUnprocessableEntity, "validation_error")
}

// The outcome and the state of the object are unknown, but the entry must contain the reason.
func TestAudit_ReasonIsListedIfTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	r.answers(func(http.ResponseWriter, receivedRequest) bool { panic(http.ErrAbortHandler) })
	header := http.Header{"Ringfence-Reason": {"complaint 7"}}
	send(t, "POST", r.public.URL+"/v1/calls/"+anID+"/hangup", key, "", header)
	entry := r.entries(key, "object_type=call")[0]
	if diff := cmp.Diff(map[string]any{"reason": "complaint 7"}, entry.After); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
}
