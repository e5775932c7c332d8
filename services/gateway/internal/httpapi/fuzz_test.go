package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// FuzzPublic sends requests with a valid key. The fake services behind the gateway accept every
// request. The rate limit is raised, because a fuzzer sends more requests than any plan allows.
func FuzzPublic(f *testing.F) {
	r := newRig(f)
	key, _ := r.key(r.workspace(`"rate_limit_per_minute":1000000`), "write")
	var routes []string
	queries := map[string][]string{}
	for _, known := range proxy.Public() {
		path := strings.NewReplacer("{id}", "{}", "{phone_e164}", "{}").Replace(known.Template)
		for _, method := range known.Methods {
			routes = append(routes, method+" "+path)
		}
		queries["GET "+path] = []string{"limit"}
	}
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", strings.Repeat("X", 5000)} {
		routes = append(routes, method+" /v1/calls/{}")
	}
	surface := testkit.Surface{
		Handler: emptyIsNoBody(r.public.Config.Handler), Routes: routes, Queries: queries,
		Prepare: func(t testing.TB, request *http.Request) {
			if needsNoKey(request.URL) {
				t.Skip("it needs no key")
			}
			request.Header.Set("Authorization", "Bearer "+key)
		},
		Bodies: map[string][]string{"POST /v1/calls": {`{"a":1}`}},
	}
	surface.Fuzz(f)
}

// needsNoKey reports whether a path needs no key. The response for such a path is not always JSON.
func needsNoKey(address *url.URL) bool {
	open := []string{"/readyz", "/openapi.json", "/llms.txt"}
	return slices.Contains(open, address.Path) || strings.HasPrefix(address.Path, "/docs")
}

// emptyIsNoBody removes the media type from a response to HEAD, which has no body. Otherwise the
// test would report that the body is not JSON.
func emptyIsNoBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if recorder, ok := w.(*httptest.ResponseRecorder); ok && r.Method == http.MethodHead && recorder.Body.Len() == 0 {
			recorder.Body.WriteString("{}")
		}
	})
}

func FuzzAdmin(f *testing.F) {
	r := newRig(f)
	id := r.workspace("")
	_, keyID := r.key(id, "read")
	home := "/admin/v1/workspaces/" + id
	change := `{"name":"Acme","plan":"growth","currency":"USD","status":"active","calling_policy":{"window":{"start":"09:00"}},"features":{"api":true,"webhooks":null},` +
		`"rate_limit_per_minute":60,"max_live_calls":5,"calls_per_second":1,"destinations":["+1"]}`
	testkit.Surface{
		Handler: emptyIsNoBody(r.admin.Config.Handler),
		Prepare: func(_ testing.TB, request *http.Request) {
			request.Header.Set("Authorization", "Bearer "+operatorToken)
		},
		Routes: []string{
			"GET /admin/v1/workspaces", "POST /admin/v1/workspaces", "GET /admin/v1/workspaces/{}", "PATCH " + home, "GET " + home + "/api-keys",
			"POST " + home + "/api-keys", "GET " + home + "/api-keys/{}", "GET /admin/v1/audit", "GET /admin/v1/audit/{}", "GET " + home + "/{}",
			"POST " + home + "/agents", "PUT " + home + "/contacts/{}/consent", "GET " + home + "/consent-records", "PATCH /admin/v1/workspaces/{}",
		},
		IDs: []string{keyID, id},
		Bodies: map[string][]string{
			"POST /admin/v1/workspaces": {change}, "PATCH " + home: {change, `{"features":{"api":"yes"}}`,
				`{"calling_policy":{"x":1e400000}}`, `{"destinations":[1]}`, `{"retention":{"calls_days":"x"}}`,
				`{"inbound":{"per_minute":"0.05"}}`},
			"POST " + home + "/api-keys": {`{"name":"k","access":"read"}`}, "POST " + home + "/agents": {`{"name":"a"}`},
		},
		Queries: map[string][]string{
			"GET /admin/v1/workspaces": {"limit", "starting_after"}, "GET /admin/v1/audit": {"limit", "starting_after", "workspace_id"},
			"GET " + home + "/api-keys": {"limit", "starting_after"}, "GET " + home + "/consent-records": {"phone"},
		},
	}.Fuzz(f)
}

// FuzzUnauthenticated sends requests without a valid key. The response is 401 for every path,
// method and credential.
func FuzzUnauthenticated(f *testing.F) {
	r := newRig(f)
	key, _ := r.key(r.workspace(""), "read")
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer  " + key[:20], "bearer\t" + key, "Basic " + key, "Bearer " + key + key, "Bearer rf_live_\x00", key,
		"Bearer rf_live_00000000_" + strings.Repeat("\xff", 52), "Bearer " + strings.Repeat("a", 60000)} {
		f.Add("GET", "/v1/calls", header, "203.0.113.7, 198.51.100.1")
		f.Add("OPTIONS", "*", header, strings.Repeat("1,", 5000))
	}
	f.Fuzz(func(t *testing.T, method, path, authorization, forwarded string) {
		address, err := url.ParseRequestURI(path)
		if err != nil {
			t.Skip("the path is not a request URI")
		}
		if method == "" || needsNoKey(address) {
			t.Skip("not a request that needs a key")
		}
		if strings.Contains(authorization, key) {
			t.Skip("the good key")
		}
		request, ok := testkit.Request(t, method, path, nil)
		if !ok {
			t.Skip("net/http refuses the request line by itself")
		}
		request.RemoteAddr = "127.0.0.1:1" // the address of a trusted proxy
		request.Header.Set("Authorization", authorization)
		request.Header.Set("X-Forwarded-For", forwarded)
		answer := httptest.NewRecorder()
		r.public.Config.Handler.ServeHTTP(answer, request)
		testkit.MustAnswer(t, request, answer)
		if answer.Code != http.StatusUnauthorized && answer.Code != http.StatusTooManyRequests {
			t.Errorf("%s %q with %q = %d", method, path, authorization, answer.Code)
		}
		for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if len(answer.Header().Values(name)) != 1 {
				t.Errorf("%s = %q", name, answer.Header().Values(name))
			}
		}
	})
}

// FuzzWorkspace checks that the database table accepts each workspace that the validation accepts.
func FuzzWorkspace(f *testing.F) {
	good := `{"name":"Acme","plan":"growth","currency":"USD","status":"active","calling_policy":{"window":{}},"features":{"api":true},"rate_limit_per_minute":60,"destinations":["+1"]}`
	for _, body := range append(testkit.Mutations(good), good) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		request, _ := testkit.Request(t, http.MethodPost, "/", body)
		var change workspaces.Change
		if httpserver.DecodeJSON(request, &change) != nil {
			return
		}
		made, err := workspaces.New(uuid.Must(uuid.NewV7()), "ada", change)
		if err != nil {
			return
		}
		if made.Event().GetWorkspace().GetName() != made.Name {
			t.Errorf("made.Event().GetWorkspace().GetName() = %v, want %v", made.Event().GetWorkspace().GetName(), made.Name)
		}
		if len(made.Currency) != 3 {
			t.Fatalf("length of made.Currency = %v, want 3", len(made.Currency))
		}
		if made.MaxLiveCalls < 1 {
			t.Errorf("made.MaxLiveCalls = %v, want at least 1", made.MaxLiveCalls)
		}
		if made.CallsPerSecond < 1 {
			t.Errorf("made.CallsPerSecond = %v, want at least 1", made.CallsPerSecond)
		}
		if made.RatePerMinute() < 1 {
			t.Errorf("made.RatePerMinute() = %v, want at least 1", made.RatePerMinute())
		}
		change.Status = workspaces.Optional[workspaces.Status]{} // POST ignores the member status
		if _, err := made.Changed("ada", change); err != nil {
			t.Errorf("%s made a workspace that the same change refuses: %v", body, err)
		}
	})
}
