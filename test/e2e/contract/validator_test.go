// Validation of requests, responses and webhook deliveries against the OpenAPI description. The
// validation records which items occurred. It is stricter than the description: an object without
// additionalProperties has only the listed members, an id is a UUID in lower case, and a time is in
// UTC with exactly three decimals.

package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// Document is a parsed description. Its methods can be called concurrently.
type Document struct {
	spec *openapi3.T
	mu   sync.Mutex
	seen map[string]int
}

// Load parses a description (OpenAPI 3.1, JSON).
func Load(description []byte) (*Document, error) {
	loader := openapi3.NewLoader()
	spec, err := loader.LoadFromData(description)
	if err != nil {
		return nil, fmt.Errorf("load the description: %w", err)
	}
	if err := spec.Validate(loader.Context); err != nil {
		return nil, fmt.Errorf("validate the description: %w", err)
	}
	d := &Document{spec: spec, seen: map[string]int{}}
	// The description does not require call_request_id, because stored events of earlier versions
	// lack it. New responses and events must have it.
	if call := spec.Components.Schemas["Call"]; call != nil { // the document of the console has no calls
		call.Value.Required = append(call.Value.Required, "call_request_id")
		spec.Components.Schemas["CallSummary"].Value.Properties["scheduled_for"].Value.Format = offsetDateTime
	}
	for _, item := range spec.Paths.Map() {
		for _, operation := range item.Operations() {
			for _, response := range operation.Responses.Map() {
				tightenContent(response.Value.Content)
			}
		}
	}
	for _, response := range spec.Components.Responses {
		tightenContent(response.Value.Content)
	}
	for _, item := range spec.Webhooks {
		tightenContent(item.Post.RequestBody.Value.Content)
	}
	return d, nil
}

func tightenContent(content openapi3.Content) {
	for _, media := range content {
		forbidUnlisted(media.Schema, map[*openapi3.Schema]bool{})
	}
}

// forbidUnlisted sets additionalProperties to false in every object schema that does not define it.
// For a schema with allOf, anyOf or oneOf, it changes the combined schemas instead.
func forbidUnlisted(ref *openapi3.SchemaRef, done map[*openapi3.Schema]bool) {
	if ref == nil || ref.Value == nil || done[ref.Value] {
		return
	}
	s := ref.Value
	done[s] = true
	consists := len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0
	if !consists && s.Type.Includes(openapi3.TypeObject) && s.AdditionalProperties.Has == nil &&
		s.AdditionalProperties.Schema == nil {
		closed := false
		s.AdditionalProperties.Has = &closed
	}
	for _, property := range s.Properties {
		forbidUnlisted(property, done)
	}
	forbidUnlisted(s.Items, done)
	for _, some := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
		for _, one := range some {
			forbidUnlisted(one, done)
		}
	}
}

// operation is the documented operation of a request. Operation is nil if the method or path is not
// documented.
type operation struct {
	*openapi3.Operation
	path   string
	item   *openapi3.PathItem
	values map[string]string
}

// findOperation counts HEAD as GET.
func (d *Document) findOperation(method string, address *url.URL) (found operation) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for path, item := range d.spec.Paths.Map() {
		values, ok := match(path, address.EscapedPath())
		// if two paths match, use the path with fewer parameters
		if ok && (found.item == nil || len(values) < len(found.values)) {
			found = operation{item.GetOperation(knownMethod(method)), path, item, values}
		}
	}
	return found
}

// knownMethod returns the method. For an unknown method, for which the library panics, it returns
// TRACE, which no path has.
func knownMethod(method string) string {
	if slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}, method) {
		return method
	}
	return http.MethodTrace
}

func match(template, path string) (map[string]string, bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	values := map[string]string{}
	for i := range want {
		if name, ok := strings.CutPrefix(want[i], "{"); ok {
			text, err := url.PathUnescape(got[i])
			if err != nil || text == "" || text == "." || text == ".." {
				return nil, false
			}
			values[strings.TrimSuffix(name, "}")] = text
		} else if want[i] != got[i] {
			return nil, false
		}
	}
	return values, true
}

var statusOf = map[string]int{
	"bad_request": 400, "invalid_api_key": 401, "insufficient_credits": 402, "missing_scope": 403, "api_not_enabled": 403,
	"webhooks_not_enabled": 403, "not_found": 404, "transcript_not_available": 404, "recording_not_available": 404,
	"method_not_allowed": 405, "request_timeout": 408, "contact_exists": 409, "subscription_limit_reached": 409,
	"subscription_not_active": 409, "not_cancelable": 409, "request_too_large": 413, "expectation_failed": 417,
	"validation_error": 422, "invalid_phone": 422, "invalid_agent": 422, "invalid_contact": 422, "contact_phone_mismatch": 422,
	"recipient_dnd": 422, "consent_withdrawn": 422, "outside_calling_hours": 422, "invalid_url": 422, "no_events": 422,
	"invalid_event_type": 422, "invalid_status": 422, "invalid_action": 422, "rate_limited": 429, "headers_too_large": 431,
	"internal_error": 500, "unavailable": 503, "invalid_state": 409,
}

// Answer validates a response: status, headers, content type, body and error code. The error lists
// all faults. If no operation is documented for the request, the response must be one of the
// general errors.
func (d *Document) Answer(method string, address *url.URL, status int, header http.Header, body []byte) error {
	op := d.findOperation(method, address)
	response, name := d.response(op, status)
	if response == nil {
		return fmt.Errorf("%s %s: status %d is not documented (body %.200s)", method, address.Path, status, body)
	}
	var wrong []error
	for _, h := range sorted(response.Headers) {
		wrong = append(wrong, checkHeader(h, response.Headers[h].Value, header))
	}
	var code string
	if method != http.MethodHead {
		var err error
		code, err = checkBody(response, status, header, body)
		wrong = append(wrong, err)
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("%s %s = %d %.400s is not as documented: %w", method, address.Path, status, body, err)
	}
	if method != http.MethodHead {
		d.see(strings.TrimSpace(name + " " + code))
	}
	return nil
}

// response returns the documented response with the status, and the name under which the response
// is recorded.
func (d *Document) response(op operation, status int) (*openapi3.Response, string) {
	text := strconv.Itoa(status)
	if op.Operation == nil { // a request without a route gets the errors of the gateway
		shared := map[int][]string{401: {"InvalidApiKey"}, 403: {"WriteForbidden", "WebhookWriteForbidden"}, 404: {"NotFound"}, 413: {"RequestTooLarge"}, 429: {"RateLimited"}}[status]
		if shared == nil {
			return d.spec.Components.Responses["Refusal"].Value, "default"
		}
		merged := *d.spec.Components.Responses[shared[0]].Value
		if len(shared) > 1 {
			merged = mergeResponses(merged, *d.spec.Components.Responses[shared[1]].Value)
		}
		return &merged, fmt.Sprint("no route ", text)
	}
	if documented := op.Responses.Value(text); documented != nil {
		return documented.Value, op.OperationID + " " + text
	}
	if fallback := op.Responses.Default(); fallback != nil && status >= http.StatusBadRequest {
		return fallback.Value, "default"
	}
	return nil, ""
}

// mergeResponses returns a response that permits the error codes of a and those of b.
func mergeResponses(a, b openapi3.Response) openapi3.Response {
	media := *a.Content["application/json"]
	media.Examples = openapi3.Examples{}
	for _, r := range []openapi3.Response{a, b} {
		for code, example := range r.Content["application/json"].Examples {
			media.Examples[code] = example
		}
	}
	a.Content = openapi3.Content{"application/json": &media}
	return a
}

func checkHeader(name string, documented *openapi3.Header, header http.Header) error {
	values := header.Values(name)
	switch {
	case len(values) == 0 && documented.Required:
		return fmt.Errorf("header %s is missing", name)
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return fmt.Errorf("header %s is there %d times", name, len(values))
	}
	var value any = values[0]
	if documented.Schema.Value.Type.Is(openapi3.TypeInteger) {
		if _, err := strconv.ParseInt(values[0], 10, 64); err != nil {
			return fmt.Errorf("header %s: %q is no integer", name, values[0])
		}
		value = json.Number(values[0])
	}
	if err := documented.Schema.Value.VisitJSON(value,
		openapi3.WithStringFormatValidators(responseFormats())); err != nil {
		return fmt.Errorf("header %s: %w", name, err)
	}
	return nil
}

func checkBody(response *openapi3.Response, status int, header http.Header, body []byte) (code string, err error) {
	sent := header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(sent)
	media := response.Content[kind]
	if err != nil || media == nil {
		return "", fmt.Errorf("content type %q is not documented", sent)
	}
	if kind != "application/json" {
		return "", nil
	}
	value, err := decode(body)
	if err != nil {
		return "", err
	}
	if err := media.Schema.Value.VisitJSON(value, openapi3.VisitAsResponse(), openapi3.MultiErrors(),
		openapi3.WithStringFormatValidators(responseFormats())); err != nil {
		return "", err
	}
	if status < http.StatusBadRequest {
		return "", nil
	}
	// The schema has validated the types, so the assertions cannot fail.
	code = value.(map[string]any)["error"].(map[string]any)["code"].(string)
	if media.Examples[code] == nil {
		return "", fmt.Errorf("code %q is not documented here; %v are", code, sorted(media.Examples))
	}
	if statusOf[code] != status {
		return "", fmt.Errorf("code %q with status %d, want %d", code, status, statusOf[code])
	}
	return code, nil
}

func decode(body []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the JSON value")
	}
	return value, nil
}
