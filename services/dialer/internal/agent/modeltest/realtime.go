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

// RealtimeReply is the content of a response.
type RealtimeReply struct {
	// Text is spoken as noise of the length Length. If Length is 0, each letter lasts 60 ms.
	Text   string
	Length time.Duration
	// Tool is the name of the tool that the model calls with Args, after Text was spoken.
	Tool, Args string
	// Status is the status of the response in response.done. If empty, it is "completed".
	Status string
}

// RealtimeOptions contains the options of a RealtimeServer.
type RealtimeOptions struct {
	// If Key is empty, the server accepts any key.
	Key string
	// Reply returns the content of a response. input is the person's words or a tool's output.
	// instructions is the text in the client's response.create, or "". n is the number of the
	// response, starting at 1.
	Reply func(input, instructions string, n int) RealtimeReply
	// Hears returns the words of the person's nth utterance that voice detection finds in the audio.
	// If Hears is nil, the server only counts the audio.
	Hears func(n int) string
	// If Echo is true, the server sends back each frame that arrives after the first response. Echo
	// is for benchmarks.
	Echo bool
	// Chunk is the number of audio bytes in a delta event; 0 means 4000. Pace is the pause between two
	// delta events.
	Chunk int
	Pace  time.Duration
}

// RealtimeServer is a fake of the OpenAI Realtime API. It implements the states of the protocol and
// refuses the same events as the real server. The functions of RealtimeOptions decide which words
// the server transcribes and which words it sends as speech.
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

// NewRealtime starts a server on a local port.
func NewRealtime(opts RealtimeOptions) *RealtimeServer {
	s := UnstartedRealtime(opts)
	s.http = httptest.NewServer(s)
	s.URL = "ws" + strings.TrimPrefix(s.http.URL, "http") + "/v1/realtime"
	return s
}

// UnstartedRealtime returns a RealtimeServer that does not listen. The caller uses it as a handler
// in an HTTP server.
func UnstartedRealtime(opts RealtimeOptions) *RealtimeServer {
	if opts.Reply == nil {
		opts.Reply = func(_, instructions string, _ int) RealtimeReply {
			return RealtimeReply{Text: QuotedRealtime(instructions, "Good day.")}
		}
	}
	if opts.Chunk == 0 {
		opts.Chunk = 4000
	}
	return &RealtimeServer{opts: opts}
}

// QuotedRealtime returns the sentence that the instructions ask the model to speak word for word.
// If there is none, it returns fallback.
func QuotedRealtime(instructions, fallback string) string {
	var text string
	if i := strings.Index(instructions, `: "`); i >= 0 && json.Unmarshal([]byte(instructions[i+2:]), &text) == nil {
		return text
	}
	return fallback
}

// Close ends the server and its connections.
func (s *RealtimeServer) Close() {
	s.Cut()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Cut closes every connection without a closing handshake.
func (s *RealtimeServer) Cut() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.ws.CloseNow()
	}
}

// Refuse makes the server answer the next n connection attempts with the status 503.
func (s *RealtimeServer) Refuse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = n
}

// Mute stops the server from sending session.created and session.updated.
func (s *RealtimeServer) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = true
}

// Inject sends a message, unchanged, on all connections.
func (s *RealtimeServer) Inject(message []byte) {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		c.write(message)
	}
}

// Speak makes the person say a text on the newest connection, as if voice detection had found it in
// the audio.
func (s *RealtimeServer) Speak(text string) {
	s.mu.Lock()
	c := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	c.startSpeech()
	c.stopSpeech(text)
}

// Interrupt makes the person start to speak. The utterance does not end.
func (s *RealtimeServer) Interrupt() {
	s.mu.Lock()
	c := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	c.startSpeech()
}

// Frames returns the number of received frames on all connections.
func (s *RealtimeServer) Frames() int { return int(s.frames.Load()) }

// Connections returns the number of connections since the start of the server.
func (s *RealtimeServer) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Received returns the events of the given kind that clients sent. An empty kind selects all
// events. Only the first hundred audio events are kept.
func (s *RealtimeServer) Received(kind string) []json.RawMessage { return s.list(&s.received, kind) }

// Sent returns the events of the given kind that the server sent. An empty kind selects all events.
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

func (s *RealtimeServer) store(into *[]json.RawMessage, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*into) < 4096 {
		*into = append(*into, slices.Clone(message))
	}
}

// ServeHTTP serves one session.
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
	c := &conn{
		server:  s,
		ws:      ws,
		items:   map[string]int{},
		model:   r.URL.Query().Get("model"),
		replies: make(chan string, 64),
	}
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
