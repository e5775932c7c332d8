package dispatch

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endlessBody returns its text. After that, Read blocks until the request ends.
type endlessBody struct {
	text    io.Reader
	request *http.Request
}

func (b endlessBody) Read(p []byte) (int, error) {
	if n, err := b.text.Read(p); err == nil {
		return n, nil
	}
	<-b.request.Context().Done()
	return 0, b.request.Context().Err()
}

func (b endlessBody) Close() error { return nil }

func sendIn(t *testing.T, transport roundTrip) deliveries.Response {
	t.Helper()
	c := &Client{http: &http.Client{Transport: transport}, timeout: 10 * time.Second}
	return c.Send(t.Context(), deliveries.Work{
		DeliveryID: uuid.New(), EventID: uuid.New(), URL: "https://203.0.113.1/", Secret: "secret",
		Body: []byte("{}"), Attempt: 1,
	})
}

func TestSend_EndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		transport roundTrip
		failure   deliveries.Failure
		code      int
		excerpt   string
	}{
		{
			name: "no response",
			transport: func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			},
			failure: deliveries.Timeout,
		},
		{ // over TLS, a response can arrive after the client has closed its side of the connection
			name: "response after the request was canceled",
			transport: func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			},
			failure: deliveries.Timeout,
		},
		{
			name: "body that never ends after a status of success",
			transport: func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: endlessBody{strings.NewReader("begun"), r}}, nil
			},
			code: http.StatusOK, excerpt: "begun",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				response := sendIn(t, tt.transport)
				if response.Duration != 10*time.Second {
					t.Errorf("Took = %s, want the timeout of 10 s", response.Duration)
				}
				if response.Failure != tt.failure {
					t.Errorf("Failure = %q, want %q", response.Failure, tt.failure)
				}
				if tt.failure == deliveries.Timeout && !strings.HasPrefix(response.Detail, "no ") {
					t.Errorf("Detail = %q, want what was missing", response.Detail)
				}
				if response.Code != tt.code {
					t.Errorf("Code = %d, want %d", response.Code, tt.code)
				}
				if response.Excerpt != tt.excerpt {
					t.Errorf("Excerpt = %q, want %q", response.Excerpt, tt.excerpt)
				}
			})
		})
	}
}

// hugeBody has no end and counts the bytes that are read.
type hugeBody struct{ read int }

func (b *hugeBody) Read(p []byte) (int, error) {
	b.read += len(p)
	return len(p), nil
}

func (b *hugeBody) Close() error { return nil }

func TestSend_ReadsAtMost64KiBOfABody(t *testing.T) {
	t.Parallel()
	body := &hugeBody{}
	response := sendIn(t, func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTeapot, Body: body}, nil
	})
	if response.Code != http.StatusTeapot {
		t.Errorf("Code = %d, want 418", response.Code)
	}
	if body.read > maxRead {
		t.Errorf("read %d bytes of the body, want at most %d", body.read, maxRead)
	}
	if len(response.Excerpt) > maxExcerpt {
		t.Errorf("Excerpt has %d bytes, want at most %d", len(response.Excerpt), maxExcerpt)
	}
}
