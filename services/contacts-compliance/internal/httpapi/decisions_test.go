package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
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
			"call_at policy_version gates inputs judged_at created_at") {
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

// gateLines returns one line per gate of a decision or preview: gate, result and reason.
func gateLines(t *testing.T, decision map[string]any) (lines []string) {
	t.Helper()
	gates, ok := decision["gates"].([]any)
	if !ok {
		t.Fatalf("gates = %v, want a list", decision["gates"])
	}
	for _, item := range gates {
		g, _ := item.(map[string]any)
		want := map[string]bool{"gate": true, "result": true, "checked": true, "reason": true}
		if !maps.Equal(keysOf(g), want) {
			t.Errorf("gate = %v, want the documented fields", g)
		}
		lines = append(lines, fmt.Sprintf("%v %v: %v", g["gate"], g["result"], g["reason"]))
	}
	return lines
}

// A stored decision must state for each gate why it passed or failed, even after the contact, the
// policy and the opt-out have changed.
func TestOwnDecisions_StateTheReasonOfEachGate(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	const number = "+14155552671"
	request := uuid.Must(uuid.NewV7()).String()
	check := func() {
		t.Helper()
		if _, err := r.dialCheck("dialer").Check(t.Context(), connect.NewRequest(&compliancev1.CheckRequest{
			CallRequestId: request, WorkspaceId: r.workspace.String(), ToE164: number,
			Destinations: &compliancev1.Destinations{Prefixes: []string{"+1"}}})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
		CallRequestId: request, WorkspaceId: r.workspace.String(), ToE164: number})); err != nil {
		t.Fatal(err)
	}
	check()
	r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"`+number+`"}`)
	check()

	got := r.customer(t, http.MethodGet, "/v1/decisions?phone="+number, "")
	r.checkResponse(t, got, http.StatusOK, "")
	data, _ := got.body["data"].([]any)
	if len(data) != 3 {
		t.Fatalf("decisions = %d, want 3: %s", len(data), got.raw)
	}
	fields := map[string]bool{}
	for _, name := range strings.Fields("id call_request_id phone_e164 contact_id kind result rule code message " +
		"call_at policy_version gates judged_at created_at") {
		fields[name] = true
	}
	for i, want := range []struct {
		kind, result string
		reasons      []string
	}{
		{kind: "dial", result: "closed", reasons: []string{"opt_out failed: an opt-out is on record",
			"destination passed: numbers of this kind can be called, and the number has a prefix of the workspace's " +
				"destinations"}},
		{kind: "dial", result: "open", reasons: []string{"opt_out passed: no opt-out on record"}},
		{kind: "precheck", result: "open", reasons: []string{"opt_out passed: no opt-out on record",
			"destination passed: numbers of this kind can be called", "frequency passed: no frequency cap applies",
			"consent passed: no withdrawal on record, and no consent is required"}},
	} {
		d, _ := data[i].(map[string]any)
		if !maps.Equal(keysOf(d), fields) {
			t.Errorf("decision %d = %v, want the documented fields", i, d)
		}
		testkit.Members(t, fmt.Sprint("decision ", i), d, map[string]any{
			"kind": want.kind, "result": want.result, "phone_e164": number, "call_request_id": request,
		})
		lines := gateLines(t, d)
		for _, reason := range want.reasons {
			if !slices.Contains(lines, reason) {
				t.Errorf("decision %d: gates =\n%s\nwant a line %q", i, strings.Join(lines, "\n"), reason)
			}
		}
		local := slices.IndexFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "calling_window passed: ") &&
				strings.HasSuffix(line, " in Los Angeles, window 00:00–24:00")
		})
		if local < 0 {
			t.Errorf("decision %d: gates =\n%s\nwant the local time in Los Angeles", i, strings.Join(lines, "\n"))
		}
	}
	other := serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Read}
	if got := r.send(t, other, http.MethodGet, "/v1/decisions?phone="+number, ""); fmt.Sprint(got.body["data"]) != "[]" {
		t.Errorf("decisions of another workspace = %s, want none", got.raw)
	}
	for _, query := range []string{"?call_request_id=x", "?phone=1", "?limit=0", "?starting_after=" + uuid.NewString()} {
		r.checkResponse(t, r.customer(t, http.MethodGet, "/v1/decisions"+query, ""), http.StatusUnprocessableEntity,
			"validation_error")
	}
}

const insertOldDecision = `
INSERT INTO decisions (id, workspace_id, call_request_id, phone_e164, kind, inputs, policy_version, result, rule, code,
	message, call_at, judged_at)
VALUES ($1, $2, $3, '+14155552671', 'dial', '{"stage":"dial","dnd_status":"clean"}', 0, 'open', '', '', '', now(),
	now())`

func TestDecisions_DecisionOfAnEarlierVersionHasNoGates(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := uuid.Must(uuid.NewV7())
	if _, err := r.pool.Exec(t.Context(), insertOldDecision, id, r.workspace, uuid.New()); err != nil {
		t.Fatal(err)
	}
	got := r.customer(t, http.MethodGet, "/v1/decisions?phone=+14155552671", "")
	r.checkResponse(t, got, http.StatusOK, "")
	if !strings.Contains(got.raw, `"gates":[]`) {
		t.Errorf("decisions = %s, want an empty list of gates", got.raw)
	}
	member := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/decisions/"+id.String(), "")
	r.checkResponse(t, member, http.StatusOK, "")
	if got := fmt.Sprint(member.body["gates"]); got != "[]" {
		t.Errorf("gates of the operator's form = %s, want []", got)
	}
}

func TestPreviewDecision_StoresNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.policy(t, `{"packs":["us"]}`)
	for range 5 {
		got := r.customer(t, http.MethodPost, "/v1/decisions/preview", `{"to":"+13055551234"}`)
		r.checkResponse(t, got, http.StatusOK, "")
		if lines := gateLines(t, got.body); slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "frequency failed")
		}) {
			t.Errorf("gates = %v, want no preview to count for the frequency cap", lines)
		}
	}
	var rows int
	if err := r.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM decisions) + (SELECT count(*) FROM contacts) +
		(SELECT count(*) FROM pre_checks) + (SELECT count(*) FROM consent_records) +
		(SELECT count(*) FROM outbox)`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 0 {
		t.Errorf("rows after five previews = %d, want 0", rows)
	}
}

func TestPreviewDecision_ReturnsTheNextOpeningIfTheWindowIsClosed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.policy(t, `{"window":{"start":"09:00","end":"20:00"}}`)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 3)
	ask := func(body string) response {
		t.Helper()
		got := r.customer(t, http.MethodPost, "/v1/decisions/preview", body)
		r.checkResponse(t, got, http.StatusOK, "")
		return got
	}
	night := day.Add(3 * time.Hour).Format(time.RFC3339) // this is 04:00 or 05:00 in Berlin
	got := ask(`{"to":"+493012345678","scheduled_for":"` + night + `"}`)
	testkit.Members(t, "at night", got.body, map[string]any{
		"phone_e164": "+493012345678", "at": day.Add(3 * time.Hour).Format("2006-01-02T15:04:05.000Z"), "result": "closed",
		"rule": "window", "code": "outside_calling_hours",
	})
	next, _ := got.body["next_opening"].(string)
	if opens, err := time.Parse(time.RFC3339, next); err != nil || !opens.After(day.Add(3*time.Hour)) {
		t.Fatalf("next_opening = %q (%v), want a time after %s", next, err, night)
	}
	again := ask(`{"to":"+493012345678","scheduled_for":"` + next + `"}`)
	testkit.Members(t, "at the next opening", again.body, map[string]any{
		"result": "open", "rule": nil, "code": nil, "message": nil, "next_opening": nil,
	})
	lines := gateLines(t, again.body)
	if !slices.Contains(lines, "calling_window passed: 09:00 in Berlin, window 09:00–20:00") {
		t.Errorf("gates = %v, want the local time of the opening", lines)
	}
	fields := map[string]bool{}
	for _, name := range strings.Fields("phone_e164 at result rule code message next_opening policy_version gates") {
		fields[name] = true
	}
	if !maps.Equal(keysOf(got.body), fields) {
		t.Errorf("fields = %v, want %v", keysOf(got.body), fields)
	}
	r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+493012345678"}`)
	testkit.Members(t, "opted out", ask(`{"to":"+493012345678","scheduled_for":"`+night+`"}`).body, map[string]any{
		"result": "closed", "rule": "dnd", "code": "recipient_dnd", "next_opening": nil,
	})
	testkit.Members(t, "a premium number", ask(`{"to":"+19005551234"}`).body, map[string]any{
		"result": "closed", "rule": "destination", "code": "destination_not_allowed", "next_opening": nil,
	})
	caller := serviceauth.Caller{WorkspaceID: r.workspace, RequestID: uuid.New(), Access: serviceauth.Read,
		Destinations: &[]string{"+44"}}
	outside := r.send(t, caller, http.MethodPost, "/v1/decisions/preview", `{"to":"+493012345678"}`)
	testkit.Members(t, "outside of the destinations", outside.body, map[string]any{
		"result": "closed", "rule": "destination", "code": "destination_not_allowed", "next_opening": nil,
	})
}

func TestPreviewDecision_RefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	tests := []struct{ name, body, code, field string }{
		{name: "no number", body: `{}`, code: "validation_error", field: "to"},
		{name: "a null number", body: `{"to":null}`, code: "validation_error", field: "to"},
		{name: "a number that is no string", body: `{"to":14155552671}`, code: "validation_error", field: "to"},
		{name: "a malformed number", body: `{"to":"14155552671"}`, code: "invalid_phone", field: "to"},
		{name: "a time without an offset", body: `{"to":"+14155552671","scheduled_for":"2026-06-04T09:00:00"}`,
			code: "validation_error", field: "scheduled_for"},
		{name: "a time in two years", body: `{"to":"+14155552671","scheduled_for":"` +
			time.Now().AddDate(2, 0, 0).UTC().Format(time.RFC3339) + `"}`, code: "validation_error", field: "scheduled_for"},
		{name: "a time a month ago", body: `{"to":"+14155552671","scheduled_for":"` +
			time.Now().AddDate(0, -1, 0).UTC().Format(time.RFC3339) + `"}`, code: "validation_error", field: "scheduled_for"},
		{name: "a wrong number and a wrong time", body: `{"to":"1","scheduled_for":7}`, code: "validation_error",
			field: "scheduled_for"},
		{name: "not JSON", body: `{`, code: "validation_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := r.customer(t, http.MethodPost, "/v1/decisions/preview", tt.body)
			r.checkResponse(t, got, http.StatusUnprocessableEntity, tt.code)
			if !strings.HasPrefix(got.message(), tt.field) {
				t.Errorf("message = %q, want it to begin with %q", got.message(), tt.field)
			}
		})
	}
	past := r.customer(t, http.MethodPost, "/v1/decisions/preview", `{"to":"+14155552671","scheduled_for":"`+
		time.Now().AddDate(0, 0, -1).UTC().Format(time.RFC3339)+`"}`)
	r.checkResponse(t, past, http.StatusOK, "")
	if at, _ := past.body["at"].(string); at < time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) {
		t.Errorf("at = %s, want the current time for yesterday", at)
	}
}
