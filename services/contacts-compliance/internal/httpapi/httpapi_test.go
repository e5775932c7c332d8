package httpapi_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
	"ringfence.dev/services/contacts-compliance/internal/imports"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

func chains(t testing.TB) *consentchain.Keys {
	t.Helper()
	keys, err := consentchain.NewKeys(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

const service = "contacts-compliance"

type fixture struct {
	url      string
	handler  http.Handler
	pool     *pgxpool.Pool
	importer *imports.Importer
	packs    countryrules.Library
	// the version of the workspace that contains the newest policy
	version   int64
	peers     map[string]*serviceauth.Keys
	workspace uuid.UUID
}

func peer(t testing.TB, name string, trusted ...string) *serviceauth.Keys {
	t.Helper()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	keys, err := serviceauth.New(name, serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(seed),
		TrustedKeys: trusted})
	if err != nil {
		t.Fatalf("keys of %s: %v", name, err)
	}
	return keys
}

func start(t testing.TB) *fixture {
	t.Helper()
	pool := pgtest.New(t, "contacts_compliance", outbox.Migrations, inbox.Migrations,
		pg.Migrations{Name: "contacts_compliance", FS: store.Migrations})
	r := &fixture{pool: pool, peers: map[string]*serviceauth.Keys{}, workspace: uuid.Must(uuid.NewV7())}
	trusted := []string{}
	for _, name := range []string{"gateway", "calls", "dialer"} {
		r.peers[name] = peer(t, name)
		trusted = append(trusted, name+"="+r.peers[name].Public())
	}
	st := store.New(pool, chains(t))
	r.importer = imports.New(st)
	packs, err := countryrules.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	r.packs = packs
	handler, err := httpapi.New(st, checks.New(st, packs, prometheus.NewRegistry()), r.importer, func() {},
		peer(t, service, trusted...), nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	r.url, r.handler = server.URL, handler
	return r
}

type response struct {
	status int
	raw    string
	body   map[string]any
}

func (a response) code() string {
	inner, _ := a.body["error"].(map[string]any)
	code, _ := inner["code"].(string)
	return code
}

func (a response) message() string {
	inner, _ := a.body["error"].(map[string]any)
	message, _ := inner["message"].(string)
	return message
}

func (r *fixture) send(t testing.TB, c serviceauth.Caller, method, path, body string) response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	token, err := r.peers["gateway"].SignCaller(service, c)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(serviceauth.CallerHeader, token)
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	testkit.CheckTimestamps(t, raw, "variables", "metadata", "local_time")
	got := response{status: res.StatusCode, raw: string(raw)}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&got.body); err != nil {
		t.Fatalf("%s %s = %d %q, want JSON", method, path, got.status, raw)
	}
	return got
}

func (r *fixture) customer(t testing.TB, method, path, body string) response {
	t.Helper()
	return r.send(t, serviceauth.Caller{WorkspaceID: r.workspace, RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Write}, method, path, body)
}

// operator sends a request as operator ann. A %s in the path is replaced by the workspace.
func (r *fixture) operator(t testing.TB, method, path, body string) response {
	t.Helper()
	caller := serviceauth.Caller{WorkspaceID: r.workspace, RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Write,
		Operator: "ann"}
	return r.send(t, caller, method, fmt.Sprintf(path, r.workspace), body)
}

func (r *fixture) checkResponse(t testing.TB, got response, status int, code string) {
	t.Helper()
	if got.status != status {
		t.Errorf("got.status = %v, want %v; got.raw = %s", got.status, status, got.raw)
	} else if got.code() != code {
		t.Errorf("got.code() = %q, want %q; got.raw = %s", got.code(), code, got.raw)
	}
}

func keysOf(m map[string]any) map[string]bool {
	set := map[string]bool{}
	for key := range m {
		set[key] = true
	}
	return set
}
