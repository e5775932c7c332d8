package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/gateway/internal/proxy"
)

func TestAdmin_AcceptsOnlyOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	for name, bearer := range map[string]string{"no token": "", "a customer's key": key,
		"an unknown token": "a-token-of-ada-0002"} {
		for _, path := range []string{"/admin/v1/workspaces", "/admin/v1/audit", "/admin/v1/nothing"} {
			if got := send(t, "GET", r.admin.URL+path, bearer, "", nil); got.status != 401 {
				t.Errorf("%s at %s: got.status = %v, want 401; got.body = %s", name, path, got.status, got.body)
			} else if got.code() != "invalid_api_key" {
				t.Errorf(`%s at %s: got.code() = %q, want "invalid_api_key"; got.body = %s`, name, path, got.code(), got.body)
			}
		}
	}
	if got := r.operator("GET", "/admin/v1/nothing", ""); got.status != 404 {
		t.Errorf("unknown route: got.status = %v, want 404; got.body = %s", got.status, got.body)
	} else if got.code() != "not_found" {
		t.Errorf(`unknown route: got.code() = %q, want "not_found"; got.body = %s`, got.code(), got.body)
	}
	if got := r.operator("PUT", "/admin/v1/workspaces", ""); got.status != 405 {
		t.Errorf("wrong method: got.status = %v, want 405; got.body = %s", got.status, got.body)
	} else if got.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf(`wrong method: got.header.Get("Allow") = %q, want "GET, HEAD, POST"; got.body = %s`,
			got.header.Get("Allow"), got.body)
	}
	if got := send(t, "GET", r.public.URL+"/admin/v1/workspaces", operatorToken, "", nil); got.status != 401 {
		t.Errorf("the admin side on the public address = %d, want 401", got.status)
	}
}

func TestAdmin_WorkspaceIsCreatedAndChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	policy := `{"window":{"start":"00:00","end":"24:00"},"timezone":"recipient"}`
	made := r.operator("POST", "/admin/v1/workspaces", `{"name":"Acme","plan":"starter","currency":"EUR","calling_policy":`+policy+
		`,"features":{"webhooks":true},"destinations":["+1","+4420"],"max_live_calls":7,"retention":{"transcripts_days":7},
		"unknown":1,"inbound":{"per_minute":"0.020","max_concurrent":5}}`)
	var got map[string]any
	if err := json.Unmarshal([]byte(made.body), &got); err != nil {
		t.Fatalf("POST: json.Unmarshal: %v", err)
	} else if made.status != 201 {
		t.Fatalf("POST: made.status = %v, want 201; made.body = %s", made.status, made.body)
	}
	id := made.member("id")
	want := map[string]any{"id": id, "name": "Acme", "plan": "starter", "currency": "EUR", "status": "active",
		"mode": "live", "rate_limit_per_minute": nil,
		"max_live_calls": 7.0, "calls_per_second": 50.0, "destinations": []any{"+1", "+4420"}, "features": map[string]any{"webhooks": true},
		"retention": map[string]any{"transcripts_days": 7.0},
		"inbound": map[string]any{"per_minute": "0.02", "increment_seconds": 1.0, "max_concurrent": 5.0,
			"max_call_seconds": 3600.0},
		"calling_policy": map[string]any{"window": map[string]any{"start": "00:00", "end": "24:00"}, "timezone": "recipient"},
		"created_at":     got["created_at"], "updated_at": got["updated_at"]}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("POST = %v\nwant  %v", got, want)
	}
	patched := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"features":{"api":true},"calling_policy":null,
		"max_live_calls":null,"destinations":[],"inbound":{"max_concurrent":null,"max_call_seconds":60}}`)
	if patched.status != 200 {
		t.Fatalf("PATCH = %d %s", patched.status, patched.body)
	}
	_ = json.Unmarshal([]byte(patched.body), &got)
	if fmt.Sprint(got["features"]) != "map[api:true webhooks:true]" {
		t.Errorf("PATCH: fmt.Sprint(got[\"features\"]) = %q, want \"map[api:true webhooks:true]\"",
			fmt.Sprint(got["features"]))
	}
	if got["calling_policy"] != nil {
		t.Errorf("PATCH: calling_policy = %v, want nil", got["calling_policy"])
	}
	if got["max_live_calls"] != 500.0 {
		t.Errorf("PATCH: max_live_calls = %v, want 500.0", got["max_live_calls"])
	}
	const inbound = "map[increment_seconds:1 max_call_seconds:60 max_concurrent:50 per_minute:0.02]"
	if fmt.Sprint(got["inbound"]) != inbound {
		t.Errorf("PATCH: inbound = %v, want %s", got["inbound"], inbound)
	}
	if read := r.operator("GET", "/admin/v1/workspaces/"+id, ""); read.body != patched.body {
		t.Errorf("GET = %s, want %s", read.body, patched.body)
	}
	r.wantEvents(id)
	r.mustHaveAudited(id)
}

func (r *rig) wantEvents(id string) {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), `SELECT payload FROM outbox WHERE topic = 'workspaces.v1' ORDER BY id`)
	if err != nil {
		r.t.Fatal(err)
	}
	var facts []*eventv1.WorkspaceEvent
	for rows.Next() {
		var payload []byte
		var fact eventv1.WorkspaceEvent
		if err := rows.Scan(&payload); err != nil {
			r.t.Fatal(err)
		}
		if err := proto.Unmarshal(payload, &fact); err != nil {
			r.t.Fatal(err)
		}
		facts = append(facts, &fact)
	}
	if len(facts) != 2 {
		r.t.Fatalf("facts: length of facts = %v, want 2", len(facts))
	}
	if facts[0].Version != 1 {
		r.t.Fatalf("facts[0].Version = %v, want 1", facts[0].Version)
	}
	if facts[1].Version != 2 {
		r.t.Fatalf("facts[1].Version = %v, want 2", facts[1].Version)
	}
	if facts[0].WorkspaceId != id {
		r.t.Fatalf("facts[0].WorkspaceId = %v, want %v", facts[0].WorkspaceId, id)
	}
	first, second := facts[0].GetWorkspace(), facts[1].GetWorkspace()
	if first.ApiEnabled {
		r.t.Errorf("first fact: first.ApiEnabled = true, want false")
	}
	if !first.WebhooksEnabled {
		r.t.Errorf("first fact: first.WebhooksEnabled = false, want true")
	}
	if first.MaxLiveCalls != 7 {
		r.t.Errorf("first fact: first.MaxLiveCalls = %v, want 7", first.MaxLiveCalls)
	}
	if len(first.Destinations) != 2 {
		r.t.Fatalf("first fact: length of first.Destinations = %v, want 2", len(first.Destinations))
	}
	if first.Currency != "EUR" {
		r.t.Errorf("first fact: first.Currency = %q, want \"EUR\"", first.Currency)
	}
	if !second.ApiEnabled {
		r.t.Errorf("second fact: second.ApiEnabled = false, want true")
	}
	if second.MaxLiveCalls != 500 {
		r.t.Errorf("second fact: second.MaxLiveCalls = %v, want 500", second.MaxLiveCalls)
	}
	if len(second.Destinations) != 0 {
		r.t.Fatalf("second fact: length of second.Destinations = %v, want 0", len(second.Destinations))
	}
	if second.CallsPerSecond != 50 {
		r.t.Errorf("second fact: second.CallsPerSecond = %v, want 50", second.CallsPerSecond)
	}
	if second.Status != "active" {
		r.t.Errorf("second fact: second.Status = %q, want \"active\"", second.Status)
	}
}

func (r *rig) mustHaveAudited(id string) {
	r.t.Helper()
	entries := r.audit(id)
	if len(entries) != 2 {
		r.t.Fatalf("audit = %+v, want two rows", entries)
	}
	patch, post := entries[0], entries[1]
	if post.Method != "POST" {
		r.t.Errorf("audit of POST: post.Method = %q, want \"POST\"", post.Method)
	}
	if post.Route != "/admin/v1/workspaces" {
		r.t.Errorf("audit of POST: post.Route = %q, want \"/admin/v1/workspaces\"", post.Route)
	}
	if post.Operator != "ada" {
		r.t.Errorf("audit of POST: post.Operator = %q, want \"ada\"", post.Operator)
	}
	if *post.Status != 201 {
		r.t.Errorf("audit of POST: post.Status = %v, want 201", *post.Status)
	}
	if post.Outcome != "done" {
		r.t.Errorf("audit of POST: post.Outcome = %q, want \"done\"", post.Outcome)
	}
	if post.Before != nil {
		r.t.Errorf("audit of POST: post.Before = %v, want nil", post.Before)
	}
	if post.After["name"] != "Acme" {
		r.t.Errorf("audit of POST: name = %q, want \"Acme\"", post.After["name"])
	}
	if patch.Route != "/admin/v1/workspaces/{id}" {
		r.t.Errorf("audit of PATCH: patch.Route = %q, want \"/admin/v1/workspaces/{id}\"", patch.Route)
	}
	if patch.Path != "/admin/v1/workspaces/"+id {
		r.t.Errorf("audit of PATCH: patch.Path = %q, want \"/admin/v1/workspaces/\"+id", patch.Path)
	}
	if patch.Before["max_live_calls"] != 7.0 {
		r.t.Errorf("audit of PATCH: max_live_calls = %v, want 7.0", patch.Before["max_live_calls"])
	}
	if patch.After["max_live_calls"] != 500.0 {
		r.t.Errorf("audit of PATCH: max_live_calls = %v, want 500.0", patch.After["max_live_calls"])
	}
	if n := r.count("audit_intents"); n != 0 {
		r.t.Errorf("%d pending entries are left", n)
	}
	if one := r.operator("GET", "/admin/v1/audit/"+patch.ID.String(), ""); one.status != 200 {
		r.t.Errorf("GET of one row: one.status = %v, want 200; one.body = %s", one.status, one.body)
	} else if got := one.member("path"); got != patch.Path {
		r.t.Errorf(`GET of one row: one.member("path") = %v, want %v; one.body = %s`, got, patch.Path, one.body)
	}
	for _, none := range []string{"7", id} {
		if one := r.operator("GET", "/admin/v1/audit/"+none, ""); one.status != 404 {
			r.t.Errorf("GET of no row: one.status = %v, want 404", one.status)
		} else if !strings.Contains(one.body, `"There is no such audit entry."`) {
			r.t.Errorf("GET of no row: one.body = %q, want it to contain %q", one.body, `"There is no such audit entry."`)
		}
	}
}

func TestAdmin_InvalidWorkspaceErrorNamesTheField(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	good := `{"name":"Acme","plan":"growth","currency":"USD"`
	for _, row := range []struct{ method, body, field string }{
		{"POST", `{"plan":"growth","currency":"USD"}`, "name"},
		{"POST", `{"name":"Acme","currency":"USD"}`, "plan"},
		{"POST", `{"name":"Acme","plan":"growth"}`, "currency"},
		{"POST", `{"name":" ","plan":"growth","currency":"USD"}`, "name"},
		{"POST", `{"name":"Acme","plan":"gold","currency":"USD"}`, "plan"},
		{"POST", `{"name":"Acme","plan":"growth","currency":"usd"}`, "currency"},
		{"POST", good + `,"calling_policy":"always"}`, "calling_policy"},
		{"POST", good + `,"features":{"api":"yes"}}`, "features.api"},
		{"POST", good + `,"features":[]}`, "features"},
		{"POST", good + `,"rate_limit_per_minute":0}`, "rate_limit_per_minute"},
		{"POST", good + `,"max_live_calls":1.5}`, "max_live_calls"},
		{"POST", good + `,"calls_per_second":-1}`, "calls_per_second"},
		{"POST", good + `,"destinations":["+1","44"]}`, "destinations[1]"},
		{"POST", good + `,"retention":{"calls_days":59}}`, "retention.calls_days"},
		{"POST", good + `,"retention":{"transcripts_days":3654}}`, "retention.transcripts_days"},
		{"POST", good + `,"retention":{"webhooks_days":0}}`, "retention.webhooks_days"},
		{"POST", good + `,"inbound":[]}`, "inbound"},
		{"POST", good + `,"inbound":{"per_minute":0.05}}`, "inbound.per_minute"},
		{"POST", good + `,"inbound":{"per_minute":"-0.01"}}`, "inbound.per_minute"},
		{"POST", good + `,"inbound":{"per_minute":"1000.000001"}}`, "inbound.per_minute"},
		{"POST", good + `,"inbound":{"per_minute":"0.0000001"}}`, "inbound.per_minute"},
		{"POST", good + `,"inbound":{"increment_seconds":0}}`, "inbound.increment_seconds"},
		{"POST", good + `,"inbound":{"increment_seconds":3601}}`, "inbound.increment_seconds"},
		{"POST", good + `,"inbound":{"max_concurrent":0}}`, "inbound.max_concurrent"},
		{"POST", good + `,"inbound":{"max_call_seconds":14401}}`, "inbound.max_call_seconds"},
		{"POST", good + `,"name":"a\u0000b"}`, "name"},
		{"POST", `[]`, "body"},
		{"PATCH", `{"currency":"EUR"}`, "currency"},
		{"PATCH", `{"status":"closed"}`, "status"},
		{"PATCH", `{"status":null}`, "status"},
		{"PATCH", `{"name":null}`, "name"},
		{"PATCH", `{"plan":5}`, "plan"},
	} {
		path := "/admin/v1/workspaces"
		if row.method == "PATCH" {
			path += "/" + id
		}
		got := r.operator(row.method, path, row.body)
		if got.status != 422 {
			t.Errorf("%s %s: got.status = %v, want 422", row.method, row.body, got.status)
		}
		if got.code() != "validation_error" {
			t.Errorf("%s %s: got.code() = %q, want \"validation_error\"", row.method, row.body, got.code())
		}
		if !strings.Contains(got.body, `"message":"`+row.field+` `) {
			t.Errorf("%s %s: got.body = %q, want it to contain %q", row.method, row.body, got.body, `"message":"`+row.field+` `)
		}
	}
	if n := r.count("workspaces"); n != 1 {
		t.Errorf("%d workspaces, want the one", n)
	}
	if n := len(r.audit(id)); n != 1 {
		t.Errorf("%d audit rows, want the creation alone", n)
	}
}

func TestAdmin_TrunkChangesAreAuditedWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		if h.owner != proxy.Dialer {
			return false
		}
		w.WriteHeader(201)
		_, _ = w.Write([]byte(`{"id":"x","has_password":true}`))
		return true
	})
	if got := r.operator("POST", "/admin/v1/trunks", `{"name":"Main","host":"192.0.2.1","username":"u","password":"s3cret"}`); got.status != 201 {
		t.Fatalf("POST = %d %s", got.status, got.body)
	}
	var id *string
	var stored string
	err := r.pool.QueryRow(t.Context(),
		"SELECT workspace_id::text, a::text FROM audit_entries a WHERE route = '/admin/v1/trunks'").Scan(&id, &stored)
	if err != nil {
		t.Fatalf("audit of %v: %v", id, err)
	}
	if id != nil {
		t.Errorf("audit of %v: id = %v, want nil", id, id)
	}
	if !strings.Contains(stored, "has_password") {
		t.Errorf("audit of %v: stored = %q, want it to contain %q", id, stored, "has_password")
	}
	if strings.Contains(stored, "s3cret") {
		t.Errorf("audit of %v: stored = %q, want it not to contain %q", id, stored, "s3cret")
	}
	for _, path := range []string{"/admin/v1/trunk", "/admin/v1/trunks/a//b", "/admin/v1/numbers"} {
		if got := r.operator("GET", path, ""); got.status != 404 {
			t.Errorf("GET %s = %d", path, got.status)
		}
	}
	if asked := r.requestsTo(proxy.Dialer); len(asked) != 1 {
		t.Errorf("the dialer received %d requests", len(asked))
	}
}

func TestAdmin_KeySecretIsShownOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	key, keyID := r.key(id, "read")
	if !strings.HasPrefix(key, "rf_live_") {
		t.Errorf(`key = %q, want it to begin with "rf_live_"`, key)
	} else if len(key) < 60 {
		t.Errorf("key: length of key = %d, want at least 60", len(key))
	}
	path := "/admin/v1/workspaces/" + id + "/api-keys"
	for _, body := range []string{r.operator("GET", path, "").body, r.operator("GET", path+"/"+keyID, "").body,
		r.operator("GET", "/admin/v1/audit", "").body} {
		if strings.Contains(body, key) {
			t.Errorf("output = %q, want it without %q", body, key)
		} else if !strings.Contains(body, key[:16]) {
			t.Errorf("output = %q, want it to contain %q", body, key[:16])
		}
	}
	var stored string
	if err := r.pool.QueryRow(t.Context(), "SELECT string_agg(k::text, '') || (SELECT string_agg(a::text, '') FROM audit_entries a) FROM api_keys k").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stored, key[17:]) {
		t.Error("the database contains the key")
	}
	for body, field := range map[string]string{`{"access":"read"}`: "name", `{"name":"x"}`: "access", `{"name":"x","access":"admin"}`: "access"} {
		if got := r.operator("POST", path, body); got.status != 422 {
			t.Errorf("operator: got.status = %v, want 422", got.status)
		} else if !strings.Contains(got.body, `"message":"`+field+" ") {
			t.Errorf("operator: got.body = %q, want it to contain %q", got.body, `"message":"`+field+" ")
		}
	}
	first := r.operator("DELETE", path+"/"+keyID, "")
	again := r.operator("DELETE", path+"/"+keyID, "")
	if first.status != 200 {
		t.Errorf("DELETE twice: first.status = %v, want 200", first.status)
	} else if again.body != first.body {
		t.Errorf("DELETE twice: again.body = %v, want %v", again.body, first.body)
	}
	entries := r.audit(id)
	if len(entries) != 3 {
		t.Fatalf("audit: length of entries = %v, want 3", len(entries))
	}
	if entries[0].Method != "DELETE" {
		t.Errorf("audit: entries[0].Method = %q, want \"DELETE\"", entries[0].Method)
	}
	if entries[0].Before["revoked_at"] != nil {
		t.Errorf("audit: entries[0].Before[\"revoked_at\"] = %v, want nil", entries[0].Before["revoked_at"])
	}
	if entries[0].After["revoked_at"] == nil {
		t.Errorf("audit: entries[0].After[\"revoked_at\"] = nil, want a value")
	}
	other := r.workspace("")
	for _, strange := range []string{"/admin/v1/workspaces/" + other + "/api-keys/" + keyID, path + "/" + anID, path + "/1",
		"/admin/v1/workspaces/" + anID + "/api-keys", "/admin/v1/workspaces/1"} {
		if got := r.operator("GET", strange, ""); got.status != 404 {
			t.Errorf("GET %s: got.status = %v, want 404; got.body = %s", strange, got.status, got.body)
		} else if got.code() != "not_found" {
			t.Errorf(`GET %s: got.code() = %q, want "not_found"; got.body = %s`, strange, got.code(), got.body)
		}
	}
}

func TestAdmin_PagedListReturnsEachItemOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var ids []string
	for range 3 {
		ids = append(ids, r.workspace(""))
	}
	var page struct {
		Data    []struct{ ID string }
		HasMore bool `json:"has_more"`
	}
	first := r.operator("GET", "/admin/v1/workspaces?limit=2", "")
	if err := json.Unmarshal([]byte(first.body), &page); err != nil {
		t.Fatalf("first page: %v", err)
	}
	if len(page.Data) != 2 {
		t.Fatalf("first page: length of page.Data = %v, want 2", len(page.Data))
	}
	if !page.HasMore {
		t.Errorf("first page: page.HasMore = false, want true")
	}
	if page.Data[0].ID != ids[2] {
		t.Errorf("first page: page.Data[0].ID = %v, want %v", page.Data[0].ID, ids[2])
	}
	rest := r.operator("GET", "/admin/v1/workspaces?limit=2&starting_after="+page.Data[1].ID, "")
	if err := json.Unmarshal([]byte(rest.body), &page); err != nil {
		t.Fatalf("second page: %v", err)
	}
	if len(page.Data) != 1 {
		t.Fatalf("second page: length of page.Data = %v, want 1", len(page.Data))
	}
	if page.HasMore {
		t.Errorf("second page: page.HasMore = true, want false")
	}
	if page.Data[0].ID != ids[0] {
		t.Errorf("second page: page.Data[0].ID = %v, want %v", page.Data[0].ID, ids[0])
	}
	for _, path := range []string{"/admin/v1/workspaces", "/admin/v1/audit", "/admin/v1/workspaces/" + ids[0] + "/api-keys"} {
		if got := r.operator("GET", path+"?starting_after="+uuid.NewString(), ""); got.status != 422 {
			t.Errorf("%s with an unknown cursor: got.status = %v, want 422", path, got.status)
		} else if !strings.Contains(got.body, "starting_after") {
			t.Errorf(`%s with an unknown cursor: got.body = %q, want it to contain "starting_after"`, path, got.body)
		}
	}
}

func TestAudit_EntriesCannotBeChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.workspace("")
	for _, statement := range []string{"UPDATE audit_entries SET operator = 'eve'", "DELETE FROM audit_entries",
		"TRUNCATE audit_entries"} {
		if _, err := r.pool.Exec(t.Context(), statement); err == nil {
			t.Errorf("%s: Exec = nil, want an error", statement)
		} else if !strings.Contains(err.Error(), "permission denied") {
			t.Errorf(`%s: err = %q, want it to contain "permission denied"`, statement, err.Error())
		}
	}
}
