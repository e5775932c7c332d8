package mediaws

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// maxMarks is the maximum number of marks whose audio is not played yet. maxMark is the maximum
	// length of a mark's name, in bytes. maxWords is the maximum size of a transcript, and of the
	// arguments of a tool call, in bytes.
	maxMarks, maxMark, maxWords = 1024, 256, 32 << 10
	maxToolCalls                = 200
)

// Marks with a special meaning. A mark is a named position in the agent's audio. The audio before
// disclosureMark is the disclosure. The audio before noticeMark is the recording notice.
const (
	disclosureMark = "disclosure"
	noticeMark     = "recording_notice"
)

var (
	errTools = errors.New("the agent called too many tools")
	errMarks = errors.New("the agent set too many marks")
)

// session is one conversation. An item is the agent's audio between two marks, or from a mark to a
// clear message. The session returns a mark to the agent after all audio before the mark was
// played.
type session struct {
	spec    agent.Spec
	stream  string
	sock    *agent.Socket
	events  chan agent.Event
	closed  chan struct{}
	counter atomic.Int64
	chunk   int64 // only the socket's writer uses it

	mu           sync.Mutex
	started      bool
	ended        bool
	item         int
	itemHasSound bool // true if the current item contains sound
	// marks contains the marks that were sent and not yet returned by the agent: the name of each
	// mark by the number of its item. A mark is sent after the last sound of an item.
	marks     map[int]string
	tools     map[string]bool
	toolCalls int
	hungUp    bool // true if the agent ended the conversation
}

func newSession(spec agent.Spec) *session {
	return &session{
		spec: spec, stream: "MZ" + strings.ReplaceAll(spec.CallID.String(), "-", ""),
		events: make(chan agent.Event, 16), closed: make(chan struct{}),
		marks: map[int]string{}, tools: map[string]bool{},
	}
}

// Begin sends the start message. It contains the contact's variables and the texts that the agent
// must speak first.
func (s *session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended {
		return
	}
	s.started = true
	parameters := map[string]string{"call_id": s.spec.CallID.String(), "agent_id": s.spec.AgentID.String()}
	if variables := s.spec.Variables; json.Valid(variables) {
		parameters["variables"] = string(variables)
	}
	if text, _ := s.spec.Settings.DisclosureText(); text != "" {
		parameters["disclosure"] = text
	}
	if s.spec.Notice != "" {
		parameters["recording_notice"] = s.spec.Notice
	}
	s.send(message{Event: "start", Start: &start{
		StreamSID: s.stream, CallSID: s.spec.CallID.String(), Tracks: []string{"inbound"}, CustomParameters: parameters,
		MediaFormat: mediaFormat{Encoding: "audio/x-mulaw", SampleRate: agent.BytesPerSecond, Channels: 1},
	}})
	s.sock.Flow()
}

// send sends a message. It adds a sequence number to every message except "connected".
func (s *session) send(m message) {
	if m.Event != "connected" {
		m.SequenceNumber, m.StreamSID = strconv.FormatInt(s.counter.Add(1), 10), s.stream
	}
	if text, err := json.Marshal(m); err == nil {
		s.sock.Send(text)
	}
}

func (s *session) HearAudio(frame []byte) { s.sock.Hear(frame) }

func (s *session) HearDigit(digit byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && !s.ended {
		s.send(message{Event: "dtmf", DTMF: &dtmf{Track: "inbound_track", Digit: string(rune(digit))}})
	}
}

func (s *session) Events() <-chan agent.Event { return s.events }

// Say sends the event "say". Agents that do not support this event ignore it.
func (s *session) Say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && !s.ended {
		s.send(message{Event: "say", Say: &say{text}})
	}
}

// Interrupted returns the mark of the discarded audio, as the protocol requires.
func (s *session) Interrupted(item string, _ time.Duration) { s.Played(item) }

func (s *session) Played(item string) {
	n, err := strconv.Atoi(item)
	s.mu.Lock()
	defer s.mu.Unlock()
	name, marked := s.marks[n]
	if err != nil || !marked || s.ended {
		return
	}
	delete(s.marks, n)
	s.send(message{Event: "mark", Mark: &mark{name}})
}

func (s *session) ToolResult(id string, result json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.tools[id] {
		return
	}
	delete(s.tools, id)
	s.send(message{Event: "tool_result", ToolResult: &toolResult{id, result}})
}

func (s *session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.started {
		s.send(message{Event: "stop", Stop: &stop{s.spec.CallID.String()}})
	}
	s.ended = true
	close(s.closed)
	s.sock.Close()
}

// run reads messages until the connection ends. A lost connection ends the call, because the agent
// could not continue the conversation on another connection. If the agent closes the socket or
// sends hangup, the queued audio is played before the call ends.
func (s *session) run() {
	defer close(s.events)
	var err error
	for err == nil {
		var text []byte
		if text, err = s.sock.Next(); err != nil {
			break
		}
		var m message
		if m, err = decode(text); err == nil {
			err = s.take(m)
		}
	}
	s.mu.Lock()
	last := agent.Event{Kind: agent.Closed, Dropped: s.sock.Dropped()}
	ours := s.ended
	if !ours && !s.hungUp && (errors.Is(err, agent.ErrLost) || !errors.Is(err, agent.ErrClosed)) {
		last.Kind, last.Err = agent.Failed, fmt.Errorf("%w: %w", agent.ErrBroken, err)
	}
	item := s.item
	s.mu.Unlock()
	s.emitEvent(agent.Event{Kind: agent.ItemDone, Item: strconv.Itoa(item)})
	s.emitEvent(last)
	// Marks must still be returned while the last audio is played, so the session waits for Close.
	// Close sends the stop message and closes the connection.
	if !ours {
		<-s.closed
	}
}

func (s *session) take(m message) error {
	switch m.Event {
	case "media":
		audio, err := m.audio()
		if err != nil {
			return err
		}
		s.mu.Lock()
		item := s.item
		s.itemHasSound = s.itemHasSound || len(audio) > 0
		s.mu.Unlock()
		if len(audio) > 0 {
			s.emitEvent(agent.Event{Kind: agent.Audio, Item: strconv.Itoa(item), Audio: audio})
		}
	case "mark":
		return s.onMark(m)
	case "clear":
		s.mu.Lock()
		s.item++
		s.itemHasSound = false
		s.mu.Unlock()
		s.emitEvent(agent.Event{Kind: agent.Clear})
	case "hangup":
		s.mu.Lock()
		s.hungUp = true
		s.mu.Unlock()
		return errHangup
	case "transcript":
		if t := m.Transcript; t != nil && (t.Role == agent.RoleAgent || t.Role == agent.RolePerson) {
			s.emitEvent(
				agent.Event{
					Kind: agent.Utterance,
					Role: t.Role,
					Text: strings.ToValidUTF8(t.Text[:min(len(t.Text), maxWords)], ""),
				},
			)
		}
	case "tool":
		return s.onTool(m)
	}
	return nil
}

var errHangup = errors.New("the agent hung up")

// onMark ends the current item, which is empty if no audio preceded the mark. Marks are returned in
// the order in which the agent sent them.
func (s *session) onMark(m message) error {
	if m.Mark == nil {
		return nil
	}
	s.mu.Lock()
	if len(s.marks) >= maxMarks {
		s.mu.Unlock()
		return errMarks
	}
	item := s.item
	s.marks[item] = m.Mark.Name[:min(len(m.Mark.Name), maxMark)]
	disclosed := m.Mark.Name == disclosureMark && s.itemHasSound
	noticed := s.spec.Notice != "" && m.Mark.Name == noticeMark && s.itemHasSound
	s.item++
	s.itemHasSound = false
	s.mu.Unlock()
	s.emitEvent(agent.Event{Kind: agent.ItemDone, Item: strconv.Itoa(item)})
	if disclosed {
		s.emitEvent(agent.Event{Kind: agent.Disclosed, Item: strconv.Itoa(item)})
	}
	if noticed {
		s.emitEvent(agent.Event{Kind: agent.Noticed, Item: strconv.Itoa(item)})
	}
	return nil
}

func (s *session) onTool(m message) error {
	t := m.Tool
	if t == nil || t.ID == "" || len(t.ID) > maxMark || len(t.Args) > maxWords {
		return nil
	}
	s.mu.Lock()
	if s.toolCalls++; s.toolCalls > maxToolCalls {
		s.mu.Unlock()
		return errTools
	}
	s.tools[t.ID] = true
	s.mu.Unlock()
	s.emitEvent(agent.Event{Kind: agent.ToolCall, Tool: t.Name, ID: t.ID, Args: t.Args})
	return nil
}

func (s *session) emitEvent(e agent.Event) {
	select {
	case s.events <- e:
	case <-s.closed:
		select {
		case s.events <- e:
		default:
		}
	}
}
