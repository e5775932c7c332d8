// Package realtimetest is a Realtime server for tests: it keeps the protocol's states and refuses what the real one refuses. What it hears and says is scripted; how it
// comes to speak (its voice detection, its pace, its interruptions) is as it is there.

package modeltest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// RealtimeReply is what the model does when it is its turn.
type RealtimeReply struct {
	// Text is said, in a tone of Length (zero: 60 ms a letter).
	Text   string
	Length time.Duration
	// Tool is called after that, with Args.
	Tool, Args string
	// Status of the response; empty: completed.
	Status string
}

// RealtimeOptions of a server.
type RealtimeOptions struct {
	// Key that it takes; empty: any.
	Key string
	// Reply decides what the model does. heard is the person's words, or a tool's output; asked the instructions of the response, when it has its own. n counts from 1.
	Reply func(heard, asked string, n int) RealtimeReply
	// Hears are the words of the nth time that somebody speaks, as voice detection finds it in the audio; nil: audio is only counted.
	Hears func(n int) string
	// Echo sends back every frame that is heard, at once, in one endless item, once the first reply was said, and nothing else: for measuring.
	Echo bool
	// Chunk is how much audio a delta carries, in bytes (zero: 4000), and Pace the pause between deltas.
	Chunk int
	Pace  time.Duration
}

// RealtimeServer is a running one.
type RealtimeServer struct {
	// URL begins with ws://.
	URL  string
	opts RealtimeOptions
	http *httptest.Server

	mu       sync.Mutex
	conns    []*conn
	received []json.RawMessage
	sent     []json.RawMessage
	refuse   int
	mute     bool
	frames   atomic.Int64
}

// NewRealtime starts a server on this machine.
func NewRealtime(opts RealtimeOptions) *RealtimeServer {
	s := UnstartedRealtime(opts)
	s.http = httptest.NewServer(s)
	s.URL = "ws" + strings.TrimPrefix(s.http.URL, "http") + "/v1/realtime"
	return s
}

// UnstartedRealtime is the handler alone, for a server of the caller's.
func UnstartedRealtime(opts RealtimeOptions) *RealtimeServer {
	if opts.Reply == nil {
		opts.Reply = func(_, asked string, _ int) RealtimeReply {
			return RealtimeReply{Text: QuotedRealtime(asked, "Good day.")}
		}
	}
	if opts.Chunk == 0 {
		opts.Chunk = 4000
	}
	return &RealtimeServer{opts: opts}
}

// QuotedRealtime is the sentence that instructions ask to be said exactly; other when they ask for none.
func QuotedRealtime(instructions, other string) string {
	var text string
	if i := strings.Index(instructions, `: "`); i >= 0 && json.Unmarshal([]byte(instructions[i+2:]), &text) == nil {
		return text
	}
	return other
}

// Close ends the server and its connections.
func (s *RealtimeServer) Close() {
	s.Cut()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Cut breaks every connection off.
func (s *RealtimeServer) Cut() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.ws.CloseNow()
	}
}

// Refuse answers the next n connections with 503.
func (s *RealtimeServer) Refuse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = n
}

// Mute has the server confirm nothing from now on.
func (s *RealtimeServer) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = true
}

// Inject sends a message as it is on every connection.
func (s *RealtimeServer) Inject(message []byte) {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		c.write(message)
	}
}

// Speak has the person say this on the newest connection, as if voice detection had found it.
func (s *RealtimeServer) Speak(text string) {
	s.mu.Lock()
	c := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	c.startSpeech()
	c.stopSpeech(text)
}

// Interrupt has the person begin to speak, and go on.
func (s *RealtimeServer) Interrupt() {
	s.mu.Lock()
	c := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	c.startSpeech()
}

// Frames is how many frames were heard, on all connections.
func (s *RealtimeServer) Frames() int { return int(s.frames.Load()) }

// Connections is how many there have been.
func (s *RealtimeServer) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Received are the events of a type that came from clients; those of all types, when it is empty. Of audio, the first hundred.
func (s *RealtimeServer) Received(kind string) []json.RawMessage { return s.list(&s.received, kind) }

// Sent are the events of a type that were sent.
func (s *RealtimeServer) Sent(kind string) []json.RawMessage { return s.list(&s.sent, kind) }

func (s *RealtimeServer) list(from *[]json.RawMessage, kind string) (found []json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, message := range *from {
		var head struct{ Type string }
		if _ = json.Unmarshal(message, &head); kind == "" || head.Type == kind {
			found = append(found, message)
		}
	}
	return found
}

func (s *RealtimeServer) keep(into *[]json.RawMessage, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*into) < 4096 {
		*into = append(*into, slices.Clone(message))
	}
}

// ServeHTTP is one connection.
func (s *RealtimeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse > 0
	if refuse {
		s.refuse--
	}
	s.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case refuse:
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return
	case s.opts.Key != "" && key != s.opts.Key && r.Header.Get("Api-Key") != s.opts.Key:
		http.Error(w, `{"error":{"code":"invalid_api_key"}}`, http.StatusUnauthorized)
		return
	case r.URL.Path != "/v1/realtime" || r.URL.Query().Get("model") == "":
		http.Error(w, `{"error":{"code":"missing_model"}}`, http.StatusBadRequest)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(16 << 20)
	c := &conn{server: s, ws: ws, items: map[string]int{}, model: r.URL.Query().Get("model"), replies: make(chan string, 64)}
	s.mu.Lock()
	s.conns = append(s.conns, c)
	mute := s.mute
	s.mu.Unlock()
	defer func() { _ = ws.CloseNow() }()
	if !mute {
		c.send("session.created", map[string]any{"session": c.session()})
	}
	for {
		_, message, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		c.take(message)
	}
}
