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
	// reconnectTimeout limits the attempt to reconnect during a call. There is only one attempt.
	reconnectTimeout = 5 * time.Second
	// lateEventTimeout is the longest time that emitEvent waits after Close until the event is read.
	lateEventTimeout = 100 * time.Millisecond
	// renewAfter is the age at which a session is replaced by another one, because the model ends a
	// session after 60 minutes.
	renewAfter = 58 * time.Minute
	// maxToolCalls is the maximum number of tool calls during one phone call. After maxFailures
	// consecutive failed responses of the model, the session ends with an error.
	maxToolCalls, maxFailures = 100, 2
	// maxWords is the maximum size of the arguments of a tool call, and of a transcript, in bytes.
	// maxHistory is the maximum size of the history that a new session receives, in bytes.
	maxWords, maxHistory = 32 << 10, 16 << 10
	// maxItems is the maximum number of items whose state is kept.
	maxItems = 256
)

var (
	errSilent   = errors.New("too many consecutive responses of the model failed")
	errTools    = errors.New("the model called too many tools")
	errRefused  = errors.New("the model refused the session")
	errMessages = errors.New("the model sent an invalid message")
)

// response is a response that the session requests. fromSay is true if Say requested its text. If
// another response is active, the model refuses the request, and a response with dropIfRefused is
// dropped.
type response struct {
	settings                             *responseSettings
	isDisclosure, fromSay, dropIfRefused bool
}

func (r response) uninterruptible() bool { return r.isDisclosure || r.fromSay }

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
	closed        chan struct{} // closed by Close

	mu               sync.Mutex
	sock             *agent.Socket
	ended            bool
	started          bool
	opened           bool      // the model may respond to the person: the disclosure was spoken or is not needed
	responseActive   bool      // a response was requested or created and has not ended
	requested        *response // last requested response; nil after its end or refusal
	requestedID      string    // id of the last request
	queuedResponses  []response
	keptResponseID   string // id of the active response, if the person must not interrupt it
	keptFromSay      bool   // Say requested the response keptResponseID
	returnsIDs       bool   // the server returns request ids in the metadata of responses
	disclosureActive bool   // the active response is the disclosure
	disclosureItem   string // last item of the disclosure that contains audio
	items            map[string]*item
	calls            map[string]string // tool names by call id, for calls without a result
	names            map[string]string // tool names by item, for incomplete tool calls
	called           map[string]bool
	partial          map[string]string // texts by item, for incomplete items
	failed           int
	counted          int
	history          []agent.Turn
	words            int
	hasReconnected   bool // a lost connection was already replaced
	renewed          *time.Timer
	renew            bool
	dropped          int64
}

func newSession(spec agent.Spec, transcription string, dial func(context.Context) (*agent.Socket, error)) *session {
	s := &session{
		spec: spec, transcription: transcription, dial: dial, events: make(chan agent.Event, 16), closed: make(chan struct{}),
		items: map[string]*item{}, calls: map[string]string{}, names: map[string]string{}, called: map[string]bool{},
		partial: map[string]string{},
	}
	text, _ := agent.FirstWords(spec)
	s.opened = text == ""
	return s
}

func (s *session) settings() *sessionSettings {
	out := &sessionSettings{
		Type: "realtime", OutputModalities: []string{modality}, Instructions: agent.Instructions(s.spec),
		Tools: agent.Tools(s.spec), ToolChoice: "auto",
		Audio: audioSettings{
			Input:  s.input(),
			Output: &audioOutput{Format: format{mulaw}, Voice: s.spec.Settings.Voice},
		},
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
		// The model must not create a response before the disclosure. With an idle timeout, it would
		// create a response after a silence of the person.
		in.TurnDetection.IdleTimeoutMS = nil
	}
	if s.transcription != "" {
		in.Transcription = newTranscription(s.transcription, s.spec.Settings.Language)
	}
	return in
}

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
			return fmt.Errorf("%w: %s", errRefused, errorCode(e))
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

// errorCode returns the code of an error or, if it has no code, its type. The error's message is
// not logged.
func errorCode(e serverEvent) string {
	if e.Error.Code != "" {
		return strconv.Quote(e.Error.Code)
	}
	return strconv.Quote(e.Error.Type)
}

// run reads events until the session ends. It replaces an old session by another one, and
// reconnects once after a lost connection.
func (s *session) run(ctx context.Context) {
	defer close(s.events)
	for {
		err := s.read()
		s.mu.Lock()
		s.renewed.Stop()
		s.sock.Cut()
		s.dropped += s.sock.Dropped()
		ended, once := s.ended, s.renew || !s.hasReconnected
		if !s.renew {
			s.hasReconnected = true
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
		s.emitEvent(last)
		return
	}
}

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
		if err := s.handleEvent(e); err != nil {
			return err
		}
	}
}

// reconnect opens another session during the call and sends the history to it. Before that, it ends
// the unfinished items and the response of the old session.
func (s *session) reconnect(ctx context.Context) error {
	s.mu.Lock()
	speaking := s.responseActive || len(s.queuedResponses) > 0
	if s.disclosureActive { // an interrupted disclosure is repeated completely
		s.queuedResponses = append([]response{s.disclosure()}, s.queuedResponses...)
	} else if s.responseActive && s.opened {
		s.queuedResponses = append([]response{{}}, s.queuedResponses...)
	}
	s.responseActive, s.requested, s.disclosureActive, s.keptResponseID, s.renew = false, nil, false, "", false
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
		s.emitEvent(agent.Event{Kind: agent.ItemDone, Item: id})
	}
	if speaking {
		s.emitEvent(agent.Event{Kind: agent.TurnDone})
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.closed:
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
		message := conversationItem{
			Type:    "message",
			Role:    "user",
			Content: []content{{Type: "input_text", Text: turn.Text}},
		}
		if turn.Role == agent.RoleAgent {
			message.Role, message.Content[0].Type = "assistant", "output_text"
		}
		send(s.sock, clientEvent{Type: "conversation.item.create", Item: &message})
	}
	if s.started {
		s.sock.Flow()
	}
	s.requestNext()
	return nil
}

// emitEvent waits until the event is read. After Close, it waits for at most lateEventTimeout.
func (s *session) emitEvent(e agent.Event) {
	select {
	case s.events <- e:
		return
	case <-s.closed:
	}
	limit := time.NewTimer(lateEventTimeout)
	defer limit.Stop()
	select {
	case s.events <- e:
	case <-limit.C:
	}
}

func send(sock *agent.Socket, e clientEvent) {
	if message, err := json.Marshal(e); err == nil && sock != nil { // cannot fail: e contains only strings and numbers
		sock.Send(message)
	}
}
