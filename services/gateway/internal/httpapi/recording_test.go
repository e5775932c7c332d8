package httpapi_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
)

const aRecording = "/recordings/01990000-0000-7000-8000-000000000001/2026/11/21/01990000-0000-7000-8000-000000000002.wav"

func TestRecording_LinkReachesTheDialerWithoutAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.answer = func(w http.ResponseWriter, h receivedRequest) bool {
		w.Header().Set("Content-Type", "audio/wav")
		w.Header().Set("Content-Range", "bytes 0-3/9")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, "RIFF")
		return true
	}
	request, err := http.NewRequestWithContext(t.Context(), "GET", r.public.URL+aRecording+"?expires=1&signature=ab", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Range", "bytes=0-3")
	request.Header.Set("Authorization", "Bearer invalid")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusPartialContent {
		t.Errorf("response.StatusCode = %v, want %v", response.StatusCode, http.StatusPartialContent)
	}
	if string(body) != "RIFF" {
		t.Errorf("string(body) = %q, want \"RIFF\"", string(body))
	}
	if response.Header.Get("Content-Type") != "audio/wav" {
		t.Errorf("Content-Type = %q, want \"audio/wav\"", response.Header.Get("Content-Type"))
	}
	if response.Header.Get("Content-Range") == "" {
		t.Errorf("Content-Range is empty")
	}
	if response.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("RateLimit-Policy is empty")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.received) != 1 {
		t.Fatalf("requests to owners = %v, want 1", r.received)
	}
	h := r.received[0]
	if h.owner != "dialer" {
		t.Errorf("h.owner = %q, want \"dialer\"", h.owner)
	}
	if h.uri != aRecording+"?expires=1&signature=ab" {
		t.Errorf("h.uri = %v, want %v", h.uri, aRecording+"?expires=1&signature=ab")
	}
	if h.header.Get("Range") != "bytes=0-3" {
		t.Errorf("Range = %q, want \"bytes=0-3\"", h.header.Get("Range"))
	}
	if h.header.Get("Authorization") != "" {
		t.Errorf("Authorization = %q, want \"\"", h.header.Get("Authorization"))
	}
	if h.caller.WorkspaceID != uuid.Nil {
		t.Errorf("h.caller.WorkspaceID = %v, want %v", h.caller.WorkspaceID, uuid.Nil)
	}
	if h.caller.Access != serviceauth.Read {
		t.Errorf("h.caller.Access = %v, want %v", h.caller.Access, serviceauth.Read)
	}
	if h.caller.Operator != "" {
		t.Errorf("h.caller.Operator = %q, want \"\"", h.caller.Operator)
	}
}

func TestRecording_PathsThatAreNoLinkReachNoService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		method, path string
		status       int
	}{
		{"POST", aRecording, http.StatusMethodNotAllowed},
		{"DELETE", aRecording, http.StatusMethodNotAllowed},
		{"GET", "/recordings", http.StatusUnauthorized},
		{"GET", "/recordings/", http.StatusUnauthorized},
		{"GET", "/recordings/../v1/calls", http.StatusUnauthorized},
		{"GET", "/recordings/%2e%2e/v1/calls", http.StatusUnauthorized},
	} {
		if got := r.customer(row.method, row.path, "", ""); got.status != row.status {
			t.Errorf("%s %s = %d %s, want %d", row.method, row.path, got.status, got.body, row.status)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.received) != 0 {
		t.Errorf("requests to owners = %v, want none", r.received)
	}
}

func TestRecording_RequestsAreCountedByAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	from := http.Header{"X-Forwarded-For": {"203.0.113.7"}}
	first := send(t, "HEAD", r.public.URL+aRecording, "", "", from)
	if got := first.header.Get("X-RateLimit-Remaining"); got != "599" {
		t.Errorf("X-RateLimit-Remaining after the first request = %q, want 599", got)
	}
	r.useUp("address 203.0.113.7")
	if got := send(t, "HEAD", r.public.URL+aRecording, "", "", from); got.status != http.StatusTooManyRequests {
		t.Errorf("a request above the limit = %d, want 429", got.status)
	}
}
