// Package gateway is a client of the gateway's listener for the console. It sends each request with
// the session token of the person who uses the page, and shares one event stream per workspace.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// requestTimeout limits requests with a complete response. Streams and recordings have no limit.
	requestTimeout = 20 * time.Second
	// maxResponse limits the size of a response that is decoded.
	maxResponse = 8 << 20
)

// Client sends requests to the gateway. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
}

// NewClient returns a client for the URL of the gateway's listener for the console.
func NewClient(base *url.URL) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // of net/http
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 64
	return &Client{base: base, http: &http.Client{
		Transport: transport,
		// A redirect could send the session token to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Ping returns an error if the gateway is not reachable.
func (c *Client) Ping(ctx context.Context) error {
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		c.base.JoinPath("/console/v1/sign-in/methods").String(),
		nil,
	)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("reach the gateway: %w", err)
	}
	return response.Body.Close()
}

// Session sends requests with the session token of a person. The console creates one Session for
// each HTTP request of a browser.
type Session struct {
	client *Client
	// Token is the session token. It is empty before the sign-in.
	Token string
	// Workspace is the workspace of the requests. It is uuid.Nil if their routes belong to no
	// workspace.
	Workspace uuid.UUID
	// Reason is the reason of an operator for reading transcripts and recordings.
	Reason string
	// Forwarded is the value of X-Forwarded-For: the addresses of the browser and of the proxies.
	Forwarded string
	// Background is true if no person caused the request. The request does not prolong the session.
	Background bool

	parent   *Session // parent also counts the requests of this Session
	mu       sync.Mutex
	newToken string
	requests int64
}

// CurrentToken returns the token of the next request: Token, or the token that replaced it.
func (s *Session) CurrentToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newToken != "" {
		return s.newToken
	}
	return s.Token
}

// Beside returns a Session for background requests that run at the same time as requests of s. They
// do not replace the token, so only s receives a new token. They count as requests of s.
func (s *Session) Beside() *Session {
	copied := s.In(s.Workspace)
	copied.Background, copied.parent = true, s
	return copied
}

// Requests returns the number of requests that the session sent. The gateway limits the requests
// per minute of a session.
func (s *Session) Requests() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Session returns a Session with the given token.
func (c *Client) Session(token string) *Session { return &Session{client: c, Token: token} }

// In returns a Session with the current token of s for a workspace. NewToken of each Session
// returns only a token that this Session received itself.
func (s *Session) In(workspace uuid.UUID) *Session {
	return &Session{client: s.client, Token: s.CurrentToken(), Workspace: workspace, Reason: s.Reason,
		Forwarded: s.Forwarded, Background: s.Background}
}

// NewToken returns the token with which the gateway replaced Token, or "" if it did not replace
// Token.
func (s *Session) NewToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newToken
}

// Request is a request to the gateway.
type Request struct {
	Method string // GET if empty
	Path   string // the encoded path
	Query  url.Values
	Header http.Header
	// Body is encoded as JSON, except a []byte, which is sent unchanged. If Body is nil, the
	// request has no body.
	Body any
}

// Error is an error response of the gateway. Status is 0 if the gateway did not respond.
type Error struct {
	Status     int
	Code       string
	Message    string
	Field      string
	RequestID  string
	RetryAfter string
	cause      error
}

// Error returns the message for people.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("the gateway did not respond: %v", e.cause)
	}
	return fmt.Sprintf("the gateway responded %d %s: %s", e.Status, e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.cause }

// AsError returns the *Error inside err, or nil.
func AsError(err error) *Error {
	found, _ := errors.AsType[*Error](err)
	return found
}

// Is reports whether err is an error response of the gateway with the given code.
func Is(err error, code string) bool {
	found := AsError(err)
	return found != nil && found.Code == code
}

// Get sends a GET request and decodes the response.
func Get[T any](ctx context.Context, s *Session, path string, query url.Values) (T, error) {
	return Do[T](ctx, s, Request{Path: path, Query: query})
}

// GetTagged sends a GET request, decodes the response and returns its ETag: the version of the
// object, for the header If-Match of a change.
func GetTagged[T any](ctx context.Context, s *Session, path string) (result T, etag string, err error) {
	return do[T](ctx, s, Request{Path: path})
}

// Post sends a POST request with a JSON body and decodes the response.
func Post[T any](ctx context.Context, s *Session, path string, body any) (T, error) {
	return Do[T](ctx, s, Request{Method: http.MethodPost, Path: path, Body: body})
}

// Do sends a request and decodes the JSON of the response. It returns an *Error for a refusal.
func Do[T any](ctx context.Context, s *Session, r Request) (result T, err error) {
	result, _, err = do[T](ctx, s, r)
	return result, err
}

func do[T any](ctx context.Context, s *Session, r Request) (result T, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := s.Fetch(ctx, r)
	if err != nil {
		return result, "", err
	}
	defer func() { _ = response.Body.Close() }()
	etag = response.Header.Get("ETag")
	if response.StatusCode == http.StatusNoContent {
		return result, etag, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return result, "", &Error{cause: fmt.Errorf("read %s: %w", r.Path, err)}
	}
	if len(body) == 0 {
		return result, etag, nil
	}
	if err := json.Unmarshal(body, &result); err != nil {
		return result, "", fmt.Errorf("decode the response of %s: %w", r.Path, err)
	}
	return result, etag, nil
}

// Fetch sends a request and returns the response with a status below 400, for streams and
// recordings. The caller closes the body. For every other status it returns an *Error.
func (s *Session) Fetch(ctx context.Context, r Request) (*http.Response, error) {
	request, err := s.request(ctx, r)
	if err != nil {
		return nil, err
	}
	for counted := s; counted != nil; counted = counted.parent {
		counted.mu.Lock()
		counted.requests++
		counted.mu.Unlock()
	}
	response, err := s.client.http.Do(request)
	if err != nil {
		return nil, &Error{cause: err}
	}
	if token := response.Header.Get("Ringfence-Session"); token != "" {
		s.mu.Lock()
		s.newToken = token
		s.mu.Unlock()
	}
	if response.StatusCode >= http.StatusBadRequest {
		defer func() { _ = response.Body.Close() }()
		return nil, readError(response)
	}
	return response, nil
}

func (s *Session) request(ctx context.Context, r Request) (*http.Request, error) {
	address, err := s.client.base.Parse(r.Path)
	if err != nil || address.Host != s.client.base.Host {
		return nil, fmt.Errorf("path %q is not valid", r.Path)
	}
	address.RawQuery = r.Query.Encode()
	var body io.Reader
	if raw, ok := r.Body.([]byte); ok {
		body = bytes.NewReader(raw)
	} else if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s: %w", r.Path, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	set := func(name, value string) {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	if token := s.CurrentToken(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if s.Workspace != uuid.Nil {
		request.Header.Set("Ringfence-Workspace", s.Workspace.String())
	}
	if s.Background {
		request.Header.Set("Ringfence-Background", "true")
	}
	set("Ringfence-Reason", s.Reason)
	set("X-Forwarded-For", s.Forwarded)
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

func readError(response *http.Response) error {
	var body struct {
		Error struct{ Code, Message, Field string }
	}
	// a read error is ignored, because the status is enough for the error
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	_ = json.Unmarshal(text, &body)
	return &Error{
		Status:     response.StatusCode,
		Code:       body.Error.Code,
		Message:    body.Error.Message,
		Field:      body.Error.Field,
		RequestID:  response.Header.Get("X-Request-Id"),
		RetryAfter: response.Header.Get("Retry-After"),
	}
}

// rangeHeaders are the headers of a request for a part of a recording.
var rangeHeaders = []string{"Range", "If-Range"}

// FetchRecording requests a recording, or the range in the headers of the browser. A link to the
// gateway is requested at the gateway's listener for the console. Every other link is a signed link
// of an object store, and its request contains no session token.
func (s *Session) FetchRecording(ctx context.Context, link string, browser http.Header) (*http.Response, error) {
	address, err := url.Parse(link)
	if err != nil {
		return nil, fmt.Errorf("parse the link of a recording: %w", err)
	}
	header := http.Header{}
	for _, name := range rangeHeaders {
		if value := browser.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	if len(address.Path) > len("/recordings/") && address.Path[:len("/recordings/")] == "/recordings/" {
		return s.Fetch(ctx, Request{Path: address.EscapedPath(), Query: address.Query(), Header: header})
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header = header
	response, err := s.client.http.Do(request)
	if err != nil {
		return nil, &Error{cause: err}
	}
	if response.StatusCode >= http.StatusBadRequest {
		_ = response.Body.Close()
		return nil, &Error{Status: response.StatusCode, Code: "recording_unavailable"}
	}
	return response, nil
}
