package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

var pathParameter = regexp.MustCompile(`\{\w+\}`)

// withoutNames replaces {id} and {phone_e164} by {}, because parameters have different names in the
// routers and in the API description.
func withoutNames(template string) string { return pathParameter.ReplaceAllString(template, "{}") }

// operatorOperations returns the operations of the document of the operator API, as "GET /path".
func operatorOperations(t *testing.T) (operations []string) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openapi.OperatorDescription, &document); err != nil {
		t.Fatal(err)
	}
	for path, members := range document.Paths {
		for method := range members {
			if method != "parameters" {
				operations = append(operations, strings.ToUpper(method)+" "+withoutNames(path))
			}
		}
	}
	return operations
}

// The document must describe exactly the routes of the gateway and of the services to which the
// gateway forwards requests.
func TestOperatorDescription_HasEveryOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var routed []string
	for _, route := range ownerRoutes(t) {
		if strings.HasPrefix(route[1], "/admin/v1/") {
			routed = append(routed, route[0]+" "+withoutNames(route[1]))
		}
	}
	err := httpapi.ConsoleRoutes(r.consoleConfig(), func(method, template string) {
		if strings.HasPrefix(template, "/admin/v1/") && !genericRoute.MatchString(template) {
			routed = append(routed, method+" "+withoutNames(template))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Same(t, routed, operatorOperations(t))
}

func TestOperatorDescription_HasEveryRouteOfTheProxyTable(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	for _, operation := range operatorOperations(t) {
		_, path, _ := strings.Cut(operation, " ")
		described[path] = true
	}
	for _, route := range proxy.Admin() {
		if template := withoutNames(route.Template); !strings.HasSuffix(template, "*") && !described[template] {
			t.Errorf("the document does not have %s", route.Template)
		}
	}
	for path := range described {
		address := &url.URL{Path: strings.ReplaceAll(path, "{}", "a")}
		if _, found := proxy.Admin().Find(address); !found && !isOfGateway(path) {
			t.Errorf("no service owns %s", path)
		}
	}
}

// isOfGateway reports whether the gateway itself handles the path.
func isOfGateway(path string) bool {
	for _, own := range []string{
		"/admin/v1/workspaces", "/admin/v1/services", "/admin/v1/audit", "/admin/v1/parked-records",
		"/admin/v1/parked-records/{}/replay", "/admin/v1/people", "/admin/v1/people/{}/sessions",
		"/admin/v1/people/{}/operator", "/admin/v1/people/{}/recovery", "/admin/v1/operator-invitations",
		"/admin/v1/workspaces/{}/members", "/admin/v1/workspaces/{}/invitations",
	} {
		if path == own || path == own+"/{}" {
			return true
		}
	}
	return strings.Contains(path, "/api-keys") || strings.HasSuffix(path, "/timeline") || strings.HasSuffix(path, "/audit")
}

func TestOperatorDocs_AreServedWithoutAToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct{ path, kind, want string }{
		{path: "/openapi.json", kind: "application/json", want: "/admin/v1/workspaces"},
		{path: "/docs", kind: "text/html; charset=utf-8", want: "Ringfence operator API"},
		{path: "/docs/", kind: "text/html; charset=utf-8", want: "Ringfence operator API"},
		{path: "/docs/reference.js", kind: "text/javascript; charset=utf-8", want: "SwaggerUIBundle"},
		{path: "/docs/guides/operate.html", kind: "text/html; charset=utf-8", want: "Operate"},
	} {
		answer, body := getPage(t, r.admin.URL+row.path, "")
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s = %d, want 200", row.path, answer.StatusCode)
		}
		if got := answer.Header.Get("Content-Type"); got != row.kind {
			t.Errorf("%s: Content-Type = %q, want %q", row.path, got, row.kind)
		}
		if got := answer.Header.Get("Content-Security-Policy"); got != httpapi.Policy {
			t.Errorf("%s: Content-Security-Policy = %q, want %q", row.path, got, httpapi.Policy)
		}
		if !strings.Contains(body, row.want) {
			t.Errorf("%s does not contain %q", row.path, row.want)
		}
	}
	for _, path := range []string{"/admin/v1/workspaces", "/docs/nothing", "/"} {
		if answer, _ := getPage(t, r.admin.URL+path, ""); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token = %d, want 401", path, answer.StatusCode)
		}
	}
}

func TestRoot_RedirectsOnlyBrowsers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, row := range []struct {
		name, address, accept, location string
		status                          int
	}{
		{
			name: "a browser at the public address", address: r.public.URL + "/", accept: browser, status: 302,
			location: "/docs/guides/index.html",
		},
		{name: "a browser at the admin address", address: r.admin.URL + "/", accept: browser, status: 302, location: "/docs"},
		{name: "curl at the public address", address: r.public.URL + "/", accept: "*/*", status: 401},
		{name: "curl at the admin address", address: r.admin.URL + "/", accept: "*/*", status: 401},
		{name: "a client of the API", address: r.public.URL + "/", accept: "application/json", status: 401},
		{name: "a browser at another path", address: r.public.URL + "/v1/calls", accept: browser, status: 401},
	} {
		answer, _ := getPage(t, row.address, row.accept)
		if answer.StatusCode != row.status {
			t.Errorf("%s: status = %d, want %d", row.name, answer.StatusCode, row.status)
		}
		if got := answer.Header.Get("Location"); got != row.location {
			t.Errorf("%s: Location = %q, want %q", row.name, got, row.location)
		}
		if row.status == http.StatusFound && answer.Header.Get("Service-Version") == "" {
			t.Errorf("%s: Service-Version is missing", row.name)
		}
	}
}

// getPage sends a GET request without a key and does not follow a redirect.
func getPage(t *testing.T, address, accept string) (answer *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	answer, err = http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}
