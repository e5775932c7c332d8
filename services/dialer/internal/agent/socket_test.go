package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ringfence.dev/libs/ssrf"
)

func local() ssrf.Dialing {
	return ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).Dialing(time.Second)
}

func serve(t *testing.T, do func(context.Context, *websocket.Conn)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		do(r.Context(), ws)
		_ = ws.CloseNow()
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func plain(dst, frame []byte) []byte { return append(dst, frame...) }

// If the agent's machine fails, the connection can stay open, and writes to it can succeed for
// minutes.
func TestPing_ClosesADeadConnection(t *testing.T) {
	t.Parallel()
	// The server does not read, so it does not answer the ping.
	url := serve(t, func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() })
	s, err := dial(t.Context(), NewClient(local(), nil), url, nil, plain, 10*time.Millisecond, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); !errors.Is(err, ErrLost) {
		t.Errorf("Next = %v, want %v", err, ErrLost)
	}
}

func TestPing_KeepsALiveConnection(t *testing.T) {
	t.Parallel()
	url := serve(t, func(ctx context.Context, ws *websocket.Conn) {
		time.AfterFunc(50*time.Millisecond, func() { _ = ws.Write(ctx, websocket.MessageText, []byte("still here")) })
		_, _, _ = ws.Read(ctx) // Read answers pings
	})
	s, err := dial(t.Context(), NewClient(local(), nil), url, nil, plain, 5*time.Millisecond, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.Next(); err != nil {
		t.Errorf("Next: %v", err)
	} else if string(text) != "still here" {
		t.Errorf(`Next: text = %q, want "still here"`, string(text))
	}
	s.Cut()
}

func TestSocket_SendsMessagesBeforeAudioAndIgnoresBinaryMessages(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	begin := make(chan struct{})
	url := serve(t, func(ctx context.Context, ws *websocket.Conn) {
		<-begin
		_ = ws.Write(ctx, websocket.MessageBinary, []byte{1})
		_ = ws.Write(ctx, websocket.MessageText, []byte("hello"))
		for {
			_, text, err := ws.Read(ctx)
			if err != nil {
				close(got)
				return
			}
			got <- string(text[:1])
		}
	})
	s, err := Dial(t.Context(), NewClient(local(), nil), url, nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	frame := []byte(strings.Repeat("a", 160))
	s.Hear(frame) // dropped, because Flow was not called
	s.Flow()
	s.Hear([]byte("short"))
	for range 3 {
		s.Hear(frame)
	}
	close(begin)
	if text, err := s.Next(); err != nil {
		t.Errorf("Next: %v", err)
	} else if string(text) != "hello" {
		t.Errorf(`Next: text = %q, want "hello"`, string(text))
	}
	s.Close([]byte("last"))
	s.Close([]byte("again"))
	_, _ = s.Next() // the closing handshake needs a call of Next
	var order string
	for one := range got {
		order += one
	}
	switch {
	case !strings.Contains(order, "l"):
		t.Errorf("order = %q, want it to contain %q", order, "l")
	case strings.Count(order, "l") != 1:
		t.Errorf(`strings.Count(order, "l") = %v, want 1`, strings.Count(order, "l"))
	case strings.Count(order, "a") > 3:
		t.Errorf(`strings.Count(order, "a") = %v, want at most 3`, strings.Count(order, "a"))
	}
}

func TestSend_ConnectionIsClosedIfTheAgentDoesNotRead(t *testing.T) {
	t.Parallel()
	url := serve(t, func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() })
	s, err := Dial(t.Context(), NewClient(local(), nil), url, nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte(strings.Repeat("x", 64<<10))
	for range 4 * maxQueuedMessages { // together, the messages have 64 MiB
		s.Send(message)
	}
	if _, err := s.Next(); !errors.Is(err, ErrLost) {
		t.Errorf("Next = %v, want %v", err, ErrLost)
	}
}

// Errors are logged, and a customer's URL can contain a token. So the error must not contain the
// URL.
func TestDial_ErrorDoesNotContainTheURL(t *testing.T) {
	t.Parallel()
	if _, err := Dial(t.Context(), NewClient(local(), nil), "ws://127.0.0.1:1/agent?token=hunter2", nil,
		plain); err == nil {
		t.Error("Dial = nil, want an error")
	} else if strings.Contains(err.Error(), "hunter2") {
		t.Errorf(`Dial: err = %q, want it without "hunter2"`, err.Error())
	}
}

func TestNewClient_DoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	visited := make(chan struct{}, 1)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited <- struct{}{} }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(server.Close)
	if s, err := Dial(t.Context(), NewClient(local(), nil), server.URL, nil, plain); err == nil {
		t.Errorf("Dial = %v, want a refusal", s)
	}
	if len(visited) != 0 {
		t.Error("a redirect was followed")
	}
	huge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 8<<20))
	}))
	t.Cleanup(huge.Close)
	if _, err := Dial(t.Context(), NewClient(local(), nil), huge.URL, nil, plain); err == nil {
		t.Error("Dial of a web page succeeded")
	}
}
