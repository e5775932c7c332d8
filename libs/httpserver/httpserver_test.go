package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

type order struct {
	To        string            `json:"to"`
	AgentID   *uuid.UUID        `json:"agent_id"`
	At        *time.Time        `json:"scheduled_for"`
	Retries   *int              `json:"retries"`
	Urgent    bool              `json:"urgent"`
	Events    []string          `json:"events"`
	Variables map[string]any    `json:"variables"`
	Window    *window           `json:"window"`
	Raw       json.RawMessage   `json:"raw"`
	Metadata  map[string]string `json:"metadata"`
}

type window struct {
	Start string    `json:"start"`
	Agent uuid.UUID `json:"agent"`
}

func decode(body string, v any) error {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, MaxBody)
	return DecodeJSON(r, v)
}

func TestDecodeJSON_InvalidBodyGets422NamingTheField(t *testing.T) {
	for _, row := range []struct {
		name, body string
		wants      []string
	}{
		{"no body", "", []string{"body", "missing"}},
		{"only spaces", " \n", []string{"body"}},
		{"null", "null", []string{"body", "object"}},
		{"an array", "[]", []string{"body", "object"}},
		{"a string", `"x"`, []string{"body", "object"}},
		{"incomplete JSON", `{"to":`, []string{"to", "JSON"}},
		{"data after the object", `{"to":"x"} {}`, []string{"body", "JSON"}},
		{"a trailing comma", `{"to":"x",}`, []string{"body", "JSON"}},
		{"a wrong type", `{"to":5}`, []string{"to", "a string", "a number"}},
		{"a string instead of a number", `{"retries":"5"}`, []string{"retries", "whole number"}},
		{"a fraction instead of an integer", `{"retries":1.5}`, []string{"retries", "whole number"}},
		{"a number too large", `{"retries":1e99}`, []string{"retries", "whole number"}},
		{"a string instead of a boolean", `{"urgent":"yes"}`, []string{"urgent", "true or false"}},
		{"an object instead of an array", `{"events":{}}`, []string{"events", "an array"}},
		{"a number in an array of strings", `{"events":["a",1]}`, []string{"events", "a string"}},
		{"an array instead of an object", `{"variables":[]}`, []string{"variables", "an object"}},
		{"a wrong type in a nested object", `{"window":{"start":1}}`, []string{"window.start", "a string"}},
		{"no UUID", `{"agent_id":"abc"}`, []string{"agent_id", "a UUID"}},
		{"a number instead of a UUID", `{"agent_id":7}`, []string{"agent_id", "a UUID"}},
		{"an invalid UUID in a nested object", `{"to":"x","window":{"agent":"abc"}}`, []string{"window.agent", "a UUID"}},
		{"text that is not a date-time", `{"scheduled_for":"tomorrow"}`, []string{"scheduled_for", "date-time"}},
		{"a date-time without an offset", `{"scheduled_for":"2026-06-04T09:00:00"}`, []string{"scheduled_for", "offset"}},
		{"invalid UTF-8", "{\"to\":\"a\xffb\"}", []string{"to", "UTF-8"}},
		{"invalid UTF-8 in a key", "{\"t\xffo\":1}", []string{"body", "UTF-8"}},
		{"an escaped NUL", `{"urgent":true,"to":"a\u0000b"}`, []string{"to", "NUL"}},
		{"an escaped NUL in a nested array", `{"variables":{"a":["\u0000"]}}`, []string{"variables", "NUL"}},
		{"an escaped NUL in a raw member", `{"raw":{"k":"\u0000"}}`, []string{"raw", "NUL"}},
		{"a low surrogate without a high surrogate", `{"to":"\udc00x"}`, []string{"to", "surrogate"}},
		{"a high surrogate at the end of a string", `{"to":"\ud83d"}`, []string{"to", "surrogate"}},
		{"two high surrogates", `{"variables":{"\ud83d\ud83d":1}}`, []string{"variables", "surrogate"}},
		{"a raw NUL", "{\"to\":\"a\x00b\"}", []string{"to", "NUL"}},
		{
			"a field nested 40 levels deep",
			`{"variables":` + strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40) + `}`,
			[]string{"variables", "nested"},
		},
		{"an array nested 200000 levels deep", strings.Repeat("[", 200000), []string{"body", "nested"}},
	} {
		err := decode(row.body, &order{})
		var refused *apierr.Error
		if !errors.As(err, &refused) {
			t.Errorf("%s: err = %v, want a %T", row.name, err, refused)
			continue
		}
		if refused.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: refused.Status = %v, want %v", row.name, refused.Status, http.StatusUnprocessableEntity)
		}
		if refused.Code != "validation_error" {
			t.Errorf("%s: refused.Code = %q, want \"validation_error\"", row.name, refused.Code)
		}
		if !strings.HasPrefix(refused.Message, row.wants[0]+" ") {
			t.Errorf("%s: message %q, want it to name %s", row.name, refused.Message, row.wants[0])
		}
		for _, want := range row.wants {
			if !strings.Contains(refused.Message, want) {
				t.Errorf("%s: message %q lacks %q", row.name, refused.Message, want)
			}
		}
	}
}

func TestDecodeJSON_AcceptsValidBodies(t *testing.T) {
	for name, body := range map[string]string{
		"unknown fields":           `{"to":"x","more":{"a":[1]}}`,
		"two equal keys":           `{"to":"y","to":"x"}`,
		"names in another case":    `{"to":"x","To":"y","TO":5}`,
		"a surrogate pair":         `{"to":"x","variables":{"\ud83d\ude00\\":"\uD83D\uDE00"}}`,
		"an escaped backslash":     `{"to":"x","variables":{"a":"\\u0000"}}`,
		"other escapes":            `{"to":"x","events":["\"\u00e9\n"]}`,
		"spaces around":            "\n {\"to\":\"x\"}\n",
		"null members":             `{"to":"x","agent_id":null,"variables":null}`,
		"brackets inside a string": `{"to":"x","events":["` + strings.Repeat("[{", 50) + `"]}`,
	} {
		var got order
		if err := decode(body, &got); err != nil {
			t.Errorf("%s: decode: %v", name, err)
		} else if got.To != "x" {
			t.Errorf(`%s: got.To = %q, want "x"`, name, got.To)
		}
	}
	var none *order
	if err := decode("", &none); err != nil {
		t.Errorf("an optional body that is empty: decode: %v", err)
	} else if none != nil {
		t.Errorf("an optional body that is empty: none = %v, want nil", none)
	}
	var rates []order
	if err := decode(`{}`, &rates); err == nil {
		t.Error("an object for an array: decode = nil, want an error")
	} else if !strings.Contains(err.Error(), "body must be an array") {
		t.Errorf(`an object for an array: err = %q, want it to contain "body must be an array"`, err.Error())
	}
}

func TestDecodeJSON_TooLargeBodyGets413(t *testing.T) {
	var refused *apierr.Error
	if err := decode(`{"to":"`+strings.Repeat("x", MaxBody)+`"}`, &order{}); !errors.As(err, &refused) {
		t.Errorf("DecodeJSON: decode = %v, want a %T", err, refused)
	} else if refused.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("DecodeJSON: refused.Status = %v, want %v", refused.Status, http.StatusRequestEntityTooLarge)
	}
}

func router() *chi.Mux {
	r := NewRouter(nil)
	r.Route("/v1", func(v1 chi.Router) {
		v1.Get("/calls/{id}", Handle(func(w http.ResponseWriter, r *http.Request) error {
			id, err := PathID(r, "id", "call")
			if err != nil {
				return err
			}
			return WriteJSON(w, http.StatusOK, map[string]string{"call_id": id.String()})
		}))
		v1.Delete("/calls/{id}", func(http.ResponseWriter, *http.Request) {})
		v1.Post("/calls", Handle(func(w http.ResponseWriter, r *http.Request) error {
			var body order
			if err := DecodeJSON(r, &body); err != nil {
				return err
			}
			return WriteJSON(w, http.StatusAccepted, body.To)
		}))
		v1.Get("/phones/{phone}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, PathText(r, "phone")) })
		v1.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("secret detail") })
		v1.Get("/fault", Handle(func(http.ResponseWriter, *http.Request) error { return errors.New("secret detail") }))
	})
	return r
}

func do(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	router().ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
	return answer
}

func TestRouter_EveryErrorHasTheErrorBody(t *testing.T) {
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"unknown route", "GET", "/v1/nothing", "", 404, "not_found"},
		{"unknown route at the root", "GET", "/", "", 404, "not_found"},
		{"trailing slash", "POST", "/v1/calls/", "{}", 404, "not_found"},
		{"no UUID", "GET", "/v1/calls/1", "", 404, "not_found"},
		{"a UUID without hyphens", "GET", "/v1/calls/0190c2a07b2c7c3e8f00aabbccddeeff", "", 404, "not_found"},
		{"wrong method", "PATCH", "/v1/calls/1", "", 405, "method_not_allowed"},
		{"unknown method", "BREW", "/v1/calls/1", "", 405, "method_not_allowed"},
		{"panic", "GET", "/v1/panic", "", 500, "internal_error"},
		{"handler error", "GET", "/v1/fault", "", 500, "internal_error"},
		{"body above the limit", "POST", "/v1/calls", strings.Repeat("x", MaxBody+1), 413, "request_too_large"},
	} {
		answer := do(t, row.method, row.path, row.body)
		var got struct {
			Error struct{ Code, Message string }
		}
		err := json.Unmarshal(answer.Body.Bytes(), &got)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if answer.Code != row.status {
			t.Errorf("%s: answer.Code = %v, want %v", row.name, answer.Code, row.status)
		}
		if got.Error.Code != row.code {
			t.Errorf("%s: got.Error.Code = %v, want %v", row.name, got.Error.Code, row.code)
		}
		if got.Error.Message == "" {
			t.Errorf("%s: got.Error.Message is empty", row.name)
		}
		if strings.Contains(answer.Body.String(), "secret") {
			t.Errorf("%s: the response contains the internal error", row.name)
		}
		if answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf(`%s: answer.Header().Get("Content-Type") = %q, want "application/json"`,
				row.name, answer.Header().Get("Content-Type"))
		} else if answer.Header().Get("Service-Version") != Version {
			t.Errorf(`%s: answer.Header().Get("Service-Version") = %v, want %v`,
				row.name, answer.Header().Get("Service-Version"), Version)
		}
	}
	if allow := do(t, "PATCH", "/v1/calls/1", "").Header().Get("Allow"); allow != "GET, HEAD, DELETE" {
		t.Errorf("Allow = %q", allow)
	}
}

func TestRouter_ChunkedBodyAboveTheLimitGets413(t *testing.T) {
	server := httptest.NewServer(router())
	defer server.Close()
	unsized := io.MultiReader(strings.NewReader(`{"to":"`), strings.NewReader(strings.Repeat("x", MaxBody)), strings.NewReader(`"}`))
	answer, err := http.Post(server.URL+"/v1/calls", "application/json", unsized)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status = %d, want 413", answer.StatusCode)
	}
}

func TestRouter_AcceptsHeadOnRoutesWithGet(t *testing.T) {
	server := httptest.NewServer(router())
	defer server.Close()
	answer, err := http.Head(server.URL + "/v1/calls/" + uuid.Must(uuid.NewV7()).String())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		t.Errorf("HEAD: answer.StatusCode = %v, want %v", answer.StatusCode, http.StatusOK)
	}
	if len(body) != 0 {
		t.Fatalf("HEAD: length of body = %v, want 0", len(body))
	}
	if answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: Content-Type = %q, want \"application/json\"", answer.Header.Get("Content-Type"))
	}
}

func TestPathText_DecodesPercentEncoding(t *testing.T) {
	for path, want := range map[string]string{"/v1/phones/+1555": "+1555", "/v1/phones/%2B1555": "+1555", "/v1/phones/a%2Fb": "a/b", "/v1/phones/a%20b": "a b"} {
		if got := do(t, "GET", path, "").Body.String(); got != want {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
}

func TestWriteError_SendsStatusCodeAndRetryAfter(t *testing.T) {
	for _, row := range []struct {
		name   string
		err    error
		status int
		code   string
		after  string
	}{
		{"an apierr.Error is sent unchanged", apierr.Conflict("contact_exists", "There."), 409, "contact_exists", ""},
		{"a wrapped apierr.Error", errors.Join(errors.New("x"), apierr.NotFound("call")), 404, "not_found", ""},
		{
			"Retry-After is rounded up to seconds",
			&apierr.Error{Status: 429, Code: "rate_limited", RetryAfter: 1500 * time.Millisecond}, 429, "rate_limited", "2",
		},
		{
			"another service is unavailable", connect.NewError(connect.CodeUnavailable, errors.New("refused")), 503,
			"unavailable", "2",
		},
		{"an expired deadline", context.DeadlineExceeded, 503, "unavailable", "2"},
		{"another service has failed", connect.NewError(connect.CodeInternal, errors.New("x")), 500, "internal_error", ""},
		{"any other error", errors.New("x"), 500, "internal_error", ""},
		{"an invalid API key", apierr.New(401, "invalid_api_key", "No."), 401, "invalid_api_key", ""},
	} {
		answer := httptest.NewRecorder()
		WriteError(answer, httptest.NewRequest(http.MethodGet, "/", nil), row.err)
		if answer.Code != row.status {
			t.Errorf("%s: answer.Code = %v, want %v", row.name, answer.Code, row.status)
		}
		if !strings.Contains(answer.Body.String(), `"code":"`+row.code+`"`) {
			t.Errorf("%s: answer.Body.String() = %q, want it to contain %q", row.name, answer.Body.String(),
				`"code":"`+row.code+`"`)
		}
		if answer.Header().Get("Retry-After") != row.after {
			t.Errorf("%s: Retry-After = %v, want %v", row.name, answer.Header().Get("Retry-After"), row.after)
		}
		if challenge := answer.Header().Get("WWW-Authenticate"); strings.HasPrefix(challenge, "Bearer ") != (row.status == 401) {
			t.Errorf("%s: challenge %q", row.name, challenge)
		}
	}
}

func TestWriteError_LostCommitIsReportedAsUnknownResult(t *testing.T) {
	lost := fmt.Errorf("commit: %w", io.ErrUnexpectedEOF)
	for method, unchanged := range map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPost: false, http.MethodPatch: false} {
		answer := httptest.NewRecorder()
		WriteError(answer, httptest.NewRequest(method, "/", nil), lost)
		if answer.Code != 503 {
			t.Errorf("%s: answer.Code = %v, want 503", method, answer.Code)
		}
		if strings.Contains(answer.Body.String(), "Nothing was changed") != unchanged {
			t.Errorf("%s: strings.Contains(answer.Body.String(), \"Nothing was changed\") = %v, want %v", method,
				strings.Contains(answer.Body.String(), "Nothing was changed"), unchanged)
		}
		if answer.Header().Get("Retry-After") != "2" {
			t.Errorf("%s: Retry-After = %q, want \"2\"", method, answer.Header().Get("Retry-After"))
		}
	}
}

func TestWriteError_AddsTheErrorsFieldsToTheBody(t *testing.T) {
	answer := httptest.NewRecorder()
	WriteError(answer, httptest.NewRequest(http.MethodGet, "/", nil),
		&apierr.Error{Status: 409, Code: "contact_exists", Message: "There.", Fields: map[string]string{"existing_id": "7"}})
	want := `{"error":{"code":"contact_exists","existing_id":"7","message":"There."},"existing_id":"7"}`
	if got := strings.TrimSpace(answer.Body.String()); got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
}

func TestQuery_ReturnsValidAndRefusesInvalidParameters(t *testing.T) {
	q, _ := url.ParseQuery("status=queued&bad=x&at=2026-06-04T09:00:00+02:00&id=" + uuid.Nil.String() + "&text=a%00b&utf=%ff&fine=%C3%A9")
	if v, err := QueryEnum(q, "status", "queued", "failed"); err != nil {
		t.Errorf("enum: QueryEnum: %v", err)
	} else if v != "queued" {
		t.Errorf(`enum: v = %q, want "queued"`, v)
	}
	if v, err := QueryEnum(q, "absent", "queued"); err != nil {
		t.Errorf("absent enum: QueryEnum: %v", err)
	} else if v != "" {
		t.Errorf("absent enum: v = %q, want it empty", v)
	}
	at, err := QueryTime(q, "at")
	if err != nil {
		t.Errorf("time: QueryTime: %v", err)
	} else if !at.Equal(time.Date(2026, 6, 4, 7, 0, 0, 0, time.UTC)) {
		t.Errorf("time: at = %v, want %v", at, time.Date(2026, 6, 4, 7, 0, 0, 0, time.UTC))
	}
	v, err := QueryText(q, "fine")
	if err != nil {
		t.Fatalf("text: %v", err)
	}
	if v == nil {
		t.Fatalf("text: v = nil, want a value")
	}
	if *v != "é" {
		t.Errorf("text: v = %q, want \"é\"", *v)
	}
	v, err = QueryText(url.Values{"p": {""}}, "p")
	if err != nil {
		t.Fatalf("empty text: %v", err)
	}
	if v == nil {
		t.Fatalf("empty text: v = nil, want a value")
	}
	if *v != "" {
		t.Errorf("empty text: v = %q, want \"\"", *v)
	}
	if v, err := QueryText(q, "absent"); err != nil {
		t.Errorf("absent text: QueryText: %v", err)
	} else if v != nil {
		t.Errorf("absent text: v = %v, want nil", v)
	}
	_, e1 := QueryEnum(q, "bad", "queued")
	_, e2 := QueryTime(q, "bad")
	_, e3 := QueryUUID(q, "bad")
	_, e4 := QueryText(q, "text")
	_, e5 := QueryText(q, "utf")
	for i, err := range []error{e1, e2, e3, e4, e5} {
		var refused *apierr.Error
		if !errors.As(err, &refused) {
			t.Errorf("error = %v, want a %T; i = %d", err, refused, i)
		} else if refused.Code != "validation_error" {
			t.Errorf(`refused.Code = %q, want "validation_error"; i = %d`, refused.Code, i)
		}
	}
}

func TestServer_DrainsOpenRequests(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	free := httptest.NewServer(http.NotFoundHandler())
	addr := free.Listener.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{Addr: addr, Handler: handler}).Run(ctx) }()
	answered := make(chan string, 1)
	go func() {
		for t.Context().Err() == nil {
			answer, err := http.Get("http://" + addr)
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			answered <- string(body)
			return
		}
	}()
	<-entered
	cancel()
	close(release)
	if got := <-answered; got != "done" {
		t.Errorf("answer = %q, want it finished", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestRouter_HangingHandlerIsCanceledAndGets503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := NewRouter(nil)
		router.Get("/v1/hangs", Handle(func(_ http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done() // simulates a statement on a database that does not respond
			return fmt.Errorf("read wallet: %w", r.Context().Err())
		}))
		answer, begun := httptest.NewRecorder(), time.Now()
		router.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v1/hangs", nil))
		if answer.Code != http.StatusServiceUnavailable {
			t.Errorf("answer.Code = %v, want %v", answer.Code, http.StatusServiceUnavailable)
		}
		if answer.Header().Get("Retry-After") == "" {
			t.Errorf("Retry-After is empty")
		}
		if time.Since(begun) != handlerTimeout {
			t.Errorf("time.Since(begun) = %v, want %v", time.Since(begun), handlerTimeout)
		}
	})
}
