package testkit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxMessage is the maximum length of an error message in bytes. It is low, because a message must
// not repeat the input.
const maxMessage = 1 << 10

// Surface is an HTTP handler and the input for its fuzz test. Every response must be a 2xx, or a
// 4xx with the error body.
type Surface struct {
	Handler http.Handler
	// Prepare adds to a request what the handler requires, for example a token or an API key.
	Prepare func(testing.TB, *http.Request)
	// Routes are routes of the form "METHOD /path". Each {} in the path is replaced by a fuzzed
	// value.
	Routes []string
	// IDs are path values of existing objects.
	IDs []string
	// Bodies are valid bodies by route. Each field of each body is replaced by every hostile value.
	Bodies map[string][]string
	// Queries are the names of the query parameters of each route. The key is an element of Routes.
	Queries map[string][]string
}

// Fuzz sends requests with a fuzzed route number, path value, query and body. The route number is
// an index of Routes. If the index is out of range, Fuzz sends GET with the fuzzed path.
func (s Surface) Fuzz(f *testing.F) {
	f.Helper()
	s.seed(f)
	f.Fuzz(func(t *testing.T, route uint8, path, query string, body []byte) {
		method, target := http.MethodGet, path
		if int(route) < len(s.Routes) {
			method, target, _ = strings.Cut(s.Routes[route], " ")
			target = strings.ReplaceAll(target, "{}", path)
		}
		if query != "" {
			target += "?" + query
		}
		r, ok := Request(t, method, target, body)
		if !ok {
			t.Skip("net/http refuses the request line by itself")
		}
		s.Prepare(t, r)
		answer := httptest.NewRecorder()
		s.Handler.ServeHTTP(answer, r)
		MustAnswer(t, r, answer)
	})
}

func (s Surface) seed(f *testing.F) {
	f.Helper()
	ids := append([]string{"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"}, s.IDs...)
	last := ids[len(ids)-1]
	for i, route := range s.Routes {
		route8 := uint8(i)
		for _, id := range ids {
			f.Add(route8, id, "", []byte(nil))
		}
		if strings.Contains(route, "{}") {
			for _, segment := range Segments() {
				f.Add(route8, segment, "", []byte("{}"))
			}
		}
		for _, name := range s.Queries[route] {
			for _, value := range Parameters() {
				f.Add(route8, last, name+"="+value, []byte(nil))
			}
			f.Add(route8, last, name+"=1&"+name+"=2", []byte(nil))
		}
		for _, good := range s.Bodies[route] {
			f.Add(route8, last, "", []byte(good))
			for _, body := range append(Mutations(good), Bodies()...) {
				f.Add(route8, last, "", []byte(body))
			}
		}
	}
	for _, path := range []string{"/", "//v1/calls", "/v1/calls/", "/v1/./calls", "/v1/calls/..", "/v1%2Fcalls", "*", "/\xff"} {
		f.Add(uint8(255), path, "", []byte(nil))
	}
}

// Request returns a request in the form in which net/http passes it to a handler. ok is false if
// net/http itself rejects the target.
func Request(t testing.TB, method, target string, body []byte) (r *http.Request, ok bool) {
	address, err := url.ParseRequestURI(target)
	if err != nil || address.Host != "" || strings.ContainsAny(target, " \t\r\n") {
		return nil, false
	}
	r = (&http.Request{
		Method: method, URL: address, RequestURI: target, Host: "example.com", RemoteAddr: "192.0.2.1:1234",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(t.Context())
	return r, true
}

// MustAnswer fails the test unless the status is 2xx or 4xx, the body is JSON, and the header
// Service-Version is present. The body of a 4xx response must be the error body.
func MustAnswer(t testing.TB, r *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	text := answer.Body.String()
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		t.Errorf("%s %q = %d %q, want JSON", r.Method, r.RequestURI, answer.Code, text)
	}
	if got := answer.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %q = %d, Content-Type %q", r.Method, r.RequestURI, answer.Code, got)
	}
	if answer.Header().Get("Service-Version") == "" {
		t.Errorf("%s %q = %d without Service-Version", r.Method, r.RequestURI, answer.Code)
	}
	if answer.Code >= 200 && answer.Code < 300 {
		return
	}
	if answer.Code < 400 || answer.Code >= 500 {
		t.Fatalf("%s %q = %d %s, want 2xx or 4xx", r.Method, r.RequestURI, answer.Code, text)
	}
	var refusal struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &refusal); err != nil || refusal.Error.Code == "" || refusal.Error.Message == "" {
		t.Fatalf("%s %q = %d %s, want the error body", r.Method, r.RequestURI, answer.Code, text)
	}
	if len(refusal.Error.Message) > maxMessage {
		t.Errorf("%s %q: the message is %d bytes long", r.Method, r.RequestURI, len(refusal.Error.Message))
	}
}
