package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/amd"
)

// Time limits for the model's audio and the person's utterances.
const (
	// An item of the model ends after a silence of itemPause.
	itemPause = 700 * time.Millisecond
	// The person's utterance ends if no new part of its transcript arrives for utterancePause.
	utterancePause = 800 * time.Millisecond
	// speakTimeout is how long the model may be silent after a sentence was requested, or in the
	// middle of the sentence. Then the sentence is requested again.
	speakTimeout = 8 * time.Second
)

const (
	// The model counts as speaking if the mean magnitude of 20 ms of its audio is at least loudLevel.
	// The highest possible magnitude is 32,124.
	loudLevel = 64
	// maxTries is the maximum number of requests for the same sentence.
	maxTries     = 2
	maxToolCalls = 100
	// maxText is the maximum size of the arguments of a tool call, and of a transcript, in bytes.
	maxText = 32 << 10
)

var (
	errRefused = errors.New("the model refused the session")
	errSilent  = errors.New("the model did not speak the requested sentence")
	errTools   = errors.New("the model called too many tools")
	errClosed  = errors.New("the model closed the session")
)

// sentence is a text that the person must hear completely: the disclosure with the recording
// notice, or a text of Say. While the model speaks it, the model receives no audio, so that the
// person cannot interrupt it.
type sentence struct {
	text         string
	inLanguage   bool
	isDisclosure bool

	id      string // id of the last event that requested the sentence; empty if there is none
	started bool   // the server has confirmed the request
	letters int    // number of letters in the model's transcript since started was set
	silent  time.Duration
	tries   int
}

// isSpoken reports whether the model's transcript shows that the sentence was spoken. If the model
// translates the sentence, a shorter transcript is enough.
func (u *sentence) isSpoken() bool {
	part := 9
	if !u.inLanguage {
		part = 5
	}
	return u.started && u.letters*10 >= letters(u.text)*part
}

func letters(text string) (n int) {
	for _, r := range text {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			n++
		}
	}
	return n
}

// session is a conversation with the model. mu protects the fields below it. The goroutine that
// reads the socket and the methods of agent.Session use these fields.
type session struct {
	spec   agent.Spec
	sock   *agent.Socket
	events chan agent.Event
	closed chan struct{} // closed by Close

	mu              sync.Mutex
	started         bool
	ended           bool
	currentSentence *sentence   // sentence that the model is speaking; nil if none
	queuedSentences []*sentence // sentences that the model must speak after currentSentence
	openingRequest  appendEvent // opens the conversation after the disclosure; empty after it was sent
	muted           bool
	appends         int
	items           int
	speaking        bool // an item has begun and has not ended
	quiet           time.Duration
	audioBeforeItem []byte // silence that is sent before an item, as a buffer against jitter
	words           string // model's transcript since the end of the last item
	person          string // transcript of the person's current utterance
	pause           time.Duration
	calls           map[string]string // names of tool calls without a result, by id
	called          map[string]bool
}

func newSession(spec agent.Spec, sock *agent.Socket) *session {
	return &session{
		spec: spec, sock: sock, events: make(chan agent.Event, 16), closed: make(chan struct{}),
		calls: map[string]string{}, called: map[string]bool{},
	}
}

func (s *session) start(ctx context.Context, cfg sessionConfig) error {
	stop := context.AfterFunc(ctx, s.sock.Cut)
	defer stop()
	s.send(startEvent{Type: "session.start", EventID: "start", Session: cfg})
	for {
		message, err := s.sock.Next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		e, err := decode(message)
		switch {
		case err != nil:
			return err
		case e.Type == "session.started":
			return nil
		case e.Type == "error":
			return fmt.Errorf("%w: %s", errRefused, strconv.Quote(e.errorCode()))
		case e.Type == "session.closed":
			return fmt.Errorf("%w: %s", errRefused, strconv.Quote(e.Reason))
		}
	}
}

// run reads events until the connection ends. A lost connection ends the call, because a session
// cannot be opened again.
func (s *session) run() {
	defer close(s.events)
	err := s.read()
	s.sock.Cut()
	s.mu.Lock()
	last := agent.Event{Kind: agent.Closed, Dropped: s.sock.Dropped()}
	if !s.ended {
		last.Kind, last.Err = agent.Failed, fmt.Errorf("%w: %w", agent.ErrBroken, err)
	}
	remaining := append(s.endItem(), s.endPerson()...)
	s.mu.Unlock()
	s.emitEvents(append(remaining, last)...)
}

func (s *session) read() error {
	for {
		message, err := s.sock.Next()
		if err != nil {
			return err
		}
		e, err := decode(message)
		if err != nil {
			return err
		}
		s.mu.Lock()
		events, err := s.take(e)
		s.mu.Unlock()
		s.emitEvents(events...)
		if err != nil {
			return err
		}
	}
}

func (s *session) take(e serverEvent) ([]agent.Event, error) {
	switch e.Type {
	case "session.output_audio.delta":
		audio, err := e.audio()
		if err != nil || !s.started || len(audio) == 0 {
			return nil, err
		}
		if s.dropsAudio() {
			s.currentSentence.silent += agent.Duration(len(audio))
			return s.checkSentence()
		}
		return s.onAudio(audio)
	case "session.output_transcript.delta":
		return s.onWords(e.text()), nil
	case "session.input_transcript.delta":
		if len(s.person) < maxText {
			s.person += e.text()
		}
		s.pause = 0
	case "session.commentary.appended":
		return s.onAppended(e.ClientEventID), nil
	case "response.event":
		if e.Event.Type == "response.output_item.done" && e.Event.Item.Type == "function_call" {
			return s.onTool(e.Event.Item.CallID, e.Event.Item.Name, e.Event.Item.Arguments)
		}
	case "error":
		return nil, s.onError(e)
	case "session.closed":
		return nil, fmt.Errorf("%w: %s", errClosed, strconv.Quote(e.Reason))
	}
	return nil, nil
}

// onAudio splits the model's continuous audio into items. An item begins with sound and ends after
// a silence of itemPause. The silence between items is dropped.
func (s *session) onAudio(audio []byte) (events []agent.Event, err error) {
	length, sound := agent.Duration(len(audio)), loud(audio)
	switch {
	case !s.speaking && !sound:
		s.audioBeforeItem = audio
	case !s.speaking:
		s.items++
		s.speaking, s.quiet = true, 0
		events = append(events, s.audioEvent(slices.Concat(s.audioBeforeItem, audio)))
		s.audioBeforeItem = nil
	default:
		events = append(events, s.audioEvent(audio))
		if s.quiet += length; sound {
			s.quiet = 0
		}
		if s.quiet >= itemPause {
			events = append(events, s.endItem()...)
		}
	}
	if s.pause += length; s.pause >= utterancePause {
		events = append(events, s.endPerson()...)
	}
	if s.currentSentence != nil {
		s.currentSentence.silent += length
		if s.speaking {
			s.currentSentence.silent = 0
		}
	}
	followed, err := s.checkSentence()
	return append(events, followed...), err
}

// dropsAudio reports whether the model's audio must be dropped, because the server has not
// confirmed the request to speak the disclosure yet.
func (s *session) dropsAudio() bool {
	return s.currentSentence != nil && s.currentSentence.isDisclosure && !s.currentSentence.started
}

func (s *session) audioEvent(audio []byte) agent.Event {
	e := agent.Event{Kind: agent.Audio, Item: s.item(), Audio: audio}
	if s.currentSentence != nil && s.currentSentence.started {
		e.Keep, e.Asked, e.Disclosure = true, !s.currentSentence.isDisclosure, s.currentSentence.isDisclosure
	}
	return e
}

func (s *session) item() string { return "item-" + strconv.Itoa(s.items) }

func loud(audio []byte) bool {
	for frame := range slices.Chunk(audio, agent.FrameBytes) {
		if amd.Level(frame) >= loudLevel {
			return true
		}
	}
	return false
}

func (s *session) endItem() (events []agent.Event) {
	if s.speaking {
		s.speaking = false
		events = append(events, agent.Event{Kind: agent.ItemDone, Item: s.item()})
	}
	if text := strings.TrimSpace(s.words); text != "" {
		events = append(events, agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: s.item(), Text: text})
	}
	s.words = ""
	if len(events) > 0 && s.currentSentence == nil {
		events = append(events, agent.Event{Kind: agent.TurnDone})
	}
	return events
}

func (s *session) endPerson() (events []agent.Event) {
	if text := strings.TrimSpace(s.person); text != "" {
		events = append(events, agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Text: text})
	}
	s.person = ""
	return events
}

func (s *session) onWords(text string) []agent.Event {
	if !s.started || s.dropsAudio() {
		return nil
	}
	if len(s.words) < maxText {
		s.words += text
	}
	if s.currentSentence != nil && s.currentSentence.started {
		s.currentSentence.letters += letters(text)
	}
	// This error is always nil: checkSentence fails only after a long silence, and a transcript adds
	// no silence.
	events, _ := s.checkSentence()
	return events
}

// onAppended handles the server's confirmation that the model now speaks the requested sentence.
// Words before the confirmation belong to an earlier item.
func (s *session) onAppended(id string) []agent.Event {
	if s.currentSentence == nil || s.currentSentence.started || s.currentSentence.id != id {
		return nil
	}
	events := s.endItem()
	s.currentSentence.started, s.currentSentence.silent = true, 0
	return events
}

// checkSentence ends the requested sentence when the model has spoken it, and requests the next
// sentence. If the model is silent for too long, it requests the sentence again.
func (s *session) checkSentence() (events []agent.Event, err error) {
	u := s.currentSentence
	if u == nil || s.speaking {
		return nil, nil
	}
	if u.isSpoken() {
		events = s.endItem()
		s.currentSentence = nil
		if u.isDisclosure {
			events = append(events, agent.Event{Kind: agent.Disclosed, Item: s.item()})
		}
		if u.isDisclosure && s.spec.Notice != "" {
			events = append(events, agent.Event{Kind: agent.Noticed, Item: s.item()})
		}
		events = append(events, agent.Event{Kind: agent.TurnDone})
		s.requestNextSentence()
		return events, nil
	}
	if u.silent < speakTimeout {
		return nil, nil
	}
	if u.tries >= maxTries {
		return nil, errSilent
	}
	s.request(u)
	return nil, nil
}

// requestNextSentence requests the next queued sentence, unless the model is still speaking one. If
// no sentence is queued, it sends openingRequest and lets the model receive the person's audio
// again.
func (s *session) requestNextSentence() {
	if s.currentSentence != nil || s.ended {
		return
	}
	if len(s.queuedSentences) == 0 {
		s.setMuted(false)
		if s.openingRequest.Content != "" {
			s.append(s.openingRequest.Type, s.openingRequest.Content)
			s.openingRequest = appendEvent{}
		}
		return
	}
	s.currentSentence, s.queuedSentences = s.queuedSentences[0], s.queuedSentences[1:]
	s.setMuted(true)
	s.request(s.currentSentence)
}

func (s *session) request(u *sentence) {
	u.started, u.letters, u.silent = false, 0, 0
	u.tries++
	for _, part := range splitText(agent.SayExactly(u.text, u.inLanguage, s.spec.Settings)) {
		u.id = s.append("session.commentary.append", part)
	}
}

func (s *session) append(kind, content string) string {
	s.appends++
	id := "append-" + strconv.Itoa(s.appends)
	s.send(appendEvent{Type: kind, EventID: id, Content: content})
	return id
}

// setMuted makes the server drop the person's audio, or pass it to the model again. The session
// always sends the audio, because the model measures time by the length of the audio.
func (s *session) setMuted(on bool) {
	if s.muted == on {
		return
	}
	s.muted = on
	kind := "session.input_audio.unmute"
	if on {
		kind = "session.input_audio.mute"
	}
	s.send(plainEvent{kind})
}

// onTool handles a tool call of the backend. If the arguments are not valid JSON, it uses an empty
// object.
func (s *session) onTool(id, name, arguments string) ([]agent.Event, error) {
	if id == "" || s.called[id] {
		return nil, nil
	}
	if s.called[id] = true; len(s.called) > maxToolCalls {
		return nil, errTools
	}
	s.calls[id] = name
	args := json.RawMessage(arguments)
	if len(arguments) > maxText || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	return []agent.Event{{Kind: agent.ToolCall, Tool: name, ID: id, Args: args}}, nil
}

// onError handles an error event. If the server refused the request to speak a sentence, the
// request is repeated, up to maxTries requests. Other errors have no effect.
func (s *session) onError(e serverEvent) error {
	id := e.Error.ClientEventID
	if id == "" {
		id = e.ClientEventID
	}
	if s.currentSentence == nil || id == "" || id != s.currentSentence.id {
		return nil
	}
	if s.currentSentence.tries >= maxTries {
		return fmt.Errorf("%w: %s", errSilent, strconv.Quote(e.errorCode()))
	}
	s.request(s.currentSentence)
	return nil
}

func (s *session) send(event any) {
	if message, err := json.Marshal(event); err == nil { // cannot fail: an event has only strings, numbers and valid JSON
		s.sock.Send(message)
	}
}

// emitEvents waits while the channel is full. After Close, it drops the events instead.
func (s *session) emitEvents(events ...agent.Event) {
	for _, e := range events {
		select {
		case s.events <- e:
		case <-s.closed:
			select {
			case s.events <- e:
			default:
			}
		}
	}
}
