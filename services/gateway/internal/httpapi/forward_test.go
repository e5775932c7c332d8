package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/proxy"
)

func TestAdmin_ProxiedChangeIsAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	base := "/admin/v1/workspaces/" + id
	for _, row := range []struct{ method, path, owner, template string }{
		{"POST", "/agents", proxy.Calls, "/agents"},
		{"PATCH", "/agents/" + anID, proxy.Calls, "/agents/{agent_id}"},
		{"POST", "/numbers", proxy.Dialer, "/numbers"},
		{"POST", "/wallet/transactions", proxy.Wallet, "/wallet/transactions"},
		{"PUT", "/rates", proxy.Wallet, "/rates"},
		{"PUT", "/contacts/+15550100/consent", proxy.Contacts, "/contacts/{phone_e164}/consent"},
		{"DELETE", "/contacts/+15550100", proxy.Contacts, "/contacts/{phone_e164}"},
		{"PATCH", "/webhook-subscriptions/" + anID, proxy.Webhooks, "/webhook-subscriptions/{subscription_id}"},
		{"POST", "/webhook-subscriptions/" + anID + "/deliveries/replay", proxy.Webhooks,
			"/webhook-subscriptions/{subscription_id}/deliveries/replay"},
	} {
		r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
			w.Header().Set("Content-Type", "application/json")
			if h.method == "GET" {
				_, _ = w.Write([]byte(`{"label":"before","signing_secret":"whsec_old"}`))
				return true
			}
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(201)
			_, _ = w.Write(
				[]byte(`{"label":"after","amount":1.000000000000000001,"signing_secret":"whsec_new","nested":[{"api_key":"k"}]}`),
			)
			return true
		})
		got := r.operator(row.method, base+row.path, `{"a":1}`)
		if got.status != 201 {
			t.Errorf("%s %s: got.status = %v, want 201", row.method, row.path, got.status)
		}
		if !strings.Contains(got.body, "whsec_new") {
			t.Errorf("%s %s: got.body = %q, want it to contain %q", row.method, row.path, got.body, "whsec_new")
		}
		if got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: Cache-Control = %q, want \"no-store\"", row.method, row.path, got.header.Get("Cache-Control"))
		}
		received := r.requestsTo(row.owner)
		last := received[len(received)-1]
		if last.method != row.method {
			t.Errorf("last.method = %v, want %v", last.method, row.method)
		}
		if last.uri != base+row.path {
			t.Errorf("last.uri = %v, want %v", last.uri, base+row.path)
		}
		if last.body != `{"a":1}` {
			t.Errorf("last.body = %q, want %q", last.body, `{"a":1}`)
		}
		if last.caller.Operator != "ada" {
			t.Errorf("last.caller.Operator = %q, want \"ada\"", last.caller.Operator)
		}
		if last.caller.WorkspaceID.String() != id {
			t.Errorf("last.caller.WorkspaceID.String() = %v, want %v", last.caller.WorkspaceID.String(), id)
		}
		newest := r.audit(id)[0]
		if newest.Route != "/admin/v1/workspaces/{id}"+row.template {
			t.Errorf("%s %s: newest.Route = %q, want \"/admin/v1/workspaces/{id}\"+row.template", row.method, row.path,
				newest.Route)
		}
		if newest.Path != base+row.path {
			t.Errorf("%s %s: newest.Path = %v, want %v", row.method, row.path, newest.Path, base+row.path)
		}
		if newest.Method != row.method {
			t.Errorf("%s %s: newest.Method = %v, want %v", row.method, row.path, newest.Method, row.method)
		}
		if *newest.Status != 201 {
			t.Errorf("%s %s: newest.Status = %v, want 201", row.method, row.path, *newest.Status)
		}
		if newest.After["label"] != "after" {
			t.Errorf("%s %s: label = %q, want \"after\"", row.method, row.path, newest.After["label"])
		}
		if hasBefore := newest.Before["label"] == "before"; hasBefore != (row.method != "POST" && row.method != "DELETE") {
			t.Errorf("%s %s: before = %v", row.method, row.path, newest.Before)
		}
	}
	audit := r.operator("GET", "/admin/v1/audit?limit=100", "").body
	if strings.Contains(audit, "whsec_") {
		t.Errorf("audit = %q, want it not to contain %q", audit, "whsec_")
	}
	if strings.Contains(audit, `"k"`) {
		t.Errorf("audit = %q, want it not to contain %q", audit, `"k"`)
	}
	if !strings.Contains(audit, "1.000000000000000001") {
		t.Errorf("audit = %q, want it to contain %q", audit, "1.000000000000000001")
	}
	if n := r.count("audit_intents"); n != 0 {
		t.Errorf("%d pending entries are left", n)
	}
}

func TestAdmin_ForwardedGETAndRefusedChangeAreNotAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	base := "/admin/v1/workspaces/" + id
	if got := r.operator("GET", base+"/consent-records?phone=%2B15550100&limit=3", ""); got.status != 200 {
		t.Errorf("GET = %d %s", got.status, got.body)
	}
	if received := r.requestsTo(proxy.Contacts); received[len(received)-1].uri != base+"/consent-records?phone=%2B15550100&limit=3" {
		t.Errorf("forwarded path = %s", received[len(received)-1].uri)
	}
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(409)
		_, _ = w.Write([]byte(`{"error":{"code":"insufficient_credits","message":"No."}}`))
		return true
	})
	if got := r.operator("POST", base+"/wallet/transactions", "{}"); got.status != 409 {
		t.Errorf("POST: got.status = %v, want 409; got.body = %s", got.status, got.body)
	} else if got.code() != "insufficient_credits" {
		t.Errorf(`POST: got.code() = %q, want "insufficient_credits"; got.body = %s`, got.code(), got.body)
	}
	if n := len(r.audit(id)); n != 1 {
		t.Errorf("n = %v, want 1", n)
	} else if got := r.count("audit_intents"); got != 0 {
		t.Errorf(`r.count("audit_intents") = %v, want 0`, got)
	}
	before := len(r.requestsTo(proxy.Calls))
	for _, path := range []string{"/admin/v1/workspaces/" + anID + "/agents", "/admin/v1/workspaces/x/agents", base + "/nothing"} {
		if got := r.operator("POST", path, "{}"); got.status != 404 {
			t.Errorf("POST %s: got.status = %v, want 404; got.body = %s", path, got.status, got.body)
		} else if got.code() != "not_found" {
			t.Errorf(`POST %s: got.code() = %q, want "not_found"; got.body = %s`, path, got.code(), got.body)
		}
	}
	if len(r.requestsTo(proxy.Calls)) != before {
		t.Error("an unknown workspace reached an owner")
	}
}

func TestAdmin_ChangeWithoutAResponseIsAuditedAsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	r.answers(func(http.ResponseWriter, receivedRequest) bool { panic(http.ErrAbortHandler) })
	if got := r.operator("POST", "/admin/v1/workspaces/"+id+"/agents", `{"name":"x"}`); got.status != 503 {
		t.Errorf("POST = %d %s, want 503", got.status, got.body)
	}
	newest := r.audit(id)[0]
	if newest.Outcome != "unknown" {
		t.Errorf("audit: newest.Outcome = %q, want \"unknown\"", newest.Outcome)
	}
	if newest.Status != nil {
		t.Errorf("audit: newest.Status = %v, want nil", newest.Status)
	}
	if newest.Method != "POST" {
		t.Errorf("audit: newest.Method = %q, want \"POST\"", newest.Method)
	}

	// A gateway that is killed during a change leaves a pending entry. The auth.ExpiryJob must write
	// one audit entry for this change.
	workspaceID := uuid.MustParse(id)
	pending := audit.PendingEntry{ID: uuid.Must(uuid.NewV7()), Operator: "ada",
		Actor:       audit.Actor{Type: audit.Operator, ID: "ada", Name: "ada"},
		WorkspaceID: &workspaceID, RequestID: uuid.Must(uuid.NewV7()),
		Method: "PUT", Route: "/admin/v1/workspaces/{id}/rates", Path: "/x", Before: json.RawMessage(`{}`)}
	if err := r.store.AddPending(t.Context(), pending); err != nil {
		t.Fatal(err)
	}
	job := auth.NewExpiryJob(r.store)
	if err := job.Once(t.Context(), time.Hour); err != nil {
		t.Fatalf("a new pending entry was deleted: Once: %v", err)
	} else if got := r.count("audit_intents"); got != 1 {
		t.Fatalf(`a new pending entry was deleted: r.count("audit_intents") = %v, want 1`, got)
	}
	for range 2 {
		if err := job.Once(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.Conclude(t.Context(), audit.Entry{PendingEntry: pending, Outcome: audit.Unknown}); err != nil {
		t.Errorf("Conclude after the job = %v, want nothing", err)
	}
	entries := r.audit(id)
	if entries[0].ID != pending.ID {
		t.Errorf("audit: entries[0].ID = %v, want %v", entries[0].ID, pending.ID)
	}
	if entries[0].Outcome != "unknown" {
		t.Errorf("audit: entries[0].Outcome = %q, want \"unknown\"", entries[0].Outcome)
	}
	if len(entries) != 3 {
		t.Fatalf("audit: length of entries = %v, want 3", len(entries))
	}
	if r.count("audit_intents") != 0 {
		t.Errorf("audit: r.count(\"audit_intents\") = %v, want 0", r.count("audit_intents"))
	}
}

// JSON permits numbers that the type jsonb of Postgres rejects. A change with such a number must
// still be audited.
func TestAdmin_ChangeThatPostgresCannotStoreAsJSONBIsAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	base := "/admin/v1/workspaces/" + r.workspace("")
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"temperature":1e400000}`))
		return true
	})
	if got := r.operator("PATCH", base+"/agents/"+anID, `{"temperature":1e400000}`); got.status != 200 {
		t.Fatalf("PATCH = %d %s", got.status, got.body)
	}
	if body := r.operator("GET", "/admin/v1/audit", "").body; strings.Count(body, "1e400000") != 2 {
		t.Errorf("audit = %s, want the number before and after", body)
	}
}

// A top-up whose reference was used before changes nothing, even if its amount differs.
// billing-wallet reports such a top-up with the header Idempotency-Replayed.
func TestAdmin_RepeatedChangeIsAuditedAsUnchanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Idempotency-Replayed", "true")
		_, _ = w.Write([]byte(`{"type":"top_up","amount":"25","reference":"invoice-1042"}`))
		return true
	})
	got := r.operator("POST", "/admin/v1/workspaces/"+id+"/wallet/transactions",
		`{"type":"top_up","amount":"30","reference":"invoice-1042"}`)
	if got.status != 200 {
		t.Errorf("status = %d, want 200; body: %s", got.status, got.body)
	}
	if header := got.header.Get("Idempotency-Replayed"); header != "true" {
		t.Errorf("Idempotency-Replayed = %q, want true", header)
	}
	newest := r.audit(id)[0]
	if newest.Outcome != string(audit.Unchanged) {
		t.Errorf("outcome in the list = %q, want %q", newest.Outcome, audit.Unchanged)
	}
	shown := r.operator("GET", "/admin/v1/audit/"+newest.ID.String(), "")
	if !strings.Contains(shown.body, `"outcome":"unchanged"`) {
		t.Errorf("audit entry = %s, want outcome unchanged", shown.body)
	}
}

func TestAdmin_ETagAndIfMatchOfAgentsAreForwarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/admin/v1/workspaces/" + r.workspace("") + "/agents/" + anID
	r.answers(func(w http.ResponseWriter, request receivedRequest) bool {
		if request.method == http.MethodGet {
			w.Header().Set("ETag", `"3"`)
			_, _ = w.Write([]byte("{}"))
			return true
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = w.Write([]byte(`{"error":{"code":"precondition_failed","message":"Changed."}}`))
		return true
	})
	if got := r.operator("GET", path, "").header.Get("ETag"); got != `"3"` {
		t.Errorf("ETag = %s, want \"3\"", got)
	}
	got := send(t, "PATCH", r.admin.URL+path, operatorToken, `{"name":"x"}`, http.Header{"If-Match": {`"2"`}})
	wantAnswer(t, "an old version", got, http.StatusPreconditionFailed, "precondition_failed")
	send(t, "PATCH", r.admin.URL+path, operatorToken, `{"name":"x"}`, http.Header{"If-Match": {`"2"`, `"3"`}})
	var lines [][]string
	for _, request := range r.requestsTo(proxy.Calls) {
		if request.method == http.MethodPatch {
			lines = append(lines, request.header.Values("If-Match"))
		}
	}
	if diff := cmp.Diff([][]string{{`"2"`}, {`"2"`, `"3"`}}, lines); diff != "" {
		t.Errorf("lines of If-Match at the owner (-want +got):\n%s", diff)
	}
	if n := r.count("audit_intents"); n != 0 {
		t.Errorf("%d pending entries are left", n)
	}
}
