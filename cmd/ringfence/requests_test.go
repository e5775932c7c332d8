package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/getkin/kin-openapi/openapi3"

	"ringfence.dev/proto/openapi"
)

// operatorDescription returns the parsed document of the operator API. Bodies of requests must have
// only the listed members.
func operatorDescription(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi.OperatorDescription)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range document.Components.Schemas {
		more := &schema.Value.AdditionalProperties
		if len(schema.Value.Properties) > 0 && more.Has == nil && more.Schema == nil {
			closed := false
			more.Has = &closed
		}
	}
	return document
}

// findOperation returns the operation of a request, and the path template.
func findOperation(document *openapi3.T, method, path string) (template string, item *openapi3.PathItem) {
	segments := strings.Split(path, "/")
	for candidate, described := range document.Paths.Map() {
		names := strings.Split(candidate, "/")
		if len(names) != len(segments) || described.GetOperation(method) == nil {
			continue
		}
		matches := true
		for i := range names {
			matches = matches && (names[i] == segments[i] || strings.HasPrefix(names[i], "{"))
		}
		// if two templates match, the one with fewer parameters is the route
		if matches && (item == nil || strings.Count(candidate, "{") < strings.Count(template, "{")) {
			template, item = candidate, described
		}
	}
	return template, item
}

// parameterNames returns the names of the parameters of an operation that are in the query or in a
// header.
func parameterNames(item *openapi3.PathItem, operation *openapi3.Operation, in string) (names []string) {
	for _, parameter := range slices.Concat(item.Parameters, operation.Parameters) {
		if parameter.Value.In == in {
			names = append(names, parameter.Value.Name)
		}
	}
	return names
}

// checkRequest compares a request with the document: the operation, the names in the query, the
// reason, and the body.
func checkRequest(
	document *openapi3.T, method string, address *url.URL, header http.Header, body []byte,
) (template string, err error) {
	template, item := findOperation(document, method, address.EscapedPath())
	if item == nil {
		return "", fmt.Errorf("%s %s is not described", method, address.Path)
	}
	operation := item.GetOperation(method)
	for name := range address.Query() {
		if !slices.Contains(parameterNames(item, operation, "query"), name) {
			return template, fmt.Errorf("%s %s has no query parameter %s", method, template, name)
		}
	}
	const reason = "Ringfence-Reason"
	if header.Get(reason) != "" && !slices.Contains(parameterNames(item, operation, "header"), reason) {
		return template, fmt.Errorf("%s %s has no header %s", method, template, reason)
	}
	if operation.RequestBody == nil {
		if len(body) > 0 {
			return template, fmt.Errorf("%s %s has no body, but %s was sent", method, template, body)
		}
		return template, nil
	}
	if len(body) == 0 && !operation.RequestBody.Value.Required {
		return template, nil
	}
	media := operation.RequestBody.Value.Content["application/json"]
	if media == nil {
		return template, nil // the body is not JSON
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return template, fmt.Errorf("%s %s: body %q: %w", method, template, body, err)
	}
	if err := media.Schema.Value.VisitJSON(value, openapi3.VisitAsRequest(), openapi3.MultiErrors()); err != nil {
		return template, fmt.Errorf("%s %s: body %s: %w", method, template, body, err)
	}
	return template, nil
}

// variants returns the command line, and the command line with each of its optional flags.
func variants(t *testing.T, leaf *kong.Node, line []string) (lines [][]string) {
	t.Helper()
	lines = [][]string{line}
	for _, flag := range leaf.Flags {
		given := "--" + flag.Name
		isGiven := slices.ContainsFunc(line, func(arg string) bool { return strings.HasPrefix(arg, given) })
		if isGiven || flag.Name == "file" || flag.Name == "help" {
			continue
		}
		switch {
		case flag.IsBool():
		case flag.Enum != "":
			given += "=" + slices.DeleteFunc(flag.EnumSlice(), func(value string) bool { return value == "" })[0]
		case flag.Name == "until":
			given += "=2026-06-04T09:00:00Z"
		case strings.HasSuffix(flag.Target.Type().String(), "Time"), flag.Target.Type().String() == "time.Duration":
			given += "=2h"
		case strings.Contains(flag.Target.Type().String(), "int"):
			given += "=1"
		default:
			given += "=x"
		}
		lines = append(lines, append(slices.Clone(line), given))
	}
	return lines
}

// There is no generated client of the operator API, because the commands print responses without
// decoding them. This test compares the requests of all commands with the document instead.
func TestCommands_SendOnlyRequestsOfTheDescription(t *testing.T) {
	t.Chdir(t.TempDir()) // `trunks trace --pcap=x` writes the file x
	document := operatorDescription(t)
	lines := map[string][]string{}
	for _, line := range operators(t) {
		lines[strings.Join(line[:2], " ")] = line
	}
	lines["numbers add"] = []string{"numbers", "add", "+14155550100", "01a1fe16-7bf6-7d8f-b534-2e98b17693a5"}
	lines["trunks add"] = append(lines["trunks add"], "--set=host=sip.example.com")
	var cli commands
	parser, err := cli.parser(io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	var running string
	admin(t, http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		template, err := checkRequest(document, r.Method, r.URL, r.Header, body)
		if err != nil {
			t.Errorf("%s: %v", running, err)
		}
		used[r.Method+" "+template] = true
		_, _ = io.WriteString(w, `{"id":"01a1fe16-7bf6-7d8f-b534-2e98b17693a5","name":"x","ok":true,`+
			`"done_at":"2026-06-04T09:00:00Z","data":[`+
			`{"id":"01a1fe16-7bf6-7d8f-b534-2e98b17693a6","name":"7"}],"has_more":false}`)
	}))
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	for _, leaf := range parser.Model.Leaves(false) {
		line := lines[strings.Join(strings.Fields(leaf.Path())[:min(2, len(strings.Fields(leaf.Path())))], " ")]
		if line == nil || line[0] == "services" || line[1] == "key" {
			continue // this command sends no request, or reads a secret from standard input
		}
		for _, variant := range variants(t, leaf, line) {
			running = strings.Join(variant, " ")
			runCommand(t, variant...)
		}
	}
	running = "agents key"
	withStdin(t, "a-secret-of-an-agent")
	runCommand(t, "agents", "key", "01a1fe16-7bf6-7d8f-b534-2e98b17693a5")
	for _, line := range [][]string{{"usage", "--month", "2026-06"}, {"invitations", "add", "operator", "--reason=x"}} {
		running = strings.Join(line, " ")
		runCommand(t, line...)
	}
	if len(used) < 60 {
		t.Errorf("the commands use %d operations, want at least 60", len(used))
	}
	for _, operation := range []string{
		"GET /admin/v1/people", "GET /admin/v1/people/{person_id}", "GET /admin/v1/people/{person_id}/sessions",
		"DELETE /admin/v1/people/{person_id}/sessions", "DELETE /admin/v1/people/{person_id}/operator",
		"POST /admin/v1/people/{person_id}/recovery", "GET /admin/v1/operator-invitations",
		"POST /admin/v1/operator-invitations", "GET /admin/v1/operator-invitations/{invitation_id}",
		"DELETE /admin/v1/operator-invitations/{invitation_id}", "GET /admin/v1/workspaces/{id}/members",
		"GET /admin/v1/workspaces/{id}/members/{person_id}", "PATCH /admin/v1/workspaces/{id}/members/{person_id}",
		"DELETE /admin/v1/workspaces/{id}/members/{person_id}", "GET /admin/v1/workspaces/{id}/invitations",
		"POST /admin/v1/workspaces/{id}/invitations", "GET /admin/v1/workspaces/{id}/invitations/{invitation_id}",
		"DELETE /admin/v1/workspaces/{id}/invitations/{invitation_id}",
	} {
		if !used[operation] {
			t.Errorf("no command uses %s", operation)
		}
	}
}

// withStdin replaces standard input by a file with the text.
func withStdin(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = file
	t.Cleanup(func() { os.Stdin = before; _ = file.Close() })
}

// checkRequest must report each kind of fault, otherwise the test above proves nothing.
func TestCheckRequest_ReportsFaults(t *testing.T) {
	t.Parallel()
	document := operatorDescription(t)
	const members = "/admin/v1/workspaces/7/members"
	for _, row := range []struct {
		name, method, path, reason, body, want string
	}{
		{name: "no fault", method: "PATCH", path: members + "/7", reason: "x", body: `{"role":"owner"}`},
		{name: "unknown route", method: "GET", path: members + "/7/8", want: "is not described"},
		{name: "unknown query parameter", method: "GET", path: members + "?role=owner", want: "no query parameter role"},
		{name: "reason of a read", method: "GET", path: members, reason: "x", want: "no header Ringfence-Reason"},
		{name: "body of a read", method: "GET", path: members, body: `{}`, want: "has no body"},
		{name: "unknown member", method: "PATCH", path: members + "/7", body: `{"role":"owner","x":1}`, want: `"x"`},
		{name: "unknown value", method: "PATCH", path: members + "/7", body: `{"role":"operator"}`, want: "role"},
		{name: "missing member", method: "PATCH", path: members + "/7", body: `{}`, want: "role"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			address, err := url.Parse(row.path)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			if row.reason != "" {
				header.Set("Ringfence-Reason", row.reason)
			}
			_, err = checkRequest(document, row.method, address, header, []byte(row.body))
			if row.want == "" {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			wantContains(t, "error", fmt.Sprint(err), row.want)
		})
	}
}
