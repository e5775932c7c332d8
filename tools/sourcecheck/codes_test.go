package sourcecheck

import (
	"encoding/json"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/proto/openapi"
)

// undescribedCodes are error codes of routes that are not in the API description.
var undescribedCodes = []string{
	"number_exists", "trunk_exists", "trunk_disabled", "trace_off", "no_sip", "replay_runs", // codes of the operator API
	// codes of the console API
	"already_member", "forbidden", "invalid_code", "invalid_session", "last_owner", "last_passkey", "no_access",
	"recent_sign_in_required", "sign_in_expired", "sign_in_refused",
	"range_not_satisfiable", "precondition_failed", // codes of downloads through the link of a recording
}

// forwardingFiles lists the files that return the error code of another function. The test reads
// the code in the file of that function.
var forwardingFiles = []string{
	"libs/apierr/apierr.go",
	// this file returns the error of the pre-check of contacts-compliance
	"services/calls/internal/callrequests/gates.go",
	// this file returns the result of the compliance checks
	"services/contacts-compliance/internal/checks/pre_check.go",
	// this file returns the error of the service that owns the route
	"services/gateway/internal/proxy/owner_request.go",
}

func TestErrorCodes_EqualTheExamplesOfTheAPIDescription(t *testing.T) {
	t.Parallel()
	sources, err := parseFiles(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{}
	for _, s := range sources {
		if s.test() || !strings.HasPrefix(s.path, "libs/") && !strings.HasPrefix(s.path, "services/") {
			continue
		}
		for code, line := range errorCodes(s, func(line int) {
			if !slices.Contains(forwardingFiles, s.path) {
				t.Errorf("%s:%d: the code of this refusal is no literal, so nothing can hold it against the API's description", s.path, line)
			}
		}) {
			refused[code] = s.path + ":" + strconv.Itoa(line)
		}
	}
	described := examples(t)
	for code, place := range refused {
		switch listed, shown := slices.Contains(undescribedCodes, code), slices.Contains(described, code); {
		case listed && shown:
			t.Errorf("%s: %s is in undescribedCodes and has an example in proto/openapi", place, code)
		case !listed && !shown:
			t.Errorf("%s: %s has no example in proto/openapi", place, code)
		}
	}
	for _, code := range append(described, undescribedCodes...) {
		if refused[code] == "" {
			t.Errorf("%s is described or listed, and nothing refuses with it; what does: %v", code, slices.Sorted(maps.Keys(refused)))
		}
	}
}

// errorCodes returns the error codes in a file, each with its line number. For an error whose code
// is not a literal, it calls reportUnread.
func errorCodes(s source, reportUnread func(line int)) map[string]int {
	found := map[string]int{}
	literal := func(e ast.Expr) {
		text, ok := e.(*ast.BasicLit)
		if !ok || text.Kind != token.STRING {
			reportUnread(s.line(e.Pos()))
			return
		}
		if code, err := strconv.Unquote(text.Value); err == nil {
			found[code] = s.line(e.Pos())
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch constructorName(s, n.Fun) {
			case "New":
				literal(n.Args[1])
			case "Unprocessable", "Conflict":
				literal(n.Args[0])
			}
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok && constructorName(s, n.Type) == "Error" && named(pair.Key, "Code") {
					literal(pair.Value)
				}
			}
		case *ast.ValueSpec: // constants with the codes of the compliance checks
			if strings.HasPrefix(s.path, "services/contacts-compliance/internal/gate/") && len(n.Values) == 1 && strings.HasPrefix(n.Names[0].Name, "Code") {
				literal(n.Values[0])
			}
		case *ast.AssignStmt: // the error codes in wire.go
			for i, left := range n.Lhs {
				if named(left, "code") && s.path == "libs/httpserver/wire.go" && len(n.Rhs) == len(n.Lhs) && len(n.Lhs) == 2 {
					literal(n.Rhs[i])
				}
			}
		}
		return true
	})
	return found
}

// constructorName returns the name of the apierr function that e uses, or "".
func constructorName(s source, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if named(e.X, "apierr") {
			return e.Sel.Name
		}
	case *ast.Ident:
		if strings.HasPrefix(s.path, "libs/apierr/") {
			return e.Name
		}
	}
	return ""
}

func named(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

func examples(t *testing.T) []string {
	t.Helper()
	var document struct {
		Components struct {
			Examples map[string]struct{ Value openapi.ErrorResponse }
		}
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	var found []string
	for name, example := range document.Components.Examples {
		if example.Value.Error.Code != name {
			t.Errorf("the example %s shows the code %s", name, example.Value.Error.Code)
		}
		if !strings.Contains(string(openapi.Description), `"#/components/examples/`+name+`"`) {
			t.Errorf("no answer shows the example %s", name)
		}
		found = append(found, name)
	}
	return found
}
