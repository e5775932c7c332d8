package httpapi_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/consumer"
	"ringfence.dev/services/contacts-compliance/internal/erasurereports"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// An erasure deletes the personal data. Afterwards a queued call request to the number is still
// denied.
func TestEraseContact_KeepsTheOptOutAndTheRecords(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	const path = "/admin/v1/workspaces/%s/contacts/+15005550001"
	r.checkResponse(t, r.customer(
		t,
		http.MethodPost,
		"/v1/contacts",
		`{"phone_e164":"+15005550001","name":"Ann Secret","email":"ann@secret.example","external_id":"Secret-7",
			"metadata":{"k":"Secret","time_zone":"Europe/Berlin"}}`,
	),
		http.StatusCreated, "")
	request := uuid.Must(uuid.NewV7()).String()
	if _, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
		CallRequestId: request, WorkspaceId: r.workspace.String(), ToE164: "+15005550001",
		VariablesJson: []byte(`{"v":"Secret"}`)})); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second erasure only adds records
		got := r.operator(t, http.MethodDelete, path, "")
		if got.status != http.StatusOK {
			t.Fatalf("erased: status = %v, want %v", got.status, http.StatusOK)
		}
		if got.body["consent_status"] != "withdrawn" {
			t.Fatalf("erased: consent_status = %v, want withdrawn", got.body["consent_status"])
		}
		if got.body["dnd_status"] != "unknown" {
			t.Fatalf("erased: dnd_status = %v, want unknown", got.body["dnd_status"])
		}
	}
	var left int
	if err := r.pool.QueryRow(t.Context(),
		`SELECT (SELECT count(*) FROM contacts c
			WHERE c::text LIKE '%Secret%' OR c::text ILIKE '%ann%' OR c::text LIKE '%Berlin%') +
		(SELECT count(*) FROM pre_checks p WHERE p::text LIKE '%Secret%')`).Scan(&left); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if left != 0 {
		t.Errorf("left = %v, want 0", left)
	}
	response, err := r.dialCheck("dialer").Check(t.Context(),
		connect.NewRequest(&compliancev1.CheckRequest{CallRequestId: request, WorkspaceId: r.workspace.String(),
			ToE164: "+15005550001"}))
	if err != nil {
		t.Errorf("check of the queued request: Check: %v", err)
	} else if response.Msg.GetClosed().GetCode() != "consent_withdrawn" {
		t.Errorf(`the gate of what was queued: answer.Msg.GetClosed().GetCode() = %q, want "consent_withdrawn"`,
			response.Msg.GetClosed().GetCode())
	}
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001"}`), http.StatusOK, "")
	if got := r.operator(t, http.MethodDelete, path, ""); got.body["dnd_status"] != "dnd" {
		t.Errorf("erasure after an opt-out = %s, want dnd", got.raw)
	}
	records := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records?phone=+15005550001", "")
	if data, _ := records.body["data"].([]any); len(data) != 4 {
		t.Errorf("records: length of data = %d, want 4", len(data))
	} else if !strings.Contains(records.raw, `"source":"erasure","actor":"operator:ann"`) {
		t.Errorf("records: records.raw = %q, want it to contain %q",
			records.raw, `"source":"erasure","actor":"operator:ann"`)
	}
	r.checkResponse(t, r.operator(t, http.MethodDelete, "/admin/v1/workspaces/%s/contacts/x", ""),
		http.StatusUnprocessableEntity, "invalid_phone")
}

const erasedPath = "/admin/v1/workspaces/%s/contacts/+15005550001"

func (r *fixture) publishedErasures(t *testing.T) (published []*eventv1.Erased) {
	t.Helper()
	rows, err := r.pool.Query(t.Context(),
		"SELECT payload, convert_from(key, 'UTF8') FROM outbox WHERE topic = 'contacts.v1' ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	var payload []byte
	var key string
	_, err = pgx.ForEachRow(rows, []any{&payload, &key}, func() error {
		var event eventv1.ContactEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			return err
		}
		if strings.Contains(key, "5550001") {
			t.Errorf(`key = %q, want it without "5550001"`, key)
		} else if len(key) != 64 {
			t.Errorf("length of key = %d, want 64", len(key))
		}
		published = append(published, event.GetErased())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return published
}

// report applies the report of a service about one step, without the inbox. next lists the steps
// that the report announces, each in the form "<service> <ref>".
func (r *fixture) report(t *testing.T, erasure, service, ref string, more bool, next ...string) {
	t.Helper()
	step := &eventv1.StepDone{Ref: ref, More: more}
	for _, n := range next {
		name, of, _ := strings.Cut(n, " ")
		step.Next = append(step.Next, &eventv1.ErasureStep{Service: name, Ref: of})
	}
	fact := &eventv1.ErasureReport{
		ErasureId: erasure, WorkspaceId: r.workspace.String(), Service: service,
		Event: &eventv1.ErasureReport_StepDone{StepDone: step},
	}
	value, err := proto.Marshal(fact)
	if err != nil {
		t.Fatal(err)
	}
	handle := consumer.New(store.New(r.pool, chains(t)), r.packs).Handlers()[kafka.ErasureReports.Name]
	err = pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return kafkatest.Apply(t.Context(), tx, handle, kafka.Record{Topic: kafka.ErasureReports.Name,
			Type: string(fact.ProtoReflect().Descriptor().FullName()), Value: value})
	})
	if err != nil && !kafka.IsSkip(err) {
		t.Fatal(err)
	}
}

// progress returns "done" or "open" for the newest erasure. For each service, it also returns the
// number of all steps and the number of open steps.
func (r *fixture) progress(t *testing.T) string {
	t.Helper()
	got := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/erasures?phone=+15005550001", "")
	data, _ := got.body["data"].([]any)
	if got.status != http.StatusOK {
		t.Fatalf("the register: got.status = %v, want %v; got.raw = %s", got.status, http.StatusOK, got.raw)
	}
	if len(data) == 0 {
		t.Fatalf("the register: length of data = 0, want more; got.raw = %s", got.raw)
	}
	entry, _ := data[0].(map[string]any)
	text := "open"
	if entry["done_at"] != nil {
		text = "done"
	}
	services, _ := entry["services"].([]any)
	for _, one := range services {
		part, _ := one.(map[string]any)
		text += fmt.Sprintf("; %v %v-%v", part["service"], part["steps"], part["open"])
		if open := part["open"] != 0.0; open == (part["done_at"] != nil) {
			t.Errorf("service %v: done_at does not match its open steps: %s", part["service"], got.raw)
		}
	}
	return text
}

// Each report arrives twice, and the reports arrive in an unusual order.
func TestErasure_IsDoneAfterEveryStep(t *testing.T) {
	t.Parallel()
	r := start(t)
	// an inbound caller need not be a contact, so the erased number has no contact
	got := r.operator(t, http.MethodDelete, erasedPath, "")
	r.checkResponse(t, got, http.StatusOK, "")
	entry, _ := got.body["erasure"].(map[string]any)
	listed, _ := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/erasures", "").body["data"].([]any)
	if want := []any{entry}; !reflect.DeepEqual(listed, want) {
		t.Errorf("listed erasures = %v, want %v", listed, want)
	}
	published := r.publishedErasures(t)
	if got := len(published); got != 1 {
		t.Fatalf("length of orders = %v, want 1", got)
	}
	if got := published[0].GetErasureId(); got != entry["id"] {
		t.Fatalf("orders[0].GetErasureId() = %v, want %v", got, entry["id"])
	}
	if got := published[0].GetPhoneE164(); got != "+15005550001" {
		t.Fatalf("orders[0].GetPhoneE164() = %v, want +15005550001", got)
	}
	if got := published[0].GetErasures(); got != 1 {
		t.Fatalf("orders[0].GetErasures() = %v, want 1", got)
	}
	id := published[0].GetErasureId()
	const webhook, dialer = "webhook-dispatcher", "dialer"
	for _, step := range []struct {
		service, ref string
		more         bool
		next         []string
		want         string
	}{
		{service: "", want: "open; calls 1-1; contacts-compliance 1-0; dialer 1-1"},
		// this report arrives before the report that announces its step
		{service: webhook, ref: "call-1",
			want: "open; calls 1-1; contacts-compliance 1-0; dialer 1-1; webhook-dispatcher 1-0"},
		{service: "calls", more: true, next: []string{dialer + " request-1"},
			want: "open; calls 1-1; contacts-compliance 1-0; dialer 2-2; webhook-dispatcher 1-0"},
		{service: dialer, next: []string{"calls call-2"},
			want: "open; calls 2-2; contacts-compliance 1-0; dialer 2-1; webhook-dispatcher 1-0"},
		{service: "calls", next: []string{webhook + " call-1", webhook + " call-1"},
			want: "open; calls 2-1; contacts-compliance 1-0; dialer 2-1; webhook-dispatcher 1-0"},
		{service: dialer, ref: "request-1",
			want: "open; calls 2-1; contacts-compliance 1-0; dialer 2-0; webhook-dispatcher 1-0"},
		{service: "calls", ref: "call-2", next: []string{webhook + " call-2"},
			want: "open; calls 2-0; contacts-compliance 1-0; dialer 2-0; webhook-dispatcher 2-1"},
		{service: webhook, ref: "call-2",
			want: "done; calls 2-0; contacts-compliance 1-0; dialer 2-0; webhook-dispatcher 2-0"},
		// this report arrives after the erasure is done
		{service: webhook, ref: "call-3", next: []string{"calls call-9"},
			want: "done; calls 2-0; contacts-compliance 1-0; dialer 2-0; webhook-dispatcher 2-0"},
	} {
		for range 2 {
			if step.service != "" {
				r.report(t, id, step.service, step.ref, step.more, step.next...)
			}
			if got := r.progress(t); got != step.want {
				t.Errorf("after the report of %s %s: progress = %s, want %s", step.service, step.ref, got, step.want)
			}
		}
	}
	r.report(t, uuid.NewString(), "calls", "", false) // this erasure does not exist
	var left int
	if err := r.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM erasure_steps) + (SELECT count(*) FROM erasures e
		WHERE e.contact_id IS NOT NULL OR e::text LIKE '%5550001%' OR e::text LIKE '%call-%')`).Scan(&left); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if left != 0 {
		t.Errorf("left = %v, want 0", left)
	}
	member := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/erasures/"+id, "")
	subject, _ := member.body["subject"].(string)
	sum, err := hex.DecodeString(subject)
	if member.status != http.StatusOK {
		t.Errorf("the entry: status = %v, want %v", member.status, http.StatusOK)
	}
	if err != nil {
		t.Fatalf("the entry: error = %v", err)
	}
	if got := len(sum); got != 32 {
		t.Fatalf("the entry: length of sum = %v, want 32", got)
	}
	if member.body["actor"] != "operator:ann" {
		t.Errorf("the entry: actor = %v, want operator:ann", member.body["actor"])
	}
	r.checkResponse(t, r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/erasures/"+uuid.NewString(), ""),
		http.StatusNotFound, "not_found")
	if none := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/erasures?phone=+15005550002",
		""); !strings.Contains(none.raw, `"data":[]`) {
		t.Errorf("erasures of another number = %s, want none", none.raw)
	}
}

// The event of the second erasure of a number contains the count 2.
func TestErasure_IsPublishedAgainUntilItIsDone(t *testing.T) {
	t.Parallel()
	r := start(t)
	for range 2 {
		r.checkResponse(t, r.operator(t, http.MethodDelete, erasedPath, ""), http.StatusOK, "")
	}
	woken := 0
	worker := erasurereports.NewRepublishJob(store.New(r.pool, chains(t)), func() { woken++ }, prometheus.NewRegistry())
	for range 2 {
		if err := worker.RunOnce(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	first := r.publishedErasures(t)
	if got := len(first); got != 2 {
		t.Fatalf("length of first = %v, want 2", got)
	}
	if got := first[0].GetErasures(); got != 1 {
		t.Fatalf("first[0].GetErasures() = %v, want 1", got)
	}
	if got := first[1].GetErasures(); got != 2 {
		t.Fatalf("first[1].GetErasures() = %v, want 2", got)
	}
	if woken != 0 {
		t.Fatalf("woken = %v, want 0", woken)
	}
	r.report(t, first[0].GetErasureId(), "calls", "", false)
	r.report(t, first[0].GetErasureId(), "dialer", "", false)
	if err := worker.RunOnce(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	again := r.publishedErasures(t)
	if got := len(again); got != 3 {
		t.Fatalf("length of again = %v, want 3", got)
	}
	if !proto.Equal(again[1], again[2]) {
		t.Errorf("published erasures = %v, want the open one twice", again)
	}
	if woken != 1 {
		t.Errorf("woken = %v, want 1", woken)
	}
}

// The stored result of a pre-check contains the erasure count at the time of the pre-check. A
// repeated pre-check after an erasure must return this count. The erasure deletes the variables of
// the stored result.
func TestErasure_RepeatedPreCheckReturnsItsOriginalErasureCount(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	preCheck := func(request string) *compliancev1.Allowed {
		t.Helper()
		response, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
			CallRequestId: request, WorkspaceId: r.workspace.String(), ToE164: "+15005550001",
			VariablesJson: []byte(`{"v":"Secret"}`)}))
		if err != nil {
			t.Fatal(err)
		}
		return response.Msg.GetAllowed()
	}
	before, since := uuid.NewString(), uuid.NewString()
	if got := preCheck(before); got.GetErasures() != 0 {
		t.Errorf("before: %v", got)
	}
	r.checkResponse(t, r.operator(t, http.MethodDelete, erasedPath, ""), http.StatusOK, "")
	got := preCheck(before)
	if got == nil {
		t.Fatalf("repeated: %v, want the count of then and no variables", got)
	}
	if got := got.GetErasures(); got != 0 {
		t.Errorf("repeated: got.GetErasures() = %v, want 0", got)
	}
	if strings.Contains(string(got.GetVariablesJson()), "Secret") {
		t.Errorf("repeated: variables = %s, want them without %q", string(got.GetVariablesJson()), "Secret")
	}
	if got := preCheck(since); got != nil {
		t.Errorf("pre-check without consent = %v, want a refusal", got)
	}
	r.checkResponse(t, r.operator(t, http.MethodPut, erasedPath+"/consent", `{"status":"consented","source":"web form"}`),
		http.StatusOK, "")
	if got := preCheck(since); got.GetErasures() != 1 {
		t.Errorf("since: got.GetErasures() = %v, want 1", got.GetErasures())
	} else if !strings.Contains(string(got.GetVariablesJson()), "Secret") {
		t.Errorf(`since: got.GetVariablesJson() = %q, want it to contain "Secret"`, string(got.GetVariablesJson()))
	}
	// This statement simulates a pre-check that stored variables while the erasure committed.
	if _, err := r.pool.Exec(t.Context(), `UPDATE pre_checks SET variables = '{"v":"Secret"}' WHERE call_request_id = $1`,
		before); err != nil {
		t.Fatal(err)
	}
	if err := store.New(r.pool, chains(t)).ClearErasedPreChecks(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	rows, _ := r.pool.Query(t.Context(),
		`SELECT call_request_id::text FROM pre_checks WHERE variables::text LIKE '%Secret%'`)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("error = %v", err)
	}
	if got := len(left); got != 1 {
		t.Fatalf("length of left = %v, want 1", got)
	}
	if left[0] != since {
		t.Errorf("left[0] = %v, want %v", left[0], since)
	}
}
