package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
)

// consoleOperations returns the operations that the document of the console API describes. The key
// is a method and a path, such as "GET /path". The value is the security of the operation, or nil
// if the operation needs a session.
func consoleOperations(t *testing.T) map[string][]any {
	t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openapi.ConsoleDescription, &document); err != nil {
		t.Fatal(err)
	}
	operations := map[string][]any{}
	for path, members := range document.Paths {
		for method, member := range members {
			if method == "parameters" {
				continue
			}
			var operation struct{ Security []any }
			if err := json.Unmarshal(member, &operation); err != nil {
				t.Fatal(err)
			}
			operations[strings.ToUpper(method)+" "+path] = operation.Security
		}
	}
	return operations
}

// The document must describe exactly the routes of the role table and of the sign-in.
func TestConsoleDescription_HasEveryRoute(t *testing.T) {
	t.Parallel()
	var permitted, open, described, openDescribed []string
	for _, rule := range httpapi.ConsoleRules() {
		if strings.HasPrefix(rule.Template, "/console/v1/") {
			permitted = append(permitted, rule.Method+" "+rule.Template)
		}
	}
	err := httpapi.SignInRoutes(newRig(t).consoleConfig(), func(method, template string) {
		if strings.HasPrefix(template, "/console/v1/") {
			open = append(open, method+" "+template)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for operation, security := range consoleOperations(t) {
		if security == nil {
			described = append(described, operation)
		} else {
			openDescribed = append(openDescribed, operation)
		}
	}
	testkit.Same(t, permitted, described)
	testkit.Same(t, open, openDescribed)
}

// Each route of the document must exist. So its response must differ from the response of an
// unknown route.
func TestConsoleDescription_EveryRouteIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	operator := r.operatorSession()
	workspace := r.workspace("")
	for operation, security := range consoleOperations(t) {
		method, path, _ := strings.Cut(operation, " ")
		if method == http.MethodDelete || strings.Contains(path, "oidc") || strings.Contains(path, "passkey") ||
			strings.Contains(path, "registration") {
			continue // this route ends the session, or is not configured in this test
		}
		token := operator
		if security != nil {
			token = ""
		}
		header := http.Header{"Ringfence-Workspace": {workspace}}
		got := send(t, method, r.console.URL+pathParameter.ReplaceAllString(path, anID), token, "{}", header)
		unknown := send(t, method, r.console.URL+"/console/v1/nothing", token, "{}", header)
		if got.status == unknown.status && got.body == unknown.body {
			t.Errorf("%s = %d %s, as an unknown route", operation, got.status, got.body)
		}
	}
}

func TestConsoleDescription_NeedsASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	viewer, _ := r.memberSession(r.workspace(""), people.Viewer)
	const path = "/console/v1/openapi.json"
	wantAnswer(t, "no session", r.visit("GET", path, "", ""), http.StatusUnauthorized, "invalid_session")
	got := r.visit("GET", path, viewer, "")
	if got.status != http.StatusOK || got.body != string(openapi.ConsoleDescription) {
		t.Errorf("GET %s = %d, %d bytes, want 200 and the document", path, got.status, len(got.body))
	}
	if kinds := got.header.Values("Content-Type"); !slices.Equal(kinds, []string{"application/json"}) {
		t.Errorf("Content-Type = %q, want application/json", kinds)
	}
}
