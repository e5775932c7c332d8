package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/testkit"
)

func mustRefuse(t *testing.T, err error, fields ...string) {
	t.Helper()
	var refused *apierr.Error
	if !errors.As(err, &refused) {
		t.Fatalf("err = %v, want a %T", err, refused)
	}
	if refused.Status < 400 {
		t.Fatalf("refused.Status = %v, want at least 400", refused.Status)
	}
	if refused.Status >= 500 {
		t.Fatalf("refused.Status = %v, want less than 500", refused.Status)
	}
	if refused.Message == "" {
		t.Fatalf("refused.Message is empty")
	}
	if len(refused.Message) > 1<<10 {
		t.Fatalf("length of refused.Message = %v, want at most %v", len(refused.Message), 1<<10)
	}
	if len(fields) > 0 && !slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(refused.Message, field+" ") }) {
		t.Fatalf("message %q names none of %v", refused.Message, fields)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	good := `{"to":"x","agent_id":"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff","scheduled_for":"2026-06-04T09:00:00Z","retries":1,"urgent":true,` +
		`"events":["a"],"variables":{"a":1},"window":{"start":"a","agent":"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"},"raw":{},"metadata":{"a":"b"}}`
	for _, body := range append(testkit.Mutations(good), testkit.Bodies()...) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var typed order
		var free map[string]json.RawMessage
		var list []order
		var optional *order
		for _, target := range []any{&typed, &free, &list, &optional} {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, MaxBody)
			if err := DecodeJSON(r, target); err != nil {
				mustRefuse(t, err)
				continue
			}
			mustKeep(t, body, target)
		}
	})
}

// mustKeep checks that Postgres can store an accepted body, and that encoding and decoding do not
// change the body.
func mustKeep(t *testing.T, body []byte, target any) {
	t.Helper()
	encoded, err := json.Marshal(target)
	if err != nil {
		t.Fatalf("%q was decoded and cannot be encoded: %v", body, err)
	}
	if !utf8.Valid(encoded) {
		t.Fatalf("utf8.Valid(encoded) = false, want true; body = %q", body)
	}
	if bytes.Contains(encoded, []byte(`\u0000`)) && !bytes.Contains(encoded, []byte(`\\u0000`)) {
		t.Fatalf("encoded = %q, want it to contain %q; body = %q", encoded, []byte(`\\u0000`), body)
	}
	if string(encoded) == "null" { // the optional body was empty
		return
	}
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(encoded))
	if err := DecodeJSON(r, target); err != nil {
		t.Fatalf("%q was decoded to %s, which is refused: %v", body, encoded, err)
	}
	if again, err := json.Marshal(target); err != nil {
		t.Fatalf("json.Marshal: %v", err)
	} else if !bytes.Equal(again, encoded) {
		t.Fatalf("json.Marshal: again = %q, want %q", again, encoded)
	}
}

func FuzzQueryParameters(f *testing.F) {
	for _, value := range testkit.Parameters() {
		f.Add("p=" + value)
	}
	f.Add("p=1&p=2")
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := url.ParseQuery(raw)
		if err != nil {
			t.Skip("the gateway refuses it")
		}
		if value, err := QueryEnum(query, "p", "queued", "failed"); err != nil {
			mustRefuse(t, err, "p")
		} else if value != "" && value != "queued" && value != "failed" {
			t.Errorf("%q: enum %q", raw, value)
		}
		if id, err := QueryUUID(query, "p"); err != nil {
			mustRefuse(t, err, "p")
		} else if id != nil && !strings.EqualFold(id.String(), query.Get("p")) {
			t.Errorf("%q: id %s", raw, id)
		}
		if at, err := QueryTime(query, "p"); err != nil {
			mustRefuse(t, err, "p")
		} else if at != nil {
			again, err := ParseTime(at.Format(time.RFC3339Nano))
			if err != nil {
				t.Errorf("%q: ParseTime: %v", raw, err)
			} else if !again.Equal(*at) {
				t.Errorf("%q: again = %v, want %v", raw, again, *at)
			}
		}
		if text, err := QueryText(query, "p"); err != nil {
			mustRefuse(t, err, "p")
		} else if text != nil && (!utf8.ValidString(*text) || strings.ContainsRune(*text, 0)) {
			t.Errorf("%q: text %q", raw, *text)
		}
	})
}

func FuzzPathParameters(f *testing.F) {
	for _, segment := range testkit.Segments() {
		f.Add(segment)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		router := NewRouter(nil)
		router.Get("/v1/things/{id}", Handle(func(w http.ResponseWriter, r *http.Request) error {
			if id, err := PathID(r, "id", "thing"); err == nil && !strings.EqualFold(id.String(), chi.URLParam(r, "id")) {
				t.Errorf("%q is the id %s", segment, id)
			} else if err != nil {
				mustRefuse(t, err)
			}
			return WriteJSON(w, http.StatusOK, map[string]string{"text": PathText(r, "id")})
		}))
		for _, path := range []string{segment, url.PathEscape(segment)} {
			r, ok := testkit.Request(t, http.MethodGet, "/v1/things/"+path, nil)
			if !ok {
				continue
			}
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, r)
			testkit.MustAnswer(t, r, answer)
			var decoded struct{ Text string }
			_ = json.Unmarshal(answer.Body.Bytes(), &decoded)
			if path == url.PathEscape(segment) && answer.Code == http.StatusOK && utf8.ValidString(segment) &&
				decoded.Text != segment {
				t.Errorf("%q came as %q", segment, decoded.Text)
			}
		}
	})
}

// FuzzServer sends arbitrary bytes to the server. Every response must be valid HTTP, including the
// error responses that net/http writes. In a synctest bubble the server's timeouts take no real
// time.
func FuzzServer(f *testing.F) {
	for _, request := range wireSeeds() {
		f.Add([]byte(request))
	}
	router := NewRouter(nil)
	router.Post("/v1/calls", Handle(func(w http.ResponseWriter, r *http.Request) error {
		var body order
		if err := DecodeJSON(r, &body); err != nil {
			return err
		}
		return WriteJSON(w, http.StatusAccepted, map[string]string{"to": body.To})
	}))
	f.Fuzz(func(t *testing.T, request []byte) {
		synctest.Test(t, func(t *testing.T) {
			header := http.Header{"X-Extra": {"1"}}
			l := pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
			server := (&Server{Handler: router, Header: header}).settings()
			go func() { _ = serveWire(server, l, nil, header) }()
			client := l.dial()
			go func() {
				_, _ = client.Write(append(request, "\r\n\r\nGET /v1/end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"...))
			}()
			// An hour is longer than every timeout of the server.
			_ = client.SetReadDeadline(time.Now().Add(time.Hour))
			responses, err := io.ReadAll(client)
			if err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("read the responses to %q: %v", request, err)
			}
			mustBeAnswers(t, request, responses)
			_ = client.Close()
			close(l.ended)
			_ = server.Close()
		})
	})
}

func wireSeeds() []string {
	id := uuid.Nil.String()
	return []string{
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{\"to\":\"x\"}",
		"GET //v1/calls HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://other/v1/calls HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/calls/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", "TRACE /" + id + " HTTP/1.1\r\nHost: x\r\n\r\n", " / HTTP/1.1\r\n\r\n",
		"get /v1/calls HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/calls HTTP/1.0\r\n\r\n", "GET /v1/calls HTTP/3.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /\r\n\r\n",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: y\r\n\r\n",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "POST /v1/calls HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n{",
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n", "GET /v1/calls HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\n bad: folded\r\n\r\n", "GET /v1/calls HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /v1/calls HTTP/1.1\r\nHost: x\r\na\x00b: c\r\n\r\n",
	}
}

// mustBeAnswers reads the HTTP responses. Bytes between two responses are an error. The last
// response can be incomplete, because the test can close the connection.
func mustBeAnswers(t *testing.T, request, responses []byte) {
	t.Helper()
	for len(responses) > 0 {
		head, rest, whole := bytes.Cut(responses, []byte("\r\n\r\n"))
		if !whole {
			t.Fatalf("whole = false, want true; request = %q; responses = %q", request, responses)
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.")) {
			t.Fatalf("head = %q, want it to begin with %q; request = %q; responses = %q",
				head, []byte("HTTP/1."), request, responses)
		}
		if bytes.HasPrefix(head[len("HTTP/1.x "):], []byte("100")) {
			responses = rest
			continue
		}
		length := 0
		for line := range bytes.SplitSeq(head, []byte("\r\n")) {
			if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				for _, digit := range value {
					length = length*10 + int(digit-'0')
				}
			}
		}
		if !bytes.Contains(head, []byte("\r\nService-Version: "+Version)) {
			t.Fatalf("head = %q, want it to contain %q; request = %q; responses = %q",
				head, []byte("\r\nService-Version: "+Version), request, responses)
		}
		if length == 0 {
			t.Fatalf("length = 0, want more; request = %q; responses = %q", request, responses)
		}
		if bytes.HasPrefix(request, []byte("HEAD")) || len(rest) < length {
			return // the response to HEAD has a Content-Length and no body
		}
		if !json.Valid(rest[:length]) {
			return
		}
		var refusal struct {
			Error struct{ Code, Message string }
		}
		if _ = json.Unmarshal(rest[:length], &refusal); !bytes.Contains(head, []byte(" 202 ")) && (refusal.Error.Code == "" || refusal.Error.Message == "") {
			t.Fatalf("%q is answered %q", request, responses)
		}
		responses = rest[length:]
	}
}
