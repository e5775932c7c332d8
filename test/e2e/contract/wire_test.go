package contract

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Lenient is a request header that the transport removes. A request with this header need not be
// valid by the OpenAPI description, because the services accept more than they document. The
// header's value names the undocumented part.
const Lenient = "Validating-Lenient"

// Wire returns a transport that validates each response. It also validates each request with a 2xx
// response, because accepted requests must be documented. The round trip returns an error if the
// request or the response is invalid.
func (d *Document) Wire(next http.RoundTripper) http.RoundTripper { return &wireChecks{d, next} }

type wireChecks struct {
	document *Document
	next     http.RoundTripper
}

// readBody reads the body. An event stream has no end, so readBody reads only its first line.
func readBody(response *http.Response) ([]byte, error) {
	if response.Header.Get("Content-Type") == "text/event-stream" {
		line, err := bufio.NewReader(response.Body).ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = nil // the response to HEAD has no body
		}
		return line, err
	}
	return io.ReadAll(response.Body)
}

// RoundTrip sends the request and validates it and the response.
func (w *wireChecks) RoundTrip(request *http.Request) (*http.Response, error) {
	lenient := request.Header.Get(Lenient) != ""
	sent := request
	if lenient {
		sent = request.Clone(request.Context())
		sent.Header.Del(Lenient)
	}
	response, err := w.next.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	body, err := readBody(response)
	response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err := w.document.Answer(request.Method, request.URL, response.StatusCode, response.Header, body); err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusMultipleChoices && !lenient {
		if err := w.document.Request(request, response.StatusCode); err != nil {
			return nil, err
		}
	}
	return response, nil
}

// Request validates a request whose response has the given status. It skips replayed POST /v1/calls
// requests, and bodies that cannot be read again. A + in the query is not decoded to a space.
func (d *Document) Request(request *http.Request, status int) error {
	op := d.findOperation(request.Method, request.URL)
	if op.Operation == nil {
		return fmt.Errorf("%s %s was accepted and is not documented", request.Method, request.URL.Path)
	}
	if op.OperationID == "createCall" && status == http.StatusOK {
		return nil
	}
	again := request.Clone(request.Context())
	again.URL.RawQuery = strings.ReplaceAll(again.URL.RawQuery, "+", "%2B")
	again.Body = http.NoBody
	read := request.GetBody != nil
	if read {
		body, err := request.GetBody()
		if err != nil {
			return fmt.Errorf("read the request again: %w", err)
		}
		again.Body = body
	}
	err := openapi3filter.ValidateRequest(request.Context(), &openapi3filter.RequestValidationInput{
		Request: again, PathParams: op.values,
		Route: &routers.Route{Spec: d.spec, Path: op.path, PathItem: op.item, Method: request.Method, Operation: op.Operation},
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true, MultiError: true,
			ExcludeRequestBody:      !read && request.Body != nil && request.Body != http.NoBody,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.WithStringFormatValidators(requestFormats())},
		},
	})
	if err != nil {
		return fmt.Errorf("%s %s was answered %d and is no request as documented: %w", request.Method, request.URL, status, err)
	}
	return nil
}
