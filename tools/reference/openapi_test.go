package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestParseDocument_ResolvesAnchorsAndRefusesMissingValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, source, want, fault string
	}{
		{
			"anchors and merge keys are resolved in the order of the document",
			"b: &b {x: 1}\na:\n  <<: *b\n  y: true\nc: *b\n", `{"b":{"x":1},"a":{"x":1,"y":true},"c":{"x":1}}`, "",
		},
		{
			"a key beside a merge key replaces the merged key in its place",
			"b: &b {x: 1, y: 2}\na: {<<: *b, x: 3}\nc: *b\n", `{"b":{"x":1,"y":2},"a":{"x":3,"y":2},"c":{"x":1,"y":2}}`, "",
		},
		{
			"text that looks like a number stays text", "v: \"2026-06-04\"\nn: 0.035\nhtml: a < b & c\n",
			`{"v":"2026-06-04","n":0.035,"html":"a < b & c"}`, "",
		},
		{"an explicit null is kept", "a: null\n", `{"a":null}`, ""},
		{"a repeated key is refused", "a: 1\nb: 2\na: 3\n", "", `line 3: "a" occurs twice`},
		{"an unquoted comma in a one-line mapping is refused", "a: { description: one, two }\n", "", `"two" has no value`},
		{"an empty document is refused", "", "", "is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			document, err := parseDocument([]byte(tt.source))
			if tt.fault != "" {
				if err == nil {
					t.Fatalf("read succeeded, want an error with %q", tt.fault)
				}
				if !strings.Contains(err.Error(), tt.fault) {
					t.Fatalf("read = %v, want it to contain %q", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := compact(t, document); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestForGenerator_AddsTheFieldOrderAndRemovesDefaultErrors(t *testing.T) {
	t.Parallel()
	document, err := parseDocument([]byte(`
responses:
  "200": {headers: {X: 1}, content: here}
  "404": {$ref: "#/components/responses/NotFound"}
  "409": {content: {application/json: {schema: {$ref: "#/components/schemas/ContactExists"}}}}
  "422": {content: {application/json: {schema: {$ref: "#/components/schemas/ErrorResponse"}}}}
  default: {content: there}
schema:
  properties:
    b: {type: string}
    a: {$ref: "#/a"}
`))
	if err != nil {
		t.Fatal(err)
	}
	forGenerator(document)
	want := `{"responses":{"200":{"content":"here"},` +
		`"409":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/ContactExists"}}}},"default":{"content":"there"}},` +
		`"schema":{"properties":{"b":{"type":"string","x-order":0},"a":{"allOf":[{"$ref":"#/a"}],"x-order":1}}}}`
	if got := compact(t, document); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func compact(t *testing.T, document *yaml.Node) string {
	t.Helper()
	indented, err := encode(document)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, indented); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBundle_CopiesComponentsOfOtherFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	other := `components:
  schemas:
    Call: { type: object, properties: { status: { $ref: "#/components/schemas/Status" } } }
    Status: { type: string }
    Unused: { type: string }
`
	if err := os.WriteFile(filepath.Join(folder, "other.yaml"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, document, want, fault string }{
		{
			name: "a component and those to which it refers",
			document: `{paths: {$ref: "other.yaml#/components/schemas/Call"}, ` +
				`components: {schemas: {Own: {$ref: "#/components/schemas/Own"}}}}`,
			want: `{"paths":{"$ref":"#/components/schemas/Call"},` +
				`"components":{"schemas":{"Own":{"$ref":"#/components/schemas/Own"},` +
				`"Call":{"type":"object","properties":{"status":{"$ref":"#/components/schemas/Status"}}},` +
				`"Status":{"type":"string"}}}}`,
		},
		{
			name:     "a component whose name is taken",
			document: `{a: {$ref: "other.yaml#/components/schemas/Call"}, components: {schemas: {Status: {type: integer}}}}`,
			fault:    "schemas/Status of other.yaml has no free place",
		},
		{
			name:     "an unknown component",
			document: `{a: {$ref: "other.yaml#/components/schemas/Cal"}, components: {schemas: {}}}`,
			fault:    "other.yaml has no component schemas/Cal",
		},
		{
			name:     "an unknown file",
			document: `{a: {$ref: "none.yaml#/components/schemas/A"}, components: {schemas: {}}}`,
			fault:    "none.yaml",
		},
	} {
		document, err := parseDocument([]byte(row.document))
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		err = bundle(document, folder)
		if row.fault != "" {
			if err == nil || !strings.Contains(err.Error(), row.fault) {
				t.Errorf("%s: bundle = %v, want an error with %q", row.name, err, row.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		var got bytes.Buffer
		if err := writeJSON(&got, document); err != nil {
			t.Fatal(err)
		}
		if got.String() != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got.String(), row.want)
		}
	}
}
