package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
)

const parkedPath = "/admin/v1/parked-records"

func TestParkedRecords_ListCombinesAllServices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		at := map[string]string{proxy.Calls: "2026-06-04T09:00:00.000Z", proxy.Dialer: "2026-06-04T10:00:00.000Z"}[h.owner]
		switch {
		case h.owner == proxy.Wallet: // billing-wallet does not respond
			panic(http.ErrAbortHandler)
		case h.owner == proxy.Contacts: // contacts-compliance is an earlier version without the route
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":{"code":"not_found","message":"No such route."}}`)
		case at == "":
			_, _ = io.WriteString(w, `{"data":[],"has_more":false}`)
		default:
			_, _ = io.WriteString(w, `{"data":[{"topic":"t","event_id":"`+anID+`","key":"k","error":"newer","parked_at":"`+at+
				`","service":"forged"}],"has_more":true}`)
		}
		return true
	})
	got := r.operator("GET", parkedPath, "")
	if got.status != http.StatusOK {
		t.Fatalf("GET = %d %s, want 200", got.status, got.body)
	}
	record := func(service, at string) any {
		return map[string]any{"service": service, "topic": "t", "event_id": anID, "key": "k", "error": "newer",
			"parked_at": at}
	}
	want := map[string]any{"has_more": true, "unavailable": []any{proxy.Wallet, proxy.Contacts}, "data": []any{
		record(proxy.Dialer, "2026-06-04T10:00:00.000Z"), record(proxy.Calls, "2026-06-04T09:00:00.000Z")}}
	var body map[string]any
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for _, request := range r.requestsTo(proxy.Calls) {
		if request.caller.Operator != "ada" {
			t.Errorf("operator at the service = %q, want ada", request.caller.Operator)
		}
	}
}

func TestParkedRecords_ReplayReachesTheServiceAndIsAudited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	session := r.operatorSession()
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		_, _ = io.WriteString(w, `{"event_id":"`+anID+`","topic":"t","applied":2,"parked":0}`)
		return true
	})
	path := parkedPath + "/" + anID + "/replay"
	header := http.Header{"Ringfence-Reason": {"Release 9"}}
	got := send(t, "POST", r.console.URL+path, session, `{"service":"calls","topic":"t"}`, header)
	if got.status != http.StatusOK || !strings.Contains(got.body, `"applied":2`) {
		t.Fatalf("POST = %d %s, want 200", got.status, got.body)
	}
	received := r.requestsTo(proxy.Calls)
	if len(received) != 1 {
		t.Fatalf("requests to calls = %d, want 1", len(received))
	}
	if got := received[0].uri; got != path {
		t.Errorf("path at the service = %s, want %s", got, path)
	}
	if !strings.Contains(got.body, `"service":"calls"`) {
		t.Errorf("response = %s, want the service", got.body)
	}
	var service, object, reason string
	err := r.pool.QueryRow(t.Context(), `SELECT after->>'service', object_id, after->>'reason' FROM audit_entries
		WHERE action = 'parked_record.replay'`).Scan(&service, &object, &reason)
	if err != nil {
		t.Fatalf("read the audit entry: %v", err)
	}
	if object != anID {
		t.Errorf("object = %s, want %s", object, anID)
	}
	if service != "calls" {
		t.Errorf("service in the audit entry = %s, want calls", service)
	}
	if reason != "Release 9" {
		t.Errorf("reason = %s, want Release 9", reason)
	}
	for name, row := range map[string]struct{ body, names string }{
		"no service":         {`{"topic":"t"}`, "service"},
		"another case":       {`{"Service":"calls","topic":"t"}`, "service"},
		"the gateway":        {`{"service":"gateway"}`, "service"},
		"an unknown service": {`{"service":"https://evil.example"}`, "service"},
		"no JSON":            {`{`, "body"},
		"no body":            {"", "body"},
		"null":               {"null", "body"},
	} {
		refused := r.operator("POST", path, row.body)
		wantAnswer(t, name, refused, http.StatusUnprocessableEntity, "validation_error")
		if want := `"message":"` + row.names; !strings.Contains(refused.body, want) {
			t.Errorf("%s = %s, want %s", name, refused.body, want)
		}
	}
	wantAnswer(t, "no id", r.operator("POST", parkedPath+"/x/replay", `{"service":"calls"}`),
		http.StatusNotFound, "not_found")
	owner, _ := r.memberSession(r.workspace(""), people.Owner)
	wantAnswer(t, "list of an owner", r.visit("GET", parkedPath, owner, ""), http.StatusForbidden, "forbidden")
	wantAnswer(t, "replay of an owner", r.visit("POST", path, owner, `{"service":"calls"}`),
		http.StatusForbidden, "forbidden")
}

func TestParkedRecords_ReplayEndsWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	ended := make(chan struct{})
	r.answers(func(_ http.ResponseWriter, received receivedRequest) bool {
		disconnect()
		<-received.ctx.Done()
		close(ended)
		return true
	})
	request, err := http.NewRequestWithContext(ctx, "POST", r.admin.URL+parkedPath+"/"+anID+"/replay",
		strings.NewReader(`{"service":"calls","topic":"t"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	response, err := http.DefaultClient.Do(request)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("POST = %v, want the error of the disconnect", err)
	}
	if err == nil {
		_ = response.Body.Close()
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the request to the service did not end")
	}
	testkit.Until(t, "the audit entry has the outcome unknown", func() bool {
		return r.count("audit_entries WHERE action = 'parked_record.replay' AND outcome = 'unknown'") == 1
	})
}
