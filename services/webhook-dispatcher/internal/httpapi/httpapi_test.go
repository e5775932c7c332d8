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

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/guard"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/timetest"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/migrations"
)

const schema = "webhook_dispatcher"

// house is the API behind a gateway of the test's own.
type house struct {
	t       testing.TB
	pool    *pgxpool.Pool
	store   *store.Store
	gateway *trust.Keys
	handler http.Handler
}

func newHouse(t testing.TB) *house {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: migrations.FS})
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
	gateway, err := trust.New("gateway", trust.Config{SigningKey: base64.StdEncoding.EncodeToString(gatewaySeed)})
	if err != nil {
		t.Fatal(err)
	}
	public := ed25519.NewKeyFromSeed(gatewaySeed).Public().(ed25519.PublicKey)
	keys, err := trust.New("webhook-dispatcher", trust.Config{
		SigningKey: base64.StdEncoding.EncodeToString(seed()), TrustedKeys: []string{"gateway=" + base64.StdEncoding.EncodeToString(public)},
	})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(pool, box)
	nothing := func() {}
	api := httpapi.New(st, guard.New(nil).Reachable, nothing, nothing)
	return &house{t: t, pool: pool, store: st, gateway: gateway, handler: api.Routes(keys, nil)}
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) code() string {
	refused, _ := a.body["error"].(map[string]any)
	code, _ := refused["code"].(string)
	return code
}

func (a answer) text(field string) string {
	text, _ := a.body[field].(string)
	return text
}

func (a answer) list() (ids []string) {
	items, _ := a.body["data"].([]any)
	for _, item := range items {
		ids = append(ids, item.(map[string]any)["id"].(string))
	}
	return ids
}

func (h *house) as(caller trust.Caller, method, path, body string) answer {
	h.t.Helper()
	caller.RequestID = uuid.New()
	token, err := h.gateway.SignCaller("webhook-dispatcher", caller)
	if err != nil {
		h.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	req.Header.Set(trust.CallerHeader, token)
	rec := httptest.NewRecorder()
	h.handler.ServeHTTP(rec, req)
	timetest.Check(h.t, rec.Body.Bytes())
	got := answer{status: rec.Code, header: rec.Header()}
	if err := json.NewDecoder(bytes.NewReader(rec.Body.Bytes())).Decode(&got.body); err != nil {
		h.t.Fatalf("%s %s answered %d with %q: %v", method, path, rec.Code, rec.Body.String(), err)
	}
	return got
}

func (h *house) do(workspace uuid.UUID, method, path, body string) answer {
	h.t.Helper()
	return h.as(trust.Caller{WorkspaceID: workspace, Access: trust.Write, Webhooks: true}, method, path, body)
}

func (h *house) admin(workspace uuid.UUID, path string) answer {
	h.t.Helper()
	return h.as(trust.Caller{WorkspaceID: workspace, Operator: "eve"}, http.MethodGet, "/admin/v1/workspaces/"+workspace.String()+path, "")
}

const good = `{"name":"orders","url":"https://example.com/hook","events":["call.completed"]}`

const collection = "/v1/webhook-subscriptions"

func (h *house) create(workspace uuid.UUID) (id, secret string) {
	h.t.Helper()
	got := h.do(workspace, http.MethodPost, collection, good)
	if got.status != http.StatusCreated {
		h.t.Fatalf("create = %d %v", got.status, got.body)
	}
	return got.text("id"), got.text("signing_secret")
}

func keysOf(body map[string]any) []string {
	var names []string
	for name := range body {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestCreate_ShowsTheSecretOnceAndMasksItEverAfter(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	created := h.do(ws, http.MethodPost, collection, good)
	if want := []string{"id", "signing_secret", "store_this"}; created.status != 201 || !slices.Equal(keysOf(created.body), want) {
		t.Fatalf("create = %d %v, want 201 with %v", created.status, created.body, want)
	}
	if got := created.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q beside a secret, want no-store", got)
	}
	secret := created.text("signing_secret")
	listed := h.do(ws, http.MethodGet, collection, "")
	items, _ := listed.body["data"].([]any)
	if listed.status != 200 || len(items) != 1 || listed.body["has_more"] != false {
		t.Fatalf("list = %d %v", listed.status, listed.body)
	}
	item, _ := items[0].(map[string]any)
	want := []string{"consecutive_failures", "created_at", "events", "id", "last_failure_at", "last_success_at", "name", "signing_secret", "status", "url"}
	if got := keysOf(item); !slices.Equal(got, want) {
		t.Errorf("fields = %v, want exactly %v", got, want)
	}
	if item["signing_secret"] != "whsec_\u2026"+secret[len(secret)-4:] || item["status"] != "active" || item["last_success_at"] != nil {
		t.Errorf("listed = %v", item)
	}
	if at, err := time.Parse(time.RFC3339, item["created_at"].(string)); err != nil || time.Since(at).Abs() > time.Minute || !strings.HasSuffix(item["created_at"].(string), "Z") {
		t.Errorf("created_at = %v, want now in UTC", item["created_at"])
	}
}

func TestCreate_RefusesInOrder(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	long := strings.Repeat("x", 501)
	for name, tt := range map[string]struct{ body, want string }{
		"no JSON":                         {`{`, "validation_error"},
		"no name comes before everything": {`{"url":"nope","events":[]}`, "validation_error"},
		"name null is missing":            {`{"name":null,"url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"blank name":                      {`{"name":"  ","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"name of the wrong type":          {`{"name":7,"url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"name over 200 characters":        {`{"name":"` + long[:201] + `","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"description over 500 characters": {`{"name":"a","description":"` + long + `","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"no url comes before bad events":  {`{"name":"a","events":["nope"]}`, "validation_error"},
		"bad url comes before no events":  {`{"name":"a","url":"http://example.com"}`, "invalid_url"},
		"empty url":                       {`{"name":"a","url":"","events":["call.busy"]}`, "invalid_url"},
		"private address":                 {`{"name":"a","url":"https://10.0.0.1/","events":["call.busy"]}`, "invalid_url"},
		"no events":                       {`{"name":"a","url":"https://example.com"}`, "no_events"},
		"events null":                     {`{"name":"a","url":"https://example.com","events":null}`, "no_events"},
		"events empty":                    {`{"name":"a","url":"https://example.com","events":[]}`, "no_events"},
		"events of the wrong type":        {`{"name":"a","url":"https://example.com","events":"call.busy"}`, "validation_error"},
		"an event of the wrong type":      {`{"name":"a","url":"https://example.com","events":[1]}`, "validation_error"},
		"an event that is null":           {`{"name":"a","url":"https://example.com","events":[null]}`, "validation_error"},
		"an event that is a number":       {`{"name":"a","url":"https://example.com","events":[1]}`, "validation_error"},
		"unknown event":                   {`{"name":"a","url":"https://example.com","events":["call.busy","nope"]}`, "invalid_event_type"},
		"a NUL byte":                      {`{"name":"a\u0000b","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.do(ws, http.MethodPost, collection, tt.body); got.status != 422 || got.code() != tt.want {
				t.Errorf("POST %s = %d %v, want 422 %s", tt.body, got.status, got.body, tt.want)
			}
		})
	}
	if got := h.do(ws, http.MethodGet, collection, ""); len(got.list()) != 0 {
		t.Errorf("refusals left %v behind", got.list())
	}
}

func TestCreate_FiveActiveUnderTwentyAtOnce(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	var mu sync.Mutex
	codes := map[string]int{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got := h.do(ws, http.MethodPost, collection, good)
			mu.Lock()
			defer mu.Unlock()
			codes[fmt.Sprint(got.status, got.code())]++
		})
	}
	all.Wait()
	if codes["201"] != 5 || codes["409subscription_limit_reached"] != 15 {
		t.Fatalf("20 creations at once = %v, want 5 created and 15 refused", codes)
	}
	ids := h.do(ws, http.MethodGet, collection, "").list()
	pause := func(id, status string) answer {
		return h.do(ws, http.MethodPatch, collection+"/"+id, `{"status":"`+status+`"}`)
	}
	if got := pause(ids[0], "paused"); got.status != 200 {
		t.Fatalf("pause = %d %v", got.status, got.body)
	}
	h.create(ws)
	if got := pause(ids[0], "active"); got.status != 409 || got.code() != "subscription_limit_reached" {
		t.Errorf("resuming the sixth = %d %v, want 409", got.status, got.body)
	}
	if got := pause(ids[1], "active"); got.status != 200 {
		t.Errorf("PATCH active of an active one at the limit = %d %v, want 200", got.status, got.body)
	}
	if got := h.do(ws, http.MethodDelete, collection+"/"+ids[1], ""); got.status != 200 || got.body["deleted"] != true || got.text("id") != ids[1] {
		t.Errorf("delete = %d %v", got.status, got.body)
	}
	if got := pause(ids[0], "active"); got.status != 200 {
		t.Errorf("resuming after a deletion = %d %v, want 200", got.status, got.body)
	}
	h.create(uuid.New()) // another workspace has five of its own
}

func TestPatch(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	id, _ := h.create(ws)
	for name, tt := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"failed is not for customers":   {`{"status":"failed"}`, 422, "invalid_action"},
		"unknown status":                {`{"status":"deleted"}`, 422, "invalid_status"},
		"plain http":                    {`{"url":"http://example.com"}`, 422, "invalid_url"},
		"no events":                     {`{"events":[]}`, 422, "no_events"},
		"an event that is null":         {`{"events":[null]}`, 422, "validation_error"},
		"unknown event":                 {`{"events":["nope"]}`, 422, "invalid_event_type"},
		"one fault changes nothing":     {`{"url":"https://changed.example","status":"nope"}`, 422, "invalid_status"},
		"nothing to change is no fault": {`{}`, 200, ""},
		"null changes no url or events": {`{"url":null,"events":null}`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.do(ws, http.MethodPatch, collection+"/"+id, tt.body); got.status != tt.status || got.code() != tt.want {
				t.Errorf("PATCH %s = %d %v, want %d %s", tt.body, got.status, got.body, tt.status, tt.want)
			}
		})
	}
	got := h.do(ws, http.MethodPatch, collection+"/"+id, `{"url":"HTTPS://new.example/x","events":["call.busy","call.failed"],"status":"paused"}`)
	if got.status != 200 || got.text("url") != "https://new.example/x" || got.text("status") != "paused" || fmt.Sprint(got.body["events"]) != "[call.busy call.failed]" {
		t.Errorf("PATCH of everything = %d %v", got.status, got.body)
	}
	if got := h.do(ws, http.MethodPost, collection+"/"+id+"/test", ""); got.status != 409 || got.code() != "subscription_not_active" {
		t.Errorf("test of a paused one = %d %v, want 409 subscription_not_active", got.status, got.body)
	}
}

func TestTestAndRotate(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	id, secret := h.create(ws)
	got := h.do(ws, http.MethodPost, collection+"/"+id+"/test", "")
	if got.status != 202 || got.body["queued"] != true || len(got.body) != 3 {
		t.Fatalf("test = %d %v, want 202 {queued, delivery_id, event_id}", got.status, got.body)
	}
	if want := delivery.ID(uuid.MustParse(id), uuid.MustParse(got.text("event_id"))).String(); got.text("delivery_id") != want {
		t.Errorf("delivery_id = %s, want %s", got.text("delivery_id"), want)
	}
	rotated := h.do(ws, http.MethodPost, collection+"/"+id+"/rotate-secret", "")
	if rotated.status != 200 || !slices.Equal(keysOf(rotated.body), []string{"signing_secret", "store_this"}) ||
		rotated.text("signing_secret") == secret || rotated.header.Get("Cache-Control") != "no-store" {
		t.Errorf("rotate = %d %v %v", rotated.status, rotated.body, rotated.header)
	}
}

func TestEverything_IsNotFoundInAnotherWorkspace(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	id, _ := h.create(ws)
	for _, workspace := range []uuid.UUID{uuid.New(), ws} {
		id := id
		if workspace == ws {
			id = "nope" // an id that is no UUID
		}
		for _, tt := range []struct{ method, path, body string }{
			{http.MethodPatch, "/" + id, `{}`}, {http.MethodDelete, "/" + id, ""},
			{http.MethodPost, "/" + id + "/rotate-secret", ""}, {http.MethodPost, "/" + id + "/test", ""},
		} {
			if got := h.do(workspace, tt.method, collection+tt.path, tt.body); got.status != 404 || got.code() != "not_found" {
				t.Errorf("%s %s = %d %v, want 404", tt.method, tt.path, got.status, got.body)
			}
		}
	}
	if got := h.do(ws, http.MethodGet, collection+"?starting_after="+uuid.NewString(), ""); got.status != 422 {
		t.Errorf("unknown cursor = %d %v, want 422", got.status, got.body)
	}
	if got := h.do(ws, http.MethodPut, collection, ""); got.status != 405 {
		t.Errorf("PUT = %d, want 405", got.status)
	}
}

func TestList_RunsOnPages(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	var want []string
	for range 5 {
		id, _ := h.create(ws)
		want = append([]string{id}, want...)
	}
	first := h.do(ws, http.MethodGet, collection+"?limit=3", "")
	second := h.do(ws, http.MethodGet, collection+"?limit=3&starting_after="+want[2], "")
	if got := append(first.list(), second.list()...); !slices.Equal(got, want) || first.body["has_more"] != true || second.body["has_more"] != false {
		t.Errorf("pages = %v then %v, want %v", first.body, second.body, want)
	}
}

func TestAdmin_ShowsDeliveriesAndAttempts(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	text, _ := h.create(ws)
	id := uuid.MustParse(text)
	call := uuid.New()
	var first delivery.Event
	for i := range 3 {
		ev := delivery.Event{ID: uuid.New(), WorkspaceID: ws, CallID: &call, Type: "call.completed", Sequence: int32(i + 1),
			Body: []byte(`{}`), CreatedAt: time.Unix(1780574400+int64(i), 0)}
		if i == 0 {
			first = ev
		}
		if err := pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
			_, err := h.store.Ingest(t.Context(), tx, nil, ev)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := h.store.ClaimDue(t.Context(), dueOf(text, 1))
	if err != nil || len(claimed) != 1 || claimed[0].EventID != first.ID {
		t.Fatalf("claimed %d, %v, want the first event", len(claimed), err)
	}
	if _, err := h.store.Complete(t.Context(), []delivery.Result{{
		DeliveryID: claimed[0].DeliveryID, Attempt: 1, Outcome: delivery.Over,
		Answer: delivery.Answer{Code: 500, Failure: delivery.NotOK, Excerpt: "oops", At: time.Now(), Took: 42 * time.Millisecond},
	}}); err != nil {
		t.Fatal(err)
	}
	base := "/webhook-subscriptions/" + text
	if got := h.admin(ws, "/webhook-subscriptions"); got.status != 200 || len(got.list()) != 1 {
		t.Errorf("admin list = %d %v", got.status, got.body)
	}
	member := h.admin(ws, base)
	if flag, shown := member.body["flag"]; member.status != 200 || !shown || flag != nil || member.body["last_error"] != "http_status 500" {
		t.Errorf("admin member = %d %v, want no flag and the last error", member.status, member.body)
	}
	if got := h.admin(ws, base+"/deliveries?limit=2"); got.status != 200 || len(got.list()) != 2 || got.body["has_more"] != true {
		t.Errorf("deliveries = %d %v, want a page of 2 and more", got.status, got.body)
	} else if next := h.admin(ws, base+"/deliveries?limit=2&starting_after="+got.list()[1]); len(next.list()) != 1 || next.list()[0] != claimed[0].DeliveryID.String() {
		t.Errorf("second page = %v, want the oldest delivery", next.body)
	}
	if got := h.admin(ws, base+"/deliveries?status=failed"); len(got.list()) != 1 || got.list()[0] != delivery.ID(id, first.ID).String() {
		t.Errorf("failed deliveries = %v, want the one", got.body)
	}
	if got := h.admin(ws, base+"/deliveries?status=nope"); got.status != 422 {
		t.Errorf("unknown status = %d, want 422", got.status)
	}
	one := h.admin(ws, base+"/deliveries/"+claimed[0].DeliveryID.String())
	history, _ := one.body["history"].([]any)
	if one.status != 200 || one.body["status"] != "failed" || len(history) != 1 {
		t.Fatalf("delivery = %d %v", one.status, one.body)
	}
	if try := history[0].(map[string]any); try["attempt"] != 1.0 || try["code"] != 500.0 || try["excerpt"] != "oops" || try["duration_ms"] != 42.0 || try["error"] != "http_status" {
		t.Errorf("attempt = %v", try)
	}
	if got := h.admin(uuid.New(), base+"/deliveries"); got.status != 404 {
		t.Errorf("deliveries seen from another workspace = %d, want 404", got.status)
	}
	if got := h.do(ws, http.MethodGet, "/admin/v1/workspaces/"+ws.String()+"/webhook-subscriptions", ""); got.status != 401 {
		t.Errorf("admin route with a customer's token = %d, want 401", got.status)
	}
}
