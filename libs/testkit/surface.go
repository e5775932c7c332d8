// Package fuzztest owns what every HTTP surface of the house is fuzzed for: whatever arrives, the answer is a 2xx or a refusal
// with the error body, never a fault of ours (contract.md §1). It brings the hostile values that every such target begins with.

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

// longestMessage bounds the sentence of a refusal, in bytes: it must not hand back what was sent.
const longestMessage = 1 << 10

// Surface is a handler and what is worth asking it.
type Surface struct {
	Handler http.Handler
	// Prepare makes the request one that the handler lets in: a signed caller, a key.
	Prepare func(testing.TB, *http.Request)
	// Routes are "METHOD /path"; a {} in the path takes what is fuzzed, as it is.
	Routes []string
	// IDs are path values that name something.
	IDs []string
	// Bodies are good bodies by their route: each field of each is fuzzed with every hostile value.
	Bodies map[string][]string
	// Queries are the names of parameters by their route.
	Queries map[string][]string
}

// Fuzz asks the surface for everything: any route, path value, query and body. A route beyond the list takes the path alone.
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

// Request is a request as net/http would hand it to a handler; ok is false for a target that net/http answers by itself.
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

// MustAnswer demands what the contract promises of every answer.
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
	if len(refusal.Error.Message) > longestMessage {
		t.Errorf("%s %q: the message is %d bytes long", r.Method, r.RequestURI, len(refusal.Error.Message))
	}
}
