package realtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// reconnectWait bounds the one attempt to get the model back in the middle of a call.
	reconnectWait = 5 * time.Second
	// lateEvent is how long an event after Close waits for a reader.
	lateEvent = 100 * time.Millisecond
	// renewAfter is before the 60 minutes after which the model ends a session by itself; a new one is opened then.
	renewAfter = 58 * time.Minute
	// mostTools bounds what a model may ask for in one call, and failures how often in a row it may fail to answer.
	mostTools, failures = 100, 2
	// mostWords bounds the arguments of a tool and one transcript, in bytes; mostHistory what a new session is told of the old one.
	mostWords, mostHistory = 32 << 10, 16 << 10
	// mostItems is how many items are remembered.
	mostItems = 256
)

var (
	errSilent   = errors.New("the model failed to answer")
	errTools    = errors.New("the model asks for tools without end")
	errRefused  = errors.New("the model refused the session")
	errMessages = errors.New("the model does not speak the protocol")
)

// response is one that we ask for. first: the disclosure. said: what Say asked for. Both are played to their end, whoever talks. moot: it is not worth saying once the model answers something else.
type response struct {
	settings          *responseSettings
	first, said, moot bool
}

func (r response) keep() bool { return r.first || r.said }

// item is one thing that the model says, by what has come of it.
type item struct {
	bytes     int
	done, cut bool
}

type session struct {
	spec          agent.Spec
	transcription string
	renewAfter    time.Duration
	dial          func(context.Context) (*agent.Socket, error)
	events        chan agent.Event
	over          chan struct{} // closed by Close

	mu     sync.Mutex
	sock   *agent.Socket
	ended  bool
	begun  bool
	opened bool // the disclosure was said, or there is none: what the person says is answered
	// active: a response is being made. asked is ours that was not confirmed yet, by its event's id; waiting are those to ask for next.
	active  bool
	asked   *response
	askedID string
	waiting []response
	// kept is the response under way that is to be kept, keptSaid that Say asked for it. echoes: the server tells which response is whose, as its first one, which can only be ours, has shown.
	kept     string
	keptSaid bool
	echoes   bool
	making   bool   // the response that is made is the disclosure
	spoken   string // its last item of which there was sound
	items    map[string]*item
	calls    map[string]string // tool calls that wait for their result, by name
	names    map[string]string // names of calls that are still being written, by item
	called   map[string]bool
	partial  map[string]string // text of items that are not complete, by item
	failed   int
	counted  int
	history  []agent.Turn
	words    int
	lost     bool // the one reconnect is used up
	renewed  *time.Timer
	renew    bool
	dropped  int64
}

func newSession(spec agent.Spec, transcription string, dial func(context.Context) (*agent.Socket, error)) *session {
	s := &session{
		spec: spec, transcription: transcription, dial: dial, events: make(chan agent.Event, 16), over: make(chan struct{}),
		items: map[string]*item{}, calls: map[string]string{}, names: map[string]string{}, called: map[string]bool{},
		partial: map[string]string{},
	}
	text, _ := agent.FirstWords(spec)
	s.opened = text == ""
	return s
}

// settings are the session's, as they are sent at its beginning.
func (s *session) settings() *sessionSettings {
	out := &sessionSettings{
		Type: "realtime", OutputModalities: []string{modality}, Instructions: agent.Instructions(s.spec),
		Tools: agent.Tools(s.spec), ToolChoice: "auto",
		Audio: audioSettings{Input: s.input(), Output: &audioOutput{Format: format{mulaw}, Voice: s.spec.Settings.Voice}},
	}
	return out
}

func (s *session) input() audioInput {
	settings := s.spec.Settings
	in := audioInput{
		Format: format{mulaw}, NoiseReduction: settings.NoiseReduction,
		TurnDetection: turnDetection{
			TurnDetection: agent.TurnDetection{Type: "server_vad"}, CreateResponse: s.opened,
			InterruptResponse: s.opened,
		},
	}
	if settings.TurnDetection != nil {
		in.TurnDetection.TurnDetection = *settings.TurnDetection
	}
	if !s.opened {
		in.TurnDetection.IdleTimeoutMS = nil // a response before the disclosure would be the model's own words
	}
	if s.transcription != "" {
		in.Transcription = newTranscription(s.transcription, s.spec.Settings.Language)
	}
	return in
}

// connect opens a socket and returns when the model has confirmed its settings.
func (s *session) connect(ctx context.Context) error {
	sock, err := s.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, sock.Cut)
	defer stop()
	s.mu.Lock()
	send(sock, clientEvent{Type: "session.update", EventID: "settings", Session: s.settings()})
	s.mu.Unlock()
	for {
		message, err := sock.Next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		e, err := decode(message)
		switch {
		case err != nil:
			sock.Cut()
			return err
		case e.Type == "error":
			sock.Cut()
			return fmt.Errorf("%w: %s", errRefused, code(e))
		case e.Type != "session.updated":
			continue
		}
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		sock.Close()
		return context.Canceled
	}
	s.sock = sock
	s.renewed = time.AfterFunc(s.renewAfter, func() {
		s.mu.Lock()
		s.renew = true
		s.mu.Unlock()
		sock.Cut()
	})
	return nil
}

// code is the fault's name; what else a model says is kept out of logs.
func code(e serverEvent) string {
	if e.Error.Code != "" {
		return strconv.Quote(e.Error.Code)
	}
	return strconv.Quote(e.Error.Type)
}

// run reads until the call or the model is over.
func (s *session) run(ctx context.Context) {
	defer close(s.events)
	for {
		err := s.read()
		s.mu.Lock()
		s.renewed.Stop()
		s.sock.Cut()
		s.dropped += s.sock.Dropped()
		ended, once := s.ended, s.renew || !s.lost
		if !s.renew {
			s.lost = true
		}
		fatal := errors.Is(err, errSilent) || errors.Is(err, errTools) || errors.Is(err, errMessages)
		s.mu.Unlock()
		if !ended && once && !fatal {
			err = s.reconnect(ctx)
		}
		if err == nil {
			continue
		}
		s.emitPartialWords()
		s.mu.Lock()
		last := agent.Event{Kind: agent.Closed, Dropped: s.dropped}
		if !s.ended {
			last = agent.Event{Kind: agent.Failed, Err: fmt.Errorf("%w: %w", agent.ErrBroken, err), Dropped: s.dropped}
		}
		s.mu.Unlock()
		s.emit(last)
		return
	}
}

// read takes events until the socket is gone or a rule is broken.
func (s *session) read() error {
	s.mu.Lock()
	sock := s.sock
	s.mu.Unlock()
	for {
		message, err := sock.Next()
		if err != nil {
			return err
		}
		e, err := decode(message)
		if err != nil {
			return fmt.Errorf("%w: %w", errMessages, err)
		}
		if err := s.take(e); err != nil {
			return err
		}
	}
}

// reconnect opens a new session in the middle of the call and tells it what was said. What the old one was saying is over.
func (s *session) reconnect(ctx context.Context) error {
	s.mu.Lock()
	speaking := s.active || len(s.waiting) > 0
	if s.making { // the disclosure was cut off: it is said again, whole
		s.waiting = append([]response{s.disclosure()}, s.waiting...)
	} else if s.active && s.opened {
		s.waiting = append([]response{{}}, s.waiting...)
	}
	s.active, s.asked, s.making, s.kept, s.renew = false, nil, false, "", false
	var open []string
	for id, it := range s.items {
		if !it.done {
			open = append(open, id)
		}
	}
	s.items, s.calls, s.names = map[string]*item{}, map[string]string{}, map[string]string{}
	s.mu.Unlock()
	s.emitPartialWords()
	for _, id := range open {
		s.emit(agent.Event{Kind: agent.ItemDone, Item: id})
	}
	if speaking {
		s.emit(agent.Event{Kind: agent.TurnDone})
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectWait)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.over:
			cancel()
		case <-stop:
		}
	}()
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.history {
		said := conversationItem{Type: "message", Role: "user", Content: []content{{Type: "input_text", Text: turn.Text}}}
		if turn.Role == agent.RoleAgent {
			said.Role, said.Content[0].Type = "assistant", "output_text"
		}
		send(s.sock, clientEvent{Type: "conversation.item.create", Item: &said})
	}
	if s.begun {
		s.sock.Flow()
	}
	s.ask()
	return nil
}

// emit passes an event on. After Close, it waits for a reader for at most lateEvent.
func (s *session) emit(e agent.Event) {
	select {
	case s.events <- e:
		return
	case <-s.over:
	}
	limit := time.NewTimer(lateEvent)
	defer limit.Stop()
	select {
	case s.events <- e:
	case <-limit.C:
	}
}

func send(sock *agent.Socket, e clientEvent) {
	if message, err := json.Marshal(e); err == nil && sock != nil { // strings and numbers: it cannot fail
		sock.Send(message)
	}
}
