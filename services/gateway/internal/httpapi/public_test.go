package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/gateway/internal/proxy"
)

const anID = "0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"

func TestPublic_RunsChecksInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	growth := r.workspace("")
	read, _ := r.key(growth, "read")
	write, _ := r.key(growth, "write")
	starter, _ := r.key(r.workspace(`"plan":"starter"`), "read")
	mute, _ := r.key(r.workspace(`"features":{"webhooks":false}`), "read")
	only, _ := r.key(r.workspace(`"plan":"starter","features":{"api":true}`), "write")
	tight, _ := r.key(r.workspace(`"plan":"starter","rate_limit_per_minute":1`), "read")
	if got := r.customer("GET", "/v1/calls", tight, ""); got.code() != "api_not_enabled" {
		t.Fatalf("first request = %d %s", got.status, got.body)
	}
	forged := read[:len(read)-4] + "aaaa"

	for _, row := range []struct {
		name, method, path, key string
		status                  int
		code                    string
	}{
		{"a missing key is checked before the route", "POST", "/v1/nothing", "", 401, "invalid_api_key"},
		{"a malformed key", "GET", "/v1/calls", "abc", 401, "invalid_api_key"},
		{"an unknown key", "GET", "/v1/calls", forged, 401, "invalid_api_key"},
		{"an operator token instead of a key", "GET", "/v1/calls", operatorToken, 401, "invalid_api_key"},
		{"the rate limit is checked before the plan", "POST", "/v1/nothing", tight, 429, "rate_limited"},
		{"the plan is checked before the scope", "POST", "/v1/calls", starter, 403, "api_not_enabled"},
		{"the plan is checked before the route", "GET", "/v1/nothing", starter, 403, "api_not_enabled"},
		{
			"the webhooks feature is checked before the scope", "POST", "/v1/webhook-subscriptions", mute, 403,
			"webhooks_not_enabled",
		},
		{
			"the webhooks feature is checked before the method", "PUT", "/v1/webhook-subscriptions/" + anID, mute, 403,
			"webhooks_not_enabled",
		},
		{
			"the webhooks feature is checked before the route", "GET", "/v1/webhook-subscriptions/a/b/c", mute, 403,
			"webhooks_not_enabled",
		},
		{"the API feature does not include webhooks", "GET", "/v1/webhook-subscriptions", only, 403, "webhooks_not_enabled"},
		{"the event stream needs the webhooks feature", "GET", "/v1/events", mute, 403, "webhooks_not_enabled"},
		{"the scope is checked before the route", "POST", "/v1/nothing", read, 403, "missing_scope"},
		{"the scope is checked before the method", "DELETE", "/v1/wallet", read, 403, "missing_scope"},
		{"an unknown route", "GET", "/v1/nothing", read, 404, "not_found"},
		{"an unknown API version", "GET", "/v2/calls", read, 404, "not_found"},
		{"a trailing slash", "GET", "/v1/calls/", read, 404, "not_found"},
		{"a wrong method", "DELETE", "/v1/wallet", write, 405, "method_not_allowed"},
		{"GET on a route with POST only", "GET", "/v1/opt-outs", read, 405, "method_not_allowed"},
		{"a malformed query", "GET", "/v1/calls?status=%zz", read, 422, "validation_error"},
	} {
		before := len(r.requestsTo(proxy.Calls)) + len(r.requestsTo(proxy.Webhooks)) + len(r.requestsTo(proxy.Wallet))
		got := r.customer(row.method, row.path, row.key, "")
		if got.status != row.status {
			t.Errorf("%s: got.status = %v, want %v; got.body = %s", row.name, got.status, row.status, got.body)
		} else if got.code() != row.code {
			t.Errorf("%s: got.code() = %q, want %q; got.body = %s", row.name, got.code(), row.code, got.body)
		}
		if after := len(r.requestsTo(proxy.Calls)) + len(r.requestsTo(proxy.Webhooks)) +
			len(r.requestsTo(proxy.Wallet)); after != before {
			t.Errorf("%s: it reached an owner", row.name)
		}
		mustHaveHeaders(t, row.name, got)
		if (got.header.Get("Retry-After") != "") != (row.status == 429) {
			t.Errorf("%s: Retry-After = %q", row.name, got.header.Get("Retry-After"))
		}
	}
	if got := r.customer("DELETE", "/v1/contacts/"+anID, write, ""); got.header.Get("Allow") != "GET, HEAD, PATCH" {
		t.Errorf("Allow = %q", got.header.Get("Allow"))
	}
}

func mustHaveHeaders(t *testing.T, name string, got answered) {
	t.Helper()
	for _, header := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if len(got.header.Values(header)) != 1 {
			t.Errorf("%s: %s = %q, want one", name, header, got.header.Values(header))
		}
	}
	if values := got.header.Values("Service-Version"); len(values) != 1 {
		t.Errorf("%s: length of values = %d, want 1", name, len(values))
	} else if values[0] != "2026-06-04" {
		t.Errorf(`%s: values[0] = %q, want "2026-06-04"`, name, values[0])
	}
	if got.status >= 400 && got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: Content-Type = %q", name, got.header.Get("Content-Type"))
	}
}

func TestPublic_EveryRouteReachesItsService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace("")
	read, readID := r.key(workspaceID, "read")
	write, writeID := r.key(workspaceID, "write")
	for _, row := range []struct{ method, path, owner string }{
		{"GET", "/v1/calls?limit=3", proxy.Calls},
		{"POST", "/v1/calls", proxy.Calls},
		{"GET", "/v1/calls/" + anID + "/recording", proxy.Calls},
		{"POST", "/v1/call-requests/" + anID + "/cancel", proxy.Calls},
		{"PATCH", "/v1/contacts/" + anID, proxy.Contacts},
		{"DELETE", "/v1/opt-outs/+15550100", proxy.Contacts},
		{"GET", "/v1/wallet", proxy.Wallet},
		{"POST", "/v1/webhook-subscriptions/" + anID + "/rotate-secret", proxy.Webhooks},
		{"HEAD", "/v1/call-requests", proxy.Calls},
		{"GET", "/v1/decisions", proxy.Contacts},
		{"POST", "/v1/calls/" + anID + "/hangup", proxy.Calls},
		{"GET", "/v1/dialing", proxy.Dialer},
		{"PUT", "/v1/dialing", proxy.Dialer},
	} {
		key, keyID, access := read, readID, serviceauth.Read
		if row.method != "GET" && row.method != "HEAD" {
			key, keyID, access = write, writeID, serviceauth.Write
		}
		before := len(r.requestsTo(row.owner))
		got := r.customer(row.method, row.path, key, `{"a":1}`)
		received := r.requestsTo(row.owner)
		if got.status != http.StatusOK {
			t.Errorf("%s %s: got.status = %v, want %v; got.body = %s",
				row.method, row.path, got.status, http.StatusOK, got.body)
			continue
		}
		requests := 1
		if slices.Contains([]string{"PUT", "PATCH", "DELETE"}, row.method) {
			requests = 2 // the gateway first sends a GET to read the state for the audit log
		}
		if len(received) != before+requests {
			t.Errorf("%s %s: length of received = %d, want %d; got.body = %s",
				row.method, row.path, len(received), before+requests, got.body)
			continue
		}
		mustHaveHeaders(t, row.path, got)
		last := received[len(received)-1]
		want := serviceauth.Caller{
			WorkspaceID: uuid.MustParse(workspaceID), RequestID: last.caller.RequestID, Access: access, Webhooks: true,
			KeyID: uuid.MustParse(keyID),
		}
		if last.caller != want {
			t.Errorf("last.caller = %v, want %v", last.caller, want)
		}
		if last.caller.RequestID == uuid.Nil {
			t.Errorf("last.caller.RequestID = %v, want another value", last.caller.RequestID)
		}
		if last.method != row.method {
			t.Errorf("last.method = %v, want %v", last.method, row.method)
		}
		if last.uri != row.path {
			t.Errorf("last.uri = %v, want %v", last.uri, row.path)
		}
		if last.body != `{"a":1}` {
			t.Errorf("last.body = %q, want %q", last.body, `{"a":1}`)
		}
		if got.header.Get("X-Request-Id") != last.caller.RequestID.String() {
			t.Errorf("X-Request-Id = %q", got.header.Get("X-Request-Id"))
		}
	}
}

// A preview changes nothing, so read access must be enough. contacts-compliance does not store the
// destinations of a workspace, so the gateway must send them with the request.
func TestPublic_ReadAccessIsEnoughForAPreviewOfADecision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace("")
	read, _ := r.key(workspaceID, "read")
	for _, want := range []string{`[]`, `["+1","+44"]`} {
		patched := r.operator("PATCH", "/admin/v1/workspaces/"+workspaceID, `{"destinations":`+want+`}`)
		if patched.status != http.StatusOK {
			t.Fatalf("PATCH destinations = %d %s", patched.status, patched.body)
		}
		if got := r.customer("POST", proxy.DecisionPreview, read, `{"to":"+15550100"}`); got.status != http.StatusOK {
			t.Fatalf("preview with read access = %d %s", got.status, got.body)
		}
		received := r.requestsTo(proxy.Contacts)
		sent, err := json.Marshal(received[len(received)-1].caller.Destinations)
		if err != nil {
			t.Fatal(err)
		}
		if string(sent) != want {
			t.Errorf("destinations = %s, want %s", sent, want)
		}
	}
	if got := r.customer("GET", proxy.DecisionPreview, read, ""); got.code() != "method_not_allowed" {
		t.Errorf("GET = %d %s, want method_not_allowed", got.status, got.body)
	}
}

func TestPublic_RemovesHeadersThatClientsMustNotSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	got := send(t, "POST", r.public.URL+"/v1/calls", key, `{}`, http.Header{
		"X-Ringfence-Caller":  {"forged"},
		"X-Ringfence-Service": {"forged"},
		"X-Ringfence-Other":   {"forged"},
		"Traceparent":         {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Baggage":             {"a=b"},
		"Cookie":              {"a=b"},
		"Connection":          {"Upgrade, X-Hop"},
		"X-Hop":               {"1"},
		"Upgrade":             {"websocket"},
		"X-Forwarded-For":     {"10.1.1.1"},
		"Idempotency-Key":     {"order-7"},
		"Content-Type":        {"application/json"},
	})
	received := r.requestsTo(proxy.Calls)
	if got.status != http.StatusOK {
		t.Fatalf("POST: got.status = %v, want %v; got.body = %s", got.status, http.StatusOK, got.body)
	}
	if len(received) != 1 {
		t.Fatalf("POST: length of received = %d, want 1; got.body = %s", len(received), got.body)
	}
	for _, name := range []string{"Authorization", "X-Ringfence-Service", "X-Ringfence-Other", "Traceparent", "Baggage", "Cookie", "X-Hop", "Upgrade", "Connection", "X-Forwarded-For"} {
		if value := received[0].header.Get(name); value != "" {
			t.Errorf("%s = %q arrived", name, value)
		}
	}
	if len(received[0].header.Values(serviceauth.CallerHeader)) != 1 {
		t.Fatalf("headers: length of received[0].header.Values(serviceauth.CallerHeader) = %v, want 1",
			len(received[0].header.Values(serviceauth.CallerHeader)))
	}
	if received[0].header.Get("Idempotency-Key") != "order-7" {
		t.Errorf("headers: Idempotency-Key = %q, want \"order-7\"", received[0].header.Get("Idempotency-Key"))
	}
	if received[0].header.Get("Content-Type") != "application/json" {
		t.Errorf("headers: Content-Type = %q, want \"application/json\"", received[0].header.Get("Content-Type"))
	}
}

// The HTTP client of net/http repeats a POST that has an Idempotency-Key if the connection breaks
// before the response. The gateway must not repeat such requests.
func TestPublic_GatewayDoesNotRepeatAPOSTWithoutAResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	// this request opens the connection that the next request uses
	send(t, "GET", r.public.URL+"/v1/contacts", key, "", nil)
	r.answers(func(_ http.ResponseWriter, h receivedRequest) bool {
		if h.method == http.MethodPost {
			panic(http.ErrAbortHandler) // the fake service breaks the connection after it has made the change
		}
		return false
	})
	got := send(t, "POST", r.public.URL+"/v1/contacts", key, `{"phone_e164":"+14155550101"}`,
		http.Header{"Idempotency-Key": {"a"}, "X-Idempotency-Key": {"b"}})
	posts := 0
	for _, h := range r.requestsTo(proxy.Contacts) {
		if h.method == http.MethodPost {
			posts++
		}
	}
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("POST: got.status = %v, want %v", got.status, http.StatusServiceUnavailable)
	} else if posts != 1 {
		t.Errorf("POST: posts = %v, want 1", posts)
	}
}

// The test sends paths that two routers could interpret differently. Such a path must reach no
// service.
func TestPublic_AmbiguousPathReachesNoService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(`"features":{"webhooks":false},"rate_limit_per_minute":1000`), "read")
	for _, path := range []string{
		"/v1/calls/../webhook-subscriptions", "/v1/calls/%2e%2e/webhook-subscriptions", "/v1/calls/%2E%2E%2Fwebhook-subscriptions/..",
		"//v1/webhook-subscriptions", "/v1//webhook-subscriptions", "/v1/./webhook-subscriptions", "/v1/webhook%2Dsubscriptions",
		"/v1%2Fwebhook-subscriptions", "/v1/calls/..", "/v1/opt-outs/%2e%2e", "/v1/calls//", "/v1/c%61lls", "/V1/calls",
		"/internal/v1/workspaces/" + anID + "/policy", "/admin/v1/workspaces", "/v1/../admin/v1/workspaces", "/v1/calls/%2e%2e/%2e%2e/admin/v1/workspaces",
	} {
		got := rawGET(t, r.public, path, key)
		if got.status != http.StatusNotFound && got.status != http.StatusForbidden {
			t.Errorf("%s = %d %s, want 404 or 403", path, got.status, got.body)
		}
	}
	r.mu.Lock()
	for _, h := range r.received {
		if !strings.HasPrefix(h.uri, "/internal/") ||
			h.caller.Operator == "" { // ignore the operator requests that create the workspace of the test
			t.Errorf("%s received %s", h.owner, h.uri)
		}
	}
	r.mu.Unlock()

	// Unusual but harmless paths must reach the service that owns the route. The service must
	// always receive the same encoding of a path.
	for path, want := range map[string]string{
		"/v1/calls/a%2F..%2F..%2Fwallet": "/v1/calls/a%2F..%2F..%2Fwallet",
		"/v1/opt-outs/%2B15550100":       "/v1/opt-outs/+15550100",
		"/v1/opt-outs/%31":               "/v1/opt-outs/1",
		"/v1/contacts/a%00b":             "/v1/contacts/a%00b",
	} {
		if got := rawGET(t, r.public, path, key); got.status != http.StatusOK {
			t.Errorf("%s = %d %s", path, got.status, got.body)
		}
		received := append(r.requestsTo(proxy.Calls), r.requestsTo(proxy.Contacts)...)
		if !strings.Contains(uris(received), want+"\n") {
			t.Errorf("%s arrived as %s, want %s", path, uris(received), want)
		}
	}
}

func uris(all []receivedRequest) string {
	var text strings.Builder
	for _, h := range all {
		text.WriteString(h.uri + "\n")
	}
	return text.String()
}

// rawGET sends a path unchanged. The HTTP client of net/http would normalize the path.
func rawGET(t *testing.T, server *httptest.Server, path, key string) answered {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Opaque = path
	if strings.HasPrefix(path, "//") {
		request.URL.Opaque = server.URL + path
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return answered{response.StatusCode, response.Header, string(body)}
}

func TestPublic_TooLargeBodyReachesNoService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	large := strings.Repeat("x", httpserver.MaxBody+1)
	if got := r.customer("POST", "/v1/calls", key, large); got.status != 413 {
		t.Errorf("sized: got.status = %v, want 413; got.body = %s", got.status, got.body)
	} else if got.code() != "request_too_large" {
		t.Errorf(`sized: got.code() = %q, want "request_too_large"; got.body = %s`, got.code(), got.body)
	}
	request, err := http.NewRequestWithContext(t.Context(), "POST", r.public.URL+"/v1/calls", io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 413 {
		t.Errorf("chunked = %d, want 413", response.StatusCode)
	}
	if got := r.customer("POST", "/v1/calls", key, large[:httpserver.MaxBody]); got.status != http.StatusOK {
		t.Errorf("a body at the limit = %d %s", got.status, got.body)
	}
	if n := len(r.requestsTo(proxy.Calls)); n != 1 {
		t.Errorf("calls received %d requests, want once", n)
	}
}

func TestPublic_UnavailableServiceGives503OnItsRoutesOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	r.owners[proxy.Wallet].Close()
	got := r.customer("GET", "/v1/wallet", key, "")
	if got.status != 503 {
		t.Errorf("wallet: got.status = %v, want 503", got.status)
	}
	if got.code() != "unavailable" {
		t.Errorf("wallet: got.code() = %q, want \"unavailable\"", got.code())
	}
	if got.header.Get("Retry-After") == "" {
		t.Errorf("wallet: Retry-After is empty")
	}
	mustHaveHeaders(t, "503", got)
	if got := r.customer("GET", "/v1/calls", key, ""); got.status != http.StatusOK {
		t.Errorf("calls = %d %s", got.status, got.body)
	}
	r.answers(func(http.ResponseWriter, receivedRequest) bool { panic(http.ErrAbortHandler) })
	got = r.customer("POST", "/v1/calls", key, "{}")
	if got.status != 503 {
		t.Errorf("an owner that dies in the middle: got.status = %v, want 503", got.status)
	} else if !strings.Contains(got.body, "not known") {
		t.Errorf(`an owner that dies in the middle: got.body = %q, want it to contain "not known"`, got.body)
	}
	if got := r.customer("GET", "/v1/calls", key, ""); got.status != 503 {
		t.Errorf("an owner that dies while it is read: got.status = %v, want 503", got.status)
	} else if !strings.Contains(got.body, "Nothing was changed") {
		t.Errorf(`an owner that dies while it is read: got.body = %q, want it to contain "Nothing was changed"`, got.body)
	}
	if got := r.operator("GET", "/admin/v1/workspaces/"+workspace+"/calls", ""); got.status != 503 {
		t.Errorf("an owner that dies while an operator reads it: got.status = %v, want 503", got.status)
	} else if !strings.Contains(got.body, "Nothing was changed") {
		t.Errorf(`an owner that dies while an operator reads it: got.body = %q, want it to contain "Nothing was changed"`,
			got.body)
	}
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	if got := r.customer("GET", "/v1/calls", key, ""); got.status != 500 {
		t.Errorf("an owner that distrusts us = %d %s, want 500: the customer's key is good", got.status, got.body)
	}
}

func TestPublic_UnavailableDatabaseGives503(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	r.pool.Close()
	got := r.customer("GET", "/v1/calls", key, "")
	if got.status != 503 {
		t.Errorf("GET: got.status = %v, want 503; got.body = %s", got.status, got.body)
	} else if got.code() != "unavailable" {
		t.Errorf(`GET: got.code() = %q, want "unavailable"; got.body = %s`, got.code(), got.body)
	}
	mustHaveHeaders(t, "503", got)
}

func TestReadyz_ListsServicesThatAreNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }))
	defer up.Close()
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer down.Close()
	hung := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer silent.Close()
	defer close(hung)

	ready, _ := r.replica([]string{"calls=" + up.URL, "dialer=" + down.URL, "dialer=" + up.URL})
	if got := send(t, "GET", ready.URL+"/readyz", "", "", nil); got.status != http.StatusOK {
		t.Errorf("all ready: got.status = %v, want %v", got.status, http.StatusOK)
	} else if strings.TrimSpace(got.body) != `{"status":"ready"}` {
		t.Errorf("all ready: strings.TrimSpace(got.body) = %q, want %q", strings.TrimSpace(got.body), `{"status":"ready"}`)
	}
	unready, _ := r.replica([]string{"calls=" + up.URL, "dialer=" + down.URL, "billing-wallet=" + silent.URL})
	got := send(t, "GET", unready.URL+"/readyz", "", "", nil)
	want := `{"error":{"code":"unavailable","message":"Not ready yet: billing-wallet, dialer."}}`
	if got.status != 503 {
		t.Errorf("unready: got.status = %v, want 503", got.status)
	} else if strings.TrimSpace(got.body) != want {
		t.Errorf("unready: strings.TrimSpace(got.body) = %v, want %v", strings.TrimSpace(got.body), want)
	}
	mustHaveHeaders(t, "readyz", got)
	if n := r.count("rate_limits"); n != 0 {
		t.Errorf("probes were counted: %d rows", n)
	}
}
