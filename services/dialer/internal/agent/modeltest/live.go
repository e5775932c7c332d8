// Package modeltest contains fakes of OpenAI's Realtime API and Live API (GPT-Live), for tests and
// for cmd/fake-speech-model. The fake of the Live API refuses events with fields that the types of
// openai-go do not have.
package modeltest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// LiveReply is what the model does after an input.
type LiveReply struct {
	// Text is spoken as sound of 40 ms per letter.
	Text string
	// Tool is the name of the tool that the backend calls with Args, after Text was spoken.
	Tool, Args string
}

// LiveOptions contains the options of a LiveServer.
type LiveOptions struct {
	// If Key is empty, the server accepts any key.
	Key string
	// Hears returns the words of the person's nth utterance; the first n is 1. If Hears is nil, the
	// server only counts the audio.
	Hears func(n int) string
	// Reply returns what the model does after an input. The input is the person's words, a tool's
	// output, or the content of a session.instructions.append. If Reply is nil, the model always says
	// "Good day."
	Reply func(input string) LiveReply
	// Refuse is the error code with which the server refuses session.start. If Refuse is empty, the
	// server starts the session.
	Refuse string
	// Unspoken is the number of session.commentary.append events that the server accepts, but does not
	// speak.
	Unspoken int
}

// LiveServer is a fake of the Live API. The functions of LiveOptions decide which words the server
// transcribes and which words it sends as speech.
type LiveServer struct {
	// URL begins with ws://.
	URL  string
	opts LiveOptions
	http *httptest.Server

	mu       sync.Mutex
	sessions []*session
	received []json.RawMessage
	sent     []json.RawMessage
}

// NewLive starts a server on a local port.
func NewLive(opts LiveOptions) *LiveServer {
	s := UnstartedLive(opts)
	s.http = httptest.NewServer(s)
	s.URL = "ws" + strings.TrimPrefix(s.http.URL, "http") + Path
	return s
}

// Path is the URL path of Live sessions.
const Path = "/v1/live/sessions"

// UnstartedLive returns a LiveServer that does not listen. The caller uses it as a handler in an
// HTTP server.
func UnstartedLive(opts LiveOptions) *LiveServer {
	if opts.Reply == nil {
		opts.Reply = func(string) LiveReply { return LiveReply{Text: "Good day."} }
	}
	return &LiveServer{opts: opts}
}

// QuotedLive returns the sentence that the text asks the model to speak word for word, or "" if
// there is none.
func QuotedLive(text string) string {
	var sentence string
	if i := strings.Index(text, `: "`); i >= 0 && json.Unmarshal([]byte(text[i+2:]), &sentence) == nil {
		return sentence
	}
	return ""
}

// Close ends the server and its connections.
func (s *LiveServer) Close() {
	s.Cut()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Cut closes every connection without a closing handshake.
func (s *LiveServer) Cut() {
	for _, one := range s.all() {
		_ = one.ws.CloseNow()
	}
}

// End ends every session with a reason such as "expired", as the real server does.
func (s *LiveServer) End(reason string) {
	for _, one := range s.all() {
		one.close(reason)
	}
}

// Fail sends an error event on all sessions.
func (s *LiveServer) Fail(code string) {
	for _, one := range s.all() {
		one.refuse("", code, "")
	}
}

// Inject sends a message, unchanged, on all sessions.
func (s *LiveServer) Inject(message []byte) {
	for _, one := range s.all() {
		one.write(message)
	}
}

func (s *LiveServer) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// Received returns the events of the given kind that clients sent. An empty kind selects all
// events. Only the first hundred audio events are kept.
func (s *LiveServer) Received(kind string) []json.RawMessage { return s.list(&s.received, kind) }

// Sent returns the events of the given kind that the server sent. An empty kind selects all events.
// Only the first hundred audio events are kept.
func (s *LiveServer) Sent(kind string) []json.RawMessage { return s.list(&s.sent, kind) }

func (s *LiveServer) list(from *[]json.RawMessage, kind string) (found []json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, message := range *from {
		if kind == "" || typeOf(message) == kind {
			found = append(found, message)
		}
	}
	return found
}

func (s *LiveServer) store(into *[]json.RawMessage, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*into) < 4096 {
		*into = append(*into, slices.Clone(message))
	}
}

func typeOf(message []byte) string {
	var head struct{ Type string }
	_ = json.Unmarshal(message, &head)
	return head.Type
}

// ServeHTTP serves one session.
func (s *LiveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); {
	case s.opts.Key != "" && key != s.opts.Key:
		http.Error(w, `{"error":{"code":"invalid_api_key"}}`, http.StatusUnauthorized)
		return
	case r.URL.Path != Path || r.URL.RawQuery != "":
		http.Error(w, `{"error":{"code":"invalid_request"}}`, http.StatusBadRequest)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(16 << 20)
	one := &session{server: s, ws: ws, unspoken: s.opts.Unspoken}
	s.mu.Lock()
	s.sessions = append(s.sessions, one)
	s.mu.Unlock()
	for {
		_, message, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		one.take(message)
	}
}
