package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/route"
	"ringfence.dev/services/gateway/internal/sweeping"
)

func TestAdmin_ProxiedChangeIsAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	base := "/admin/v1/workspaces/" + id
	for _, row := range []struct{ method, path, owner, template string }{
		{"POST", "/agents", route.Calls, "/agents"},
		{"PATCH", "/agents/" + anID, route.Calls, "/agents/{agent_id}"},
		{"POST", "/numbers", route.Dialer, "/numbers"},
		{"POST", "/wallet/transactions", route.Wallet, "/wallet/transactions"},
		{"PUT", "/rates", route.Wallet, "/rates"},
		{"PUT", "/contacts/+15550100/consent", route.Contacts, "/contacts/{phone_e164}/consent"},
		{"DELETE", "/contacts/+15550100", route.Contacts, "/contacts/{phone_e164}"},
		{"PATCH", "/webhook-subscriptions/" + anID, route.Webhooks, "/webhook-subscriptions/{subscription_id}"},
		{"POST", "/webhook-subscriptions/" + anID + "/deliveries/replay", route.Webhooks, "/webhook-subscriptions/*"},
	} {
		r.answers(func(w http.ResponseWriter, h heard) bool {
			w.Header().Set("Content-Type", "application/json")
			if h.method == "GET" {
				_, _ = w.Write([]byte(`{"name":"before","signing_secret":"whsec_old"}`))
				return true
			}
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(201)
			_, _ = w.Write([]byte(`{"name":"after","amount":1.000000000000000001,"signing_secret":"whsec_new","nested":[{"api_key":"k"}]}`))
			return true
		})
		got := r.operator(row.method, base+row.path, `{"a":1}`)
		if got.status != 201 || !strings.Contains(got.body, "whsec_new") || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s = %d %s", row.method, row.path, got.status, got.body)
		}
		heard := r.asked(row.owner)
		last := heard[len(heard)-1]
		if last.method != row.method || last.uri != base+row.path || last.body != `{"a":1}` || last.caller.Operator != "ada" || last.caller.WorkspaceID.String() != id {
			t.Errorf("%s %s arrived as %+v", row.method, row.path, last)
		}
		newest := r.audit(id)[0]
		if newest.Route != "/admin/v1/workspaces/{id}"+row.template || newest.Path != base+row.path || newest.Method != row.method || *newest.Status != 201 || newest.After["name"] != "after" {
			t.Errorf("%s %s: audit = %+v", row.method, row.path, newest)
		}
		if hasBefore := newest.Before["name"] == "before"; hasBefore != (row.method != "POST" && row.method != "DELETE") {
			t.Errorf("%s %s: before = %v", row.method, row.path, newest.Before)
		}
	}
	if told := r.operator("GET", "/admin/v1/audit?limit=100", "").body; strings.Contains(told, "whsec_") || strings.Contains(told, `"k"`) || !strings.Contains(told, "1.000000000000000001") {
		t.Errorf("the audit holds a secret, or changed an amount: %s", told)
	}
	if n := r.count("audit_intents"); n != 0 {
		t.Errorf("%d intents are left", n)
	}
}

func TestAdmin_ProxiedReadsAndRefusalsLeaveNoAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	base := "/admin/v1/workspaces/" + id
	if got := r.operator("GET", base+"/consent-records?phone=%2B15550100&limit=3", ""); got.status != 200 {
		t.Errorf("GET = %d %s", got.status, got.body)
	}
	if heard := r.asked(route.Contacts); heard[len(heard)-1].uri != base+"/consent-records?phone=%2B15550100&limit=3" {
		t.Errorf("it arrived as %s", heard[len(heard)-1].uri)
	}
	r.answers(func(w http.ResponseWriter, _ heard) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(409)
		_, _ = w.Write([]byte(`{"error":{"code":"insufficient_credits","message":"No."}}`))
		return true
	})
	if got := r.operator("POST", base+"/wallet/transactions", "{}"); got.status != 409 || got.code() != "insufficient_credits" {
		t.Errorf("POST = %d %s, want the owner's 409", got.status, got.body)
	}
	if n := len(r.audit(id)); n != 1 || r.count("audit_intents") != 0 {
		t.Errorf("%d audit rows and %d intents, want the creation alone", n, r.count("audit_intents"))
	}
	before := len(r.asked(route.Calls))
	for _, path := range []string{"/admin/v1/workspaces/" + anID + "/agents", "/admin/v1/workspaces/x/agents", base + "/nothing"} {
		if got := r.operator("POST", path, "{}"); got.status != 404 || got.code() != "not_found" {
			t.Errorf("POST %s = %d %s, want 404", path, got.status, got.body)
		}
	}
	if len(r.asked(route.Calls)) != before {
		t.Error("an unknown workspace reached an owner")
	}
}

func TestAdmin_WhatNobodySawEndsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	r.answers(func(http.ResponseWriter, heard) bool { panic(http.ErrAbortHandler) })
	if got := r.operator("POST", "/admin/v1/workspaces/"+id+"/agents", `{"name":"x"}`); got.status != 503 {
		t.Errorf("POST = %d %s, want 503", got.status, got.body)
	}
	if newest := r.audit(id)[0]; newest.Outcome != "unknown" || newest.Status != nil || newest.Method != "POST" {
		t.Errorf("audit = %+v, want unknown", newest)
	}

	// A gateway that dies between intent and end leaves the intent; the sweep of any replica writes the row, once.
	workspaceID := uuid.MustParse(id)
	intent := audit.Intent{ID: uuid.Must(uuid.NewV7()), Operator: "ada", WorkspaceID: &workspaceID, RequestID: uuid.Must(uuid.NewV7()),
		Method: "PUT", Route: "/admin/v1/workspaces/{id}/rates", Path: "/x", Before: json.RawMessage(`{}`)}
	if err := r.store.Intend(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
	sweeper := sweeping.New(r.store)
	if err := sweeper.Sweep(t.Context(), time.Hour); err != nil || r.count("audit_intents") != 1 {
		t.Fatalf("a young intent was swept: %v", err)
	}
	for range 2 {
		if err := sweeper.Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.Conclude(t.Context(), audit.Entry{Intent: intent, Outcome: audit.Unknown}); err != nil {
		t.Errorf("Conclude after the sweep = %v, want nothing", err)
	}
	entries := r.audit(id)
	if entries[0].ID != intent.ID || entries[0].Outcome != "unknown" || len(entries) != 3 || r.count("audit_intents") != 0 {
		t.Errorf("audit = %+v", entries)
	}
}

// JSON allows numbers that jsonb cannot hold; the audit of such a change is not lost.
func TestAdmin_NumberBeyondTheDatabaseIsAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	base := "/admin/v1/workspaces/" + r.workspace("")
	r.answers(func(w http.ResponseWriter, _ heard) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"temperature":1e400000}`))
		return true
	})
	if got := r.operator("PATCH", base+"/agents/"+anID, `{"temperature":1e400000}`); got.status != 200 {
		t.Fatalf("PATCH = %d %s", got.status, got.body)
	}
	if told := r.operator("GET", "/admin/v1/audit", "").body; strings.Count(told, "1e400000") != 2 {
		t.Errorf("audit = %s, want the number before and after", told)
	}
}

// A top-up whose reference was used before books nothing, also if the amount differs. The owner says so in a header.
func TestAdmin_ChangeThatChangedNothingIsAuditedAsUnchanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	r.answers(func(w http.ResponseWriter, _ heard) bool {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Idempotency-Replayed", "true")
		_, _ = w.Write([]byte(`{"type":"top_up","amount":"25","reference":"invoice-1042"}`))
		return true
	})
	got := r.operator("POST", "/admin/v1/workspaces/"+id+"/wallet/transactions", `{"type":"top_up","amount":"30","reference":"invoice-1042"}`)
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
	if shown := r.operator("GET", "/admin/v1/audit/"+newest.ID.String(), ""); !strings.Contains(shown.body, `"outcome":"unchanged"`) {
		t.Errorf("audit entry = %s, want outcome unchanged", shown.body)
	}
}
