package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

// isStrict reports whether the request has the preference handling=strict (RFC 7240, section 4.4).
// If the preference occurs several times, isStrict uses the first one.
func isStrict(header http.Header) bool {
	for _, line := range header.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.TrimSpace(name), "handling") {
				return strings.EqualFold(strings.Trim(strings.TrimSpace(value), `"`), "strict")
			}
		}
	}
	return false
}

// strictResponse sets the header Preference-Applied if the request is accepted. A response with an
// error does not have the header.
type strictResponse struct{ http.ResponseWriter }

func (w strictResponse) WriteHeader(status int) {
	if status >= http.StatusOK && status < http.StatusBadRequest {
		w.Header().Set("Preference-Applied", "handling=strict")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the writer for http.ResponseController.
func (w strictResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checkStrict refuses a request with the preference handling=strict that has unknown fields or
// query parameters. The handler must write the response to the returned writer.
func (d *description) checkStrict(
	w http.ResponseWriter, r *http.Request, template string,
) (http.ResponseWriter, error) {
	if !isStrict(r.Header) {
		return w, nil
	}
	if err := proxy.BufferBody(w, r); err != nil {
		return w, err
	}
	var body []byte
	if r.GetBody != nil {
		again, err := r.GetBody()
		if err != nil {
			return w, err
		}
		if body, err = io.ReadAll(again); err != nil {
			return w, err
		}
	}
	return strictResponse{w}, d.check(r.Method, template, r.URL.Query(), body)
}

// checkStrictPath is checkStrict for the operation of the request's path. It does nothing if the
// description has no such operation, because the router then refuses the request.
func (d *description) checkStrictPath(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, error) {
	match, found := d.table.Find(r.URL)
	if !found || !match.Allows(r.Method) {
		return w, nil
	}
	return d.checkStrict(w, r, match.Template)
}

// withStrictCheck calls checkStrictPath before the next handler.
func withStrictCheck(d *description) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
			w, err := d.checkStrictPath(w, r)
			if err != nil {
				return err
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

// description finds fields and query parameters that the API description does not have.
type description struct {
	operations map[string]operation // by method and path, for example "GET /v1/calls"
	schemas    map[string]schema
	// table is sorted so that a path without parameters precedes a path with parameters: Find returns
	// the first match.
	table proxy.Table
}

type operation struct {
	query []string
	body  *schema // nil if the operation has no body
}

// schema contains the parts of a JSON schema that determine the names of members.
type schema struct {
	Ref                  string            `json:"$ref"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	AnyOf                []schema          `json:"anyOf"` // for example an object or null
}

// newDescription reads the API description. An operation can have parameters and a JSON body. A
// parameter can be a reference.
func newDescription(document []byte) (*description, error) {
	type parameter struct {
		Ref  string `json:"$ref"`
		Name string `json:"name"`
		In   string `json:"in"`
	}
	type described struct {
		Parameters  []parameter
		RequestBody *struct {
			Content map[string]struct{ Schema schema }
		}
	}
	var read struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]parameter
			Schemas    map[string]schema
		}
	}
	if err := json.Unmarshal(document, &read); err != nil {
		return nil, fmt.Errorf("read API description: %w", err)
	}
	d := &description{operations: map[string]operation{}, schemas: read.Components.Schemas}
	operations, err := openapi.OperationsOf(document)
	if err != nil {
		return nil, err
	}
	for _, o := range operations { // sorted by path
		if last := len(d.table) - 1; last >= 0 && d.table[last].Template == o.Path {
			d.table[last].Methods = append(d.table[last].Methods, o.Method)
		} else {
			d.table = append(d.table, proxy.Route{Template: o.Path, Methods: []string{o.Method}})
		}
		var shared []parameter
		if text := read.Paths[o.Path]["parameters"]; text != nil {
			if err := json.Unmarshal(text, &shared); err != nil {
				return nil, fmt.Errorf("read parameters of %s: %w", o.Path, err)
			}
		}
		var found described
		if err := json.Unmarshal(read.Paths[o.Path][strings.ToLower(o.Method)], &found); err != nil {
			return nil, fmt.Errorf("read operation %s: %w", o, err)
		}
		var known operation
		for _, p := range slices.Concat(shared, found.Parameters) {
			if p.Ref != "" {
				p = read.Components.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
			}
			if p.In == "query" {
				known.query = append(known.query, p.Name)
			}
		}
		if found.RequestBody != nil {
			body := found.RequestBody.Content["application/json"].Schema
			known.body = &body
		}
		d.operations[o.String()] = known
	}
	return d, nil
}

// check returns a 422 validation_error that names every unknown query parameter and body field. It
// ignores a body that is not JSON, because the service that owns the route refuses that body.
func (d *description) check(method, template string, query url.Values, body []byte) error {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	known := d.operations[method+" "+template]
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known.query, name) {
			faults = append(faults, apierr.Validation(name, "is not a query parameter of this operation."))
		}
	}
	var value any
	if len(body) > 0 && json.Unmarshal(body, &value) == nil {
		var s schema
		if known.body != nil {
			s = *known.body
		} else if members, ok := value.(map[string]any); ok && len(members) > 0 {
			s.AdditionalProperties = false
		}
		for _, name := range d.unknown(s, value, "") {
			faults = append(faults, apierr.Validation(name, "is not a field of this operation."))
		}
	}
	return apierr.Join(faults...)
}

// unknown returns the paths of the members that the schema does not have, for example
// "events[0].name". A schema without properties permits every member, unless it forbids additional
// properties.
func (d *description) unknown(s schema, value any, path string) (names []string) {
	for _, alternative := range s.AnyOf {
		if alternative.Ref != "" {
			s = alternative
		}
	}
	if s.Ref != "" {
		s = d.schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	switch value := value.(type) {
	case map[string]any:
		closed := s.AdditionalProperties == nil && s.Properties != nil || s.AdditionalProperties == false
		for _, name := range slices.Sorted(maps.Keys(value)) {
			member := strings.TrimPrefix(path+"."+name, ".")
			if property, ok := s.Properties[name]; ok {
				names = append(names, d.unknown(property, value[name], member)...)
			} else if closed {
				names = append(names, member)
			}
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		for i, item := range value {
			names = append(names, d.unknown(*s.Items, item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return names
}
