package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

// undescribedPaths are the paths that the OpenAPI document does not describe: the documents
// themselves, and the links to recordings.
var undescribedPaths = []string{"/docs/*", "/llms.txt", "/recordings/*"}

func TestRoutes_MatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	var routed []string
	for _, r := range append(proxy.Public(), proxy.Open()...) {
		for _, method := range r.Methods {
			if !slices.Contains(undescribedPaths, r.Template) {
				routed = append(routed, method+" "+r.Template)
			}
		}
	}
	var described []string
	for _, operation := range operations(t) {
		described = append(described, operation.String())
	}
	testkit.Same(t, routed, described)
}

func operations(t *testing.T) []openapi.Operation {
	t.Helper()
	all, err := openapi.Operations()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRoutes_EveryOperationReachesItsService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(`"rate_limit_per_minute":1000`), "write")
	for _, operation := range operations(t) {
		path := strings.NewReplacer("{id}", anID, "{phone_e164}", "+14155550101").Replace(operation.Path)
		if operation.Tag == "Service" {
			if got := r.customer(operation.Method, path, "", ""); got.status != http.StatusOK {
				t.Errorf("%s %s without a key = %d %s", operation.Method, path, got.status, got.body)
			}
			continue
		}
		match, ok := proxy.Public().Find(&url.URL{Path: path})
		if !ok {
			t.Errorf("ok = false, want true; operation.Method = %s; path = %s", operation.Method, path)
			continue
		}
		if match.Template != operation.Path {
			t.Errorf("match.Template = %v, want %v; operation.Method = %s; path = %s",
				match.Template, operation.Path, operation.Method, path)
			continue
		}
		if match.Owner == proxy.Gateway { // timeline_test.go tests this route
			continue
		}
		before := len(r.requestsTo(match.Owner))
		got := r.customer(operation.Method, path, key, "")
		received := r.requestsTo(match.Owner)
		if got.status != http.StatusOK {
			t.Errorf("%s %s: got.status = %v, want %v", operation.Method, path, got.status, http.StatusOK)
		}
		if len(received) == before {
			t.Fatalf("%s %s reached no service", operation.Method, path)
		}
		// before the change, the service can receive a GET that reads the object for the audit log
		last := received[len(received)-1]
		if last.method != operation.Method || last.uri != path {
			t.Errorf("the service received %s %s, want %s %s", last.method, last.uri, operation.Method, path)
		}
	}
}

func TestPublic_OpenRoutesNeedNoKeyAndAreNotCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/readyz", 200, ""},
		{"GET", "/openapi.json", 200, ""},
		{"HEAD", "/openapi.json", 200, ""},
		{"GET", "/docs", 200, ""},
		{"GET", "/docs/", 200, ""},
		{"HEAD", "/docs", 200, ""},
		{"GET", "/docs/reference.js", 200, ""},
		{"GET", "/docs/guides", 200, ""},
		{"GET", "/docs/guides/", 200, ""},
		{"GET", "/docs/guides/index.html", 200, ""},
		{"GET", "/docs/guides/architecture.html", 200, ""},
		{"GET", "/docs/guides/architecture.md", 200, ""},
		{"GET", "/docs/guides/nothing.html", 404, "not_found"},
		{"GET", "/llms.txt", 200, ""},
		{"GET", "/docs/nothing.js", 404, "not_found"},
		{"GET", "/docs/page/index.html", 404, "not_found"},
		{"POST", "/docs/nothing.js", 404, "not_found"},
		{"GET", "/docs/%2e%2e/v1/calls", 401, "invalid_api_key"},
		{"GET", "/docsx", 401, "invalid_api_key"},
		{"POST", "/docs", 405, "method_not_allowed"},
		{"DELETE", "/docs/reference.css", 405, "method_not_allowed"},
		{"PUT", "/openapi.json", 405, "method_not_allowed"},
		{"OPTIONS", "/openapi.json", 405, "method_not_allowed"},
		{"DELETE", "/readyz", 405, "method_not_allowed"},
	} {
		got := r.customer(row.method, row.path, "", "")
		if got.status != row.status {
			t.Errorf("%s %s: got.status = %v, want %v; got.body = %s", row.method, row.path, got.status, row.status, got.body)
		} else if got.code() != row.code {
			t.Errorf("%s %s: got.code() = %q, want %q; got.body = %s", row.method, row.path, got.code(), row.code, got.body)
		}
		if allow := got.header.Get("Allow"); row.status == 405 && row.path != "/readyz" && allow != "GET, HEAD" {
			t.Errorf("%s %s: Allow = %q", row.method, row.path, allow)
		}
		if row.method == "HEAD" {
			if got.body != "" {
				t.Errorf("%s %s: body = %q, want none", row.method, row.path, got.body)
			}
			if length, err := strconv.Atoi(got.header.Get("Content-Length")); err != nil {
				t.Errorf("%s %s: strconv.Atoi: %v", row.method, row.path, err)
			} else if length == 0 {
				t.Errorf(`%s %s: length = 0, want more; got.header.Get("Content-Length") = %q`,
					row.method, row.path, got.header.Get("Content-Length"))
			}
		}
		mustHaveHeaders(t, row.method+" "+row.path, got)
		if got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s may be sniffed", row.method, row.path)
		}
		if counted := r.count("rate_limits"); row.status != 401 && counted != 0 {
			t.Fatalf("%s %s was counted", row.method, row.path)
		}
		if _, err := r.pool.Exec(t.Context(), "DELETE FROM rate_limits"); err != nil {
			t.Fatal(err)
		}
	}
}
