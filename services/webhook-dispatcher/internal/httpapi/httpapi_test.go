package httpapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/eventstream"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const schema = "webhook_dispatcher"

// fixture serves the API for a test. It signs caller tokens, as the gateway would.
type fixture struct {
	t       testing.TB
	pool    *pgxpool.Pool
	store   *store.Store
	gateway *serviceauth.Keys
	handler http.Handler
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	seed := func() []byte {
		raw := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(raw)
		return raw
	}
	gatewaySeed := seed()
	gateway, err := serviceauth.New("gateway", serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(gatewaySeed)})
	if err != nil {
		t.Fatal(err)
	}
	public := ed25519.NewKeyFromSeed(gatewaySeed).Public().(ed25519.PublicKey)
	keys, err := serviceauth.New("webhook-dispatcher", serviceauth.Config{
		SigningKey: base64.StdEncoding.EncodeToString(seed()), TrustedKeys: []string{"gateway=" + base64.StdEncoding.EncodeToString(public)},
	})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(pool, box)
	nothing := func() {}
	api := httpapi.New(st, eventstream.New(st, prometheus.NewRegistry()), ssrf.New(nil).Reachable, nothing, nothing)
	return &fixture{t: t, pool: pool, store: st, gateway: gateway, handler: api.Routes(keys, nil)}
}

type response struct {
	status int
	header http.Header
	body   map[string]any
}

func (a response) code() string {
	refused, _ := a.body["error"].(map[string]any)
	code, _ := refused["code"].(string)
	return code
}

func (a response) text(field string) string {
	text, _ := a.body[field].(string)
	return text
}

func (a response) list() (ids []string) {
	items, _ := a.body["data"].([]any)
	for _, item := range items {
		ids = append(ids, item.(map[string]any)["id"].(string))
	}
	return ids
}

func (h *fixture) do(caller serviceauth.Caller, method, path, body string) response {
	h.t.Helper()
	caller.RequestID = uuid.New()
	token, err := h.gateway.SignCaller("webhook-dispatcher", caller)
	if err != nil {
		h.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	req.Header.Set(serviceauth.CallerHeader, token)
	rec := httptest.NewRecorder()
	h.handler.ServeHTTP(rec, req)
	testkit.CheckTimestamps(h.t, rec.Body.Bytes())
	got := response{status: rec.Code, header: rec.Header()}
	if err := json.NewDecoder(bytes.NewReader(rec.Body.Bytes())).Decode(&got.body); err != nil {
		h.t.Fatalf("%s %s answered %d with %q: %v", method, path, rec.Code, rec.Body.String(), err)
	}
	return got
}

func (h *fixture) customer(workspace uuid.UUID, method, path, body string) response {
	h.t.Helper()
	return h.do(serviceauth.Caller{WorkspaceID: workspace, Access: serviceauth.Write, Webhooks: true}, method, path, body)
}

func (h *fixture) admin(workspace uuid.UUID, path string) response {
	h.t.Helper()
	return h.do(serviceauth.Caller{WorkspaceID: workspace, Operator: "eve"}, http.MethodGet, "/admin/v1/workspaces/"+workspace.String()+path, "")
}

const validSubscription = `{"name":"orders","url":"https://example.com/hook","events":["call.completed"]}`

const collection = "/v1/webhook-subscriptions"

func (h *fixture) create(workspace uuid.UUID) (id, secret string) {
	h.t.Helper()
	got := h.customer(workspace, http.MethodPost, collection, validSubscription)
	if got.status != http.StatusCreated {
		h.t.Fatalf("create = %d %v", got.status, got.body)
	}
	return got.text("id"), got.text("signing_secret")
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantList[T any](t testing.TB, what string, got, want []T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantStatus checks the status and the error code of a response. The code is "" for a success.
func wantStatus(t testing.TB, what string, got response, status int, code string) {
	t.Helper()
	if got.status != status {
		t.Errorf("%s: status = %d %v, want %d", what, got.status, got.body, status)
	}
	if got.code() != code {
		t.Errorf("%s: code = %q, want %q", what, got.code(), code)
	}
}

func keysOf(body map[string]any) []string {
	var names []string
	for name := range body {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestCreate_ReturnsTheSecretOnceAndMasksItLater(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	before := time.Now().Truncate(time.Millisecond)
	created := h.customer(ws, http.MethodPost, collection, validSubscription)
	after := time.Now()
	wantStatus(t, "POST", created, 201, "")
	wantList(t, "members of the response", keysOf(created.body), []string{"id", "signing_secret", "store_this"})
	wantEqual(t, "Cache-Control of a response with a secret", created.header.Get("Cache-Control"), "no-store")
	secret := created.text("signing_secret")
	listed := h.customer(ws, http.MethodGet, collection, "")
	wantStatus(t, "GET", listed, 200, "")
	wantEqual(t, "has_more", listed.body["has_more"], any(false))
	items, _ := listed.body["data"].([]any)
	if len(items) != 1 {
		t.Fatalf("listed subscriptions = %v, want one", items)
	}
	item, _ := items[0].(map[string]any)
	want := []string{"consecutive_failures", "created_at", "events", "id", "last_failure_at", "last_success_at", "name", "signing_secret", "status", "url"}
	wantList(t, "members of a listed subscription", keysOf(item), want)
	wantEqual(t, "signing_secret", item["signing_secret"], any("whsec_\u2026"+secret[len(secret)-4:]))
	wantEqual(t, "status", item["status"], any("active"))
	wantEqual(t, "last_success_at", item["last_success_at"], nil)
	createdAt, _ := item["created_at"].(string)
	at, err := time.Parse(time.RFC3339, createdAt)
	if err != nil {
		t.Fatalf("created_at: %v", err)
	}
	if !strings.HasSuffix(createdAt, "Z") {
		t.Errorf("created_at = %q, want UTC", createdAt)
	}
	if at.Before(before) {
		t.Errorf("created_at = %s, want %s or later", at, before)
	}
	if at.After(after) {
		t.Errorf("created_at = %s, want %s or earlier", at, after)
	}
}

func TestCreate_ReturnsErrorsInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	for name, tt := range map[string]struct{ body, want string }{
		"not JSON": {`{`, "validation_error"},
		"missing name takes precedence over other errors":  {`{"url":"nope","events":[]}`, "validation_error"},
		"missing url takes precedence over invalid events": {`{"name":"a","events":["nope"]}`, "validation_error"},
		"empty url":       {`{"name":"a","url":"","events":["call.busy"]}`, "invalid_url"},
		"private address": {`{"name":"a","url":"https://10.0.0.1/","events":["call.busy"]}`, "invalid_url"},
		"no events":       {`{"name":"a","url":"https://example.com"}`, "no_events"},
		"events null":     {`{"name":"a","url":"https://example.com","events":null}`, "no_events"},
		"events empty":    {`{"name":"a","url":"https://example.com","events":[]}`, "no_events"},
		"unknown event":   {`{"name":"a","url":"https://example.com","events":["call.busy","nope"]}`, "invalid_event_type"},
		"a NUL byte":      {`{"name":"a\u0000b","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, "POST "+tt.body, h.customer(ws, http.MethodPost, collection, tt.body), 422, tt.want)
		})
	}
	if got := h.customer(ws, http.MethodGet, collection, ""); len(got.list()) != 0 {
		t.Errorf("subscriptions after rejected requests = %v, want none", got.list())
	}
}

func TestCreate_ConcurrentRequestsCreateAtMostFiveSubscriptions(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	var mu sync.Mutex
	codes := map[string]int{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got := h.customer(ws, http.MethodPost, collection, validSubscription)
			mu.Lock()
			defer mu.Unlock()
			codes[fmt.Sprint(got.status, got.code())]++
		})
	}
	all.Wait()
	if diff := cmp.Diff(map[string]int{"201": 5, "409subscription_limit_reached": 15}, codes); diff != "" {
		t.Fatalf("responses to 20 creations at the same time (-want +got):\n%s", diff)
	}
	ids := h.customer(ws, http.MethodGet, collection, "").list()
	pause := func(id, status string) response {
		return h.customer(ws, http.MethodPatch, collection+"/"+id, `{"status":"`+status+`"}`)
	}
	wantStatus(t, "pause", pause(ids[0], "paused"), 200, "")
	h.create(ws)
	wantStatus(t, "resumption of a sixth", pause(ids[0], "active"), 409, "subscription_limit_reached")
	wantStatus(t, "PATCH to active of an active one at the limit", pause(ids[1], "active"), 200, "")
	deleted := h.customer(ws, http.MethodDelete, collection+"/"+ids[1], "")
	wantStatus(t, "DELETE", deleted, 200, "")
	wantEqual(t, "deleted", deleted.body["deleted"], any(true))
	wantEqual(t, "id", deleted.text("id"), ids[1])
	wantStatus(t, "resumption after a deletion", pause(ids[0], "active"), 200, "")
	h.create(uuid.New()) // another workspace has its own limit
}

func TestPatch_ChangesValidFieldsAndRejectsInvalidFields(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	for name, tt := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"failed cannot be set by customers": {`{"status":"failed"}`, 422, "invalid_action"},
		"unknown status":                    {`{"status":"deleted"}`, 422, "invalid_status"},
		"plain http":                        {`{"url":"http://example.com"}`, 422, "invalid_url"},
		"no events":                         {`{"events":[]}`, 422, "no_events"},
		"unknown event":                     {`{"events":["nope"]}`, 422, "invalid_event_type"},
		"one error changes nothing":         {`{"url":"https://changed.example","status":"nope"}`, 422, "invalid_status"},
		"empty change is accepted":          {`{}`, 200, ""},
		"null changes no url or events":     {`{"url":null,"events":null}`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, "PATCH "+tt.body, h.customer(ws, http.MethodPatch, collection+"/"+id, tt.body), tt.status, tt.want)
		})
	}
	got := h.customer(ws, http.MethodPatch, collection+"/"+id, `{"url":"HTTPS://new.example/x","events":["call.busy","call.failed"],"status":"paused"}`)
	wantStatus(t, "PATCH of everything", got, 200, "")
	wantEqual(t, "url", got.text("url"), "https://new.example/x")
	wantEqual(t, "status", got.text("status"), "paused")
	wantEqual(t, "events", fmt.Sprint(got.body["events"]), "[call.busy call.failed]")
	tested := h.customer(ws, http.MethodPost, collection+"/"+id+"/test", "")
	wantStatus(t, "test of a paused subscription", tested, 409, "subscription_not_active")
}

func TestSubscription_TestDeliveryIsQueuedAndSecretIsRotated(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, secret := h.create(ws)
	got := h.customer(ws, http.MethodPost, collection+"/"+id+"/test", "")
	wantStatus(t, "test", got, 202, "")
	wantList(t, "members of the response", keysOf(got.body), []string{"delivery_id", "event_id", "queued"})
	wantEqual(t, "queued", got.body["queued"], any(true))
	row, err := h.store.DeliveryOf(t.Context(), ws, uuid.MustParse(got.text("delivery_id")))
	if err != nil {
		t.Fatalf("DeliveryOf: %v", err)
	}
	wantEqual(t, "event_id", got.text("event_id"), row.EventID.String())
	rotated := h.customer(ws, http.MethodPost, collection+"/"+id+"/rotate-secret", "")
	wantStatus(t, "rotate-secret", rotated, 200, "")
	wantList(t, "members of the response", keysOf(rotated.body), []string{"signing_secret", "store_this"})
	wantEqual(t, "Cache-Control of a response with a secret", rotated.header.Get("Cache-Control"), "no-store")
	if rotated.text("signing_secret") == secret {
		t.Error("rotate-secret returned the old secret, want a new one")
	}
}

func TestRoutes_ObjectsOfAnotherWorkspaceGive404(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	for _, workspace := range []uuid.UUID{uuid.New(), ws} {
		id := id
		if workspace == ws {
			id = "nope"
		}
		for _, tt := range []struct{ method, path, body string }{
			{http.MethodPatch, "/" + id, `{}`}, {http.MethodDelete, "/" + id, ""},
			{http.MethodPost, "/" + id + "/rotate-secret", ""}, {http.MethodPost, "/" + id + "/test", ""},
		} {
			wantStatus(t, tt.method+" "+tt.path, h.customer(workspace, tt.method, collection+tt.path, tt.body), 404, "not_found")
		}
	}
	if got := h.customer(ws, http.MethodGet, collection+"?starting_after="+uuid.NewString(), ""); got.status != 422 {
		t.Errorf("unknown cursor = %d %v, want 422", got.status, got.body)
	}
	if got := h.customer(ws, http.MethodPut, collection, ""); got.status != 405 {
		t.Errorf("PUT = %d, want 405", got.status)
	}
}

func TestList_ReturnsPagesWithoutGaps(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	var want []string
	for range 5 {
		id, _ := h.create(ws)
		want = append([]string{id}, want...)
	}
	first := h.customer(ws, http.MethodGet, collection+"?limit=3", "")
	second := h.customer(ws, http.MethodGet, collection+"?limit=3&starting_after="+want[2], "")
	wantList(t, "ids of both pages", append(first.list(), second.list()...), want)
	wantEqual(t, "has_more of the first page", first.body["has_more"], any(true))
	wantEqual(t, "has_more of the second page", second.body["has_more"], any(false))
}

func TestOperator_CanReadDeliveriesAndAttempts(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	text, _ := h.create(ws)
	call := uuid.New()
	var first deliveries.Event
	for i := range 3 {
		ev := deliveries.Event{
			ID: uuid.New(), WorkspaceID: ws, ObjectID: &call, Type: "call.completed", Sequence: int32(i + 1),
			Body: []byte(`{}`), CreatedAt: time.Unix(1780574400+int64(i), 0),
		}
		if i == 0 {
			first = ev
		}
		if err := pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
			_, err := h.store.Ingest(t.Context(), tx, ev)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := h.store.ClaimDue(t.Context(), claimUpTo(text, 1))
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	claimed := found.Work
	if len(claimed) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(claimed))
	}
	wantEqual(t, "claimed event", claimed[0].EventID, first.ID)
	if _, err := h.store.Complete(t.Context(), []deliveries.Result{{
		DeliveryID: claimed[0].DeliveryID, Attempt: 1, Outcome: deliveries.OutcomeFailed,
		Response: deliveries.Response{Code: 500, Failure: deliveries.BadStatus, Excerpt: "oops", At: time.Now(), Duration: 42 * time.Millisecond},
	}}); err != nil {
		t.Fatal(err)
	}
	base := "/webhook-subscriptions/" + text
	wantList(t, "subscriptions", h.admin(ws, "/webhook-subscriptions").list(), []string{text})
	member := h.admin(ws, base)
	wantStatus(t, "subscription", member, 200, "")
	flag, shown := member.body["flag"]
	wantEqual(t, "flag is shown", shown, true)
	wantEqual(t, "flag", flag, nil)
	wantEqual(t, "last_error", member.body["last_error"], any("http_status 500"))
	page := h.admin(ws, base+"/deliveries?limit=2")
	wantStatus(t, "deliveries", page, 200, "")
	wantEqual(t, "has_more of the first page", page.body["has_more"], any(true))
	if len(page.list()) != 2 {
		t.Fatalf("first page = %v, want 2 deliveries", page.list())
	}
	next := h.admin(ws, base+"/deliveries?limit=2&starting_after="+page.list()[1])
	wantList(t, "second page", next.list(), []string{claimed[0].DeliveryID.String()})
	one := h.admin(ws, base+"/deliveries/"+claimed[0].DeliveryID.String())
	wantStatus(t, "delivery", one, 200, "")
	wantEqual(t, "status of the delivery", one.text("status"), "failed")
	history, _ := one.body["history"].([]any)
	if len(history) != 1 {
		t.Fatalf("history = %v, want one attempt", history)
	}
	attempt, _ := history[0].(map[string]any)
	delete(attempt, "at")
	want := map[string]any{
		"replay":      0.0,
		"attempt":     1.0,
		"code":        500.0,
		"excerpt":     "oops",
		"duration_ms": 42.0,
		"error":       "http_status",
		"cause":       "The endpoint responded with status 500.",
	}
	if diff := cmp.Diff(want, attempt); diff != "" {
		t.Errorf("attempt without its time (-want +got):\n%s", diff)
	}
	if got := h.admin(uuid.New(), base+"/deliveries"); got.status != 404 {
		t.Errorf("status of the deliveries for another workspace = %d, want 404", got.status)
	}
	if got := h.customer(ws, http.MethodGet, "/admin/v1/workspaces/"+ws.String()+"/webhook-subscriptions", ""); got.status != 401 {
		t.Errorf("status of an operator route with a customer's token = %d, want 401", got.status)
	}
}
