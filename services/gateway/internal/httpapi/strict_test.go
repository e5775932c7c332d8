package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/proto/openapi"
)

func TestIsStrict_RecognizesPreferHandlingStrict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		prefer []string
		want   bool
	}{
		{name: "no header", prefer: nil, want: false},
		{name: "strict", prefer: []string{"handling=strict"}, want: true},
		{name: "lenient", prefer: []string{"handling=lenient"}, want: false},
		{name: "another case and quotes", prefer: []string{`Handling = "STRICT"`}, want: true},
		{name: "with a parameter", prefer: []string{"handling=strict; foo=bar"}, want: true},
		{name: "second preference", prefer: []string{"return=minimal, handling=strict"}, want: true},
		{name: "second line", prefer: []string{"wait=10", "handling=strict"}, want: true},
		{name: "first of two", prefer: []string{"handling=lenient, handling=strict"}, want: false},
		{name: "another preference", prefer: []string{"respond-async"}, want: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := isStrict(http.Header{"Prefer": tt.prefer}); got != tt.want {
				t.Errorf("isStrict(%q) = %v, want %v", tt.prefer, got, tt.want)
			}
		})
	}
}

func TestDescription_UnknownFieldOrParameterIsNamedInTheError(t *testing.T) {
	t.Parallel()
	d, err := newDescription(openapi.Description)
	if err != nil {
		t.Fatal(err)
	}
	const (
		calls, subscriptions = "/v1/calls", "/v1/webhook-subscriptions"
		field, parameter     = " is not a field of this operation.", " is not a query parameter of this operation."
	)
	tests := []struct {
		name     string
		method   string
		template string
		query    string
		body     string
		want     string // the error message, or "" if the request is accepted
	}{
		{
			name:     "known fields",
			method:   "POST",
			template: calls,
			body:     `{"agent_id":"a","to":"b","variables":{"any":{"thing":1}}}`,
		},
		{
			name:     "misspelled field",
			method:   "POST",
			template: calls,
			body:     `{"agentid":"a","to":"b"}`,
			want:     "agentid" + field,
		},
		{
			name: "field of an object that can be null", method: "POST", template: "/v1/contacts",
			body: `{"consent":{"status":"consented","source":"form","at":1}}`, want: "consent.at" + field,
		},
		{name: "field in another case", method: "POST", template: calls, body: `{"To":"b"}`, want: "To" + field},
		{
			name: "two fields and a parameter", method: "POST", template: calls, query: "limit=1", body: `{"b":1,"a":1}`,
			want: "limit" + parameter + " a" + field + " b" + field,
		},
		{name: "known parameters", method: "GET", template: calls, query: "limit=1&status=busy&to=x&starting_after=y"},
		{name: "unknown parameter", method: "GET", template: calls, query: "phone=x", want: "phone" + parameter},
		{name: "HEAD has the parameters of GET", method: "HEAD", template: calls, query: "status=busy"},
		{
			name:     "list of a field",
			method:   "POST",
			template: subscriptions,
			body:     `{"name":"n","url":"u","events":["call.completed"]}`,
		},
		{
			name:     "operation without a body",
			method:   "POST",
			template: subscriptions + "/{id}/test",
			body:     `{"to":"x"}`,
			want:     "to" + field,
		},
		{
			name:     "empty body of an operation without a body",
			method:   "POST",
			template: subscriptions + "/{id}/test",
			body:     `{}`,
		},
		{name: "not JSON", method: "POST", template: calls, body: `{"agentid"`},
		{name: "not an object", method: "POST", template: calls, body: `[1]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			query, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			var want error
			if tt.want != "" {
				want = apierr.Unprocessable("validation_error", "%s", tt.want)
			}
			if diff := cmp.Diff(want, d.check(tt.method, tt.template, query, []byte(tt.body))); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
		})
	}
}

// The check reads properties, items and references of a schema. If the document described a body in
// another way, for example with allOf, every field would be accepted. The test detects such a body.
func TestDescription_CheckRefusesUnknownNamesOfEveryOperation(t *testing.T) {
	t.Parallel()
	const parameter = "no_such is not a query parameter of this operation."
	for name, document := range map[string][]byte{
		"openapi.json": openapi.Description, "operator.json": openapi.OperatorDescription,
		"console.json": openapi.ConsoleDescription,
	} {
		d, err := newDescription(document)
		if err != nil {
			t.Fatal(err)
		}
		operations, err := openapi.OperationsOf(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			want, body := parameter+" no_such is not a field of this operation.", `{"no_such":1}`
			switch o.ID {
			case "putOptOutImportPart": // the body is CSV
				want = parameter
			case "createAgent", "changeAgent": // an agent can have further settings
				want = parameter
			case "replaceRates": // the body is a list
				want, body = parameter+" [0].no_such is not a field of this operation.", `[{"no_such":1}]`
			}
			got := d.check(o.Method, o.Path, url.Values{"no_such": {"1"}}, []byte(body))
			if diff := cmp.Diff(error(apierr.Unprocessable("validation_error", "%s", want)), got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, o, diff)
			}
		}
	}
}

// A path can match a template without parameters and a template with parameters. Find must return
// the template without parameters.
func TestDescription_FindsTheOperationOfAPath(t *testing.T) {
	t.Parallel()
	for name, document := range map[string][]byte{
		"openapi.json": openapi.Description, "operator.json": openapi.OperatorDescription,
		"console.json": openapi.ConsoleDescription,
	} {
		d, err := newDescription(document)
		if err != nil {
			t.Fatal(err)
		}
		operations, err := openapi.OperationsOf(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			path := strings.NewReplacer("{", "", "}", "").Replace(o.Path)
			match, found := d.table.Find(&url.URL{Path: path})
			if !found {
				t.Errorf("%s: no operation for %s", name, path)
			}
			if match.Template != o.Path {
				t.Errorf("%s: operation of %s = %q, want %q", name, path, match.Template, o.Path)
			}
			if !match.Allows(o.Method) {
				t.Errorf("%s: %s is not allowed at %s", name, o.Method, path)
			}
		}
	}
}
