package httpapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
)

const operatorToken = "a-token-of-ada-0001"

type receivedRequest struct {
	owner  string
	method string
	uri    string
	header http.Header
	body   string
	caller serviceauth.Caller
	ctx    context.Context // ends when the gateway disconnects
}

// rig is one gateway, or several gateways with one database. Fake services replace the services to
// which the gateway forwards requests. They record the requests.
type rig struct {
	t      testing.TB
	pool   *pgxpool.Pool
	store  *store.Store
	public *httptest.Server
	admin  *httptest.Server
	// console is nil until newConsole was called.
	console *httptest.Server
	owners  map[string]*httptest.Server
	peers   *proxy.Upstreams
	pepper  secrets.Pepper

	mu       sync.Mutex
	received []receivedRequest
	answer   func(w http.ResponseWriter, h receivedRequest) bool
	settings map[string]*settingOwner
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, owners: map[string]*httptest.Server{}, settings: map[string]*settingOwner{}}
	r.pool = pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations})
	r.store = store.New(r.pool, nil)
	gateway, err := serviceauth.New(serviceauth.Gateway, serviceauth.Config{SigningKey: seed()})
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for _, owner := range []string{proxy.Calls, proxy.Contacts, proxy.Dialer, proxy.Wallet, proxy.Webhooks} {
		keys, err := serviceauth.New(owner, serviceauth.Config{SigningKey: seed(), TrustedKeys: []string{"gateway=" + gateway.Public()}})
		if err != nil {
			t.Fatal(err)
		}
		r.settings[owner] = &settingOwner{}
		server := httptest.NewServer(r.settings[owner].handler(keys, keys.RequireCaller(r.fakeOwner(owner))))
		t.Cleanup(server.Close)
		r.owners[owner], urls[owner] = server, server.URL
	}
	if r.peers, err = proxy.New(gateway, urls); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.peers.Close)
	if r.pepper, err = secrets.NewPepper("pepper-of-the-test-0001"); err != nil {
		t.Fatal(err)
	}
	hash := r.pepper.Hash(operatorToken)
	if err := r.store.SeedOperators(t.Context(), []store.Operator{{Name: "ada", Hash: hash[:]}}); err != nil {
		t.Fatal(err)
	}
	r.public, r.admin = r.replica(nil)
	return r
}

func seed() string {
	raw := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

func (r *rig) replica(readyURLs []string) (public, admin *httptest.Server) {
	r.t.Helper()
	proxies, err := auth.ParseProxies([]string{"127.0.0.0/8"})
	if err != nil {
		r.t.Fatal(err)
	}
	ready, err := httpapi.NewReadiness(readyURLs)
	if err != nil {
		r.t.Fatal(err)
	}
	shelf, err := httpapi.NewDocs()
	if err != nil {
		r.t.Fatal(err)
	}
	authenticator := auth.New(r.store, r.pepper, proxies)
	consoleURL := &url.URL{Scheme: "https", Host: "console.example.com"}
	public = httptest.NewServer(httpapi.NewPublic(authenticator, r.store, r.peers, ready, shelf, nil))
	admin = httptest.NewServer(httpapi.NewAdmin(authenticator, r.store, r.peers, r.pepper, ready, consoleURL, shelf, nil))
	r.t.Cleanup(public.Close)
	r.t.Cleanup(admin.Close)
	return public, admin
}

// fakeOwner returns a fake service. It records each request and responds 200 {"owner":…}, unless
// the test sets another response.
func (r *rig) fakeOwner(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		h := receivedRequest{owner: name, method: request.Method, uri: request.RequestURI, header: request.Header.Clone(),
			body: string(body), caller: serviceauth.CallerFrom(request.Context()),
			ctx: request.Context()}
		r.mu.Lock()
		r.received = append(r.received, h)
		answer := r.answer
		r.mu.Unlock()
		if answer != nil && answer(w, h) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Service-Version", "of the owner")
		_, _ = io.WriteString(w, `{"owner":"`+name+`"}`)
	})
}

func (r *rig) answers(answer func(w http.ResponseWriter, h receivedRequest) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *rig) requestsTo(owner string) []receivedRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(func(yield func(receivedRequest) bool) {
		for _, h := range r.received {
			if h.owner == owner && !yield(h) {
				return
			}
		}
	})
}

type answered struct {
	status int
	header http.Header
	body   string
}

func (a answered) code() string {
	var refused struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(a.body), &refused)
	return refused.Error.Code
}

func (a answered) member(name string) string {
	var members map[string]any
	_ = json.Unmarshal([]byte(a.body), &members)
	value, _ := members[name].(string)
	return value
}

func send(t testing.TB, method, address, bearer, body string, header http.Header) answered {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	// These members of the OpenAPI document contain example requests. The timestamps of a request may
	// have another form.
	testkit.CheckTimestamps(t, read, "paths", "webhooks", "parameters")
	return answered{response.StatusCode, response.Header, string(read)}
}

func (r *rig) operator(method, path, body string) answered {
	r.t.Helper()
	return send(r.t, method, r.admin.URL+path, operatorToken, body, nil)
}

func (r *rig) customer(method, path, key, body string) answered {
	r.t.Helper()
	return send(r.t, method, r.public.URL+path, key, body, nil)
}

func (r *rig) workspace(members string) string {
	r.t.Helper()
	body := `{"name":"Acme","plan":"growth","currency":"USD"}`
	if members != "" {
		body = strings.TrimSuffix(body, "}") + "," + members + "}"
	}
	made := r.operator("POST", "/admin/v1/workspaces", body)
	if made.status != http.StatusCreated {
		r.t.Fatalf("POST workspace = %d %s", made.status, made.body)
	}
	return made.member("id")
}

func (r *rig) key(workspaceID, access string) (key, id string) {
	r.t.Helper()
	made := r.operator("POST", "/admin/v1/workspaces/"+workspaceID+"/api-keys", `{"name":"test","access":"`+access+`"}`)
	if made.status != http.StatusCreated {
		r.t.Fatalf("POST api-keys: made.status = %v, want %v; made.body = %s", made.status, http.StatusCreated, made.body)
	}
	if made.header.Get("Cache-Control") != "no-store" {
		r.t.Fatalf(`POST api-keys: made.header.Get("Cache-Control") = %q, want "no-store"; made.body = %s`,
			made.header.Get("Cache-Control"), made.body)
	}
	return made.member("key"), made.member("id")
}

type entry struct {
	ID          uuid.UUID
	Operator    string
	WorkspaceID string `json:"workspace_id"`
	Method      string
	Route       string
	Path        string
	Status      *int
	Outcome     string
	Before      map[string]any
	After       map[string]any
}

func (r *rig) audit(workspaceID string) []entry {
	r.t.Helper()
	listed := r.operator("GET", "/admin/v1/audit?limit=100&workspace_id="+workspaceID, "")
	var page struct{ Data []entry }
	if err := json.Unmarshal([]byte(listed.body), &page); err != nil {
		r.t.Fatalf("audit = %d %s: %v", listed.status, listed.body, err)
	}
	return page.Data
}

func (r *rig) count(table string) (n int) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// pgOwner runs a statement as the database role that owns the tables.
func (r *rig) pgOwner(sql string) {
	r.t.Helper()
	if _, err := pgtest.Owner(r.t, r.pool, store.Schema).Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}
