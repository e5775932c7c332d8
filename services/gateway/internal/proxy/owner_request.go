package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
)

// maxResponse limits the size of a response that is read into memory, in bytes.
const maxResponse = 4 << 20

// OwnerResponse is the response of the service that owns a route (the owner).
type OwnerResponse struct {
	Status int
	Header http.Header
	Body   []byte
}

// OK reports whether the status is 2xx.
func (a OwnerResponse) OK() bool { return a.Status >= 200 && a.Status < 300 }

// OwnerRequest is a request to the owner of a route.
type OwnerRequest struct {
	Owner  string
	Method string
	Path   *url.URL
	Query  string
	Header http.Header
	Body   []byte
	Caller serviceauth.Caller
}

// Do sends a request and reads the whole response. An error means that no response was received.
// After ErrUnreached, the service has changed nothing. After any other error, it is unknown whether
// the service has made the change.
func (p *Upstreams) Do(ctx context.Context, q OwnerRequest) (OwnerResponse, error) {
	to, err := p.target(q.Owner, q.Path, q.Caller)
	if err != nil {
		return OwnerResponse{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	address := &url.URL{Scheme: to.base.Scheme, Host: to.base.Host, Path: q.Path.Path, RawPath: q.Path.RawPath, RawQuery: q.Query}
	request, err := http.NewRequestWithContext(ctx, q.Method, address.String(), bytes.NewReader(q.Body))
	if err != nil {
		return OwnerResponse{}, fmt.Errorf("make request to %s: %w", q.Owner, err)
	}
	for _, name := range []string{"Content-Type", "Accept", "If-Match"} {
		if values := q.Header.Values(name); len(values) > 0 {
			request.Header[name] = values
		}
	}
	sign(request, to)
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return OwnerResponse{}, requestError(ctx, q.Method, q.Owner, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return OwnerResponse{}, requestError(ctx, q.Method, q.Owner, err)
	}
	if err := checkResponse(response); err != nil {
		return OwnerResponse{}, requestError(ctx, q.Method, q.Owner, err)
	}
	return OwnerResponse{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}

type errorBody struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// annotateCode adds the code of an error body to the log line and the span of the request.
func annotateCode(ctx context.Context, body []byte) {
	var shown errorBody
	if json.Unmarshal(body, &shown) == nil && shown.Error.Code != "" {
		telemetry.Annotate(ctx, "code", shown.Error.Code)
	}
}

// LogCode adds the code of an error response to the log line and the span of the request.
func (a OwnerResponse) LogCode(ctx context.Context) {
	if a.Status >= http.StatusBadRequest {
		annotateCode(ctx, a.Body)
	}
}

// Refusal converts an error response of a service to an error for the client. A 4xx with an error
// body becomes the same error, and a 503 becomes the error unavailable. Any other status becomes an
// internal error.
func (a OwnerResponse) Refusal(owner string) error {
	var shown errorBody
	if a.Status >= 400 && a.Status < 500 && json.Unmarshal(a.Body, &shown) == nil && shown.Error.Code != "" {
		return &apierr.Error{Status: a.Status, Code: shown.Error.Code, Message: shown.Error.Message}
	}
	if a.Status == http.StatusServiceUnavailable {
		return apierr.Unavailable("This part of the service")
	}
	return fmt.Errorf("%s responded %d", owner, a.Status)
}
