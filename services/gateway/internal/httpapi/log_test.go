package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"ringfence.dev/libs/testkit"
)

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// The test is not parallel, because it replaces the default logger.
func TestLog_RefusedRequestHasTheErrorCode(t *testing.T) {
	log := &lockedBuffer{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, nil)))
	defer slog.SetDefault(before)
	r := newRig(t)
	id := r.workspace("")
	key, _ := r.key(id, "write")

	refusal := func(status int, body string) func(http.ResponseWriter, receivedRequest) bool {
		return func(w http.ResponseWriter, _ receivedRequest) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	const dnd = `{"error":{"code":"recipient_dnd","message":"The number is opted out."}}`
	large := `{"error":{"code":"recipient_dnd","message":"` + strings.Repeat("x", 64<<10) + `"}}`
	tests := []struct {
		name     string
		owner    func(http.ResponseWriter, receivedRequest) bool
		send     func() answered
		status   int
		wantBody string
		wantCode any
	}{
		{name: "refused by the gateway", status: 404, wantCode: "not_found",
			send: func() answered { return r.customer("GET", "/v1/nothing", key, "") }},
		{name: "refused by the service that owns the route", status: 422, wantCode: "recipient_dnd", wantBody: dnd,
			owner: refusal(422, dnd),
			send:  func() answered { return r.customer("POST", "/v1/calls", key, "{}") }},
		{name: "operator's request refused by the service that owns the route", status: 422,
			wantCode: "recipient_dnd", wantBody: dnd,
			owner: refusal(422, dnd),
			send:  func() answered { return r.operator("POST", "/admin/v1/workspaces/"+id+"/agents", "{}") }},
		{name: "a body too large to be an error body", status: 422, wantBody: large, owner: refusal(422, large),
			send: func() answered { return r.customer("POST", "/v1/calls", key, "{}") }},
		{name: "an error that is not JSON", status: 502, wantBody: "bad gateway", owner: refusal(502, "bad gateway"),
			send: func() answered { return r.customer("POST", "/v1/calls", key, "{}") }},
		{name: "accepted", status: 200, wantBody: dnd, owner: refusal(200, dnd),
			send: func() answered { return r.customer("GET", "/v1/calls", key, "") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.answers(tt.owner)
			got := tt.send()
			if got.status != tt.status {
				t.Errorf("status = %d, want %d", got.status, tt.status)
			}
			if tt.wantBody != "" && got.body != tt.wantBody {
				t.Errorf("body = %.100s, want %.100s", got.body, tt.wantBody)
			}
			line := requestLine(t, log, got.header.Get("X-Request-Id"))
			if line["code"] != tt.wantCode {
				t.Errorf("code in the log = %v, want %v", line["code"], tt.wantCode)
			}
		})
	}
}

// requestLine waits for the log line of a request, because the server writes the line after the
// response.
func requestLine(t *testing.T, log *lockedBuffer, requestID string) (line map[string]any) {
	t.Helper()
	testkit.Until(t, "the request "+requestID+" is logged", func() bool {
		lines := bufio.NewScanner(strings.NewReader(log.String()))
		for lines.Scan() {
			line = nil
			if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == "request" && line["request_id"] == requestID {
				return true
			}
		}
		return false
	})
	return line
}

func TestPublic_ForwardsTheIdempotencyReplayedHeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Idempotency-Replayed", "true")
		_, _ = io.WriteString(w, `{}`)
		return true
	})
	got := r.customer("POST", "/v1/calls", key, "{}")
	if value := got.header.Get("Idempotency-Replayed"); value != "true" {
		t.Errorf("Idempotency-Replayed = %q, want true", value)
	}
}
