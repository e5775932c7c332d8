package realtime

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// asked is the key under which a response carries the id of what asked for it.
const asked = "asked"

// exactly has the model speak a sentence and call no tool.
func exactly(text string, inLanguage bool, s agent.Settings) responseSettings {
	return responseSettings{Instructions: agent.SayExactly(text, inLanguage, s), ToolChoice: "none"}
}

// disclosure is the first response of every call: it is played to its end, and until it is made nothing that the person says is answered.
func (s *session) disclosure() response {
	text, inLanguage := agent.FirstWords(s.spec)
	settings := exactly(text, inLanguage, s.spec.Settings)
	return response{settings: &settings, first: true}
}

// Begin: the disclosure, then the greeting, or what the instructions begin with.
func (s *session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun || s.ended || s.sock == nil {
		return
	}
	s.begun = true
	s.sock.Flow()
	if text, _ := agent.FirstWords(s.spec); text != "" {
		s.waiting = append(s.waiting, s.disclosure())
	}
	greeting := response{moot: true}
	if text := agent.Greeting(s.spec); text != "" {
		settings := exactly(text, true, s.spec.Settings)
		greeting.settings = &settings
	}
	s.waiting = append(s.waiting, greeting)
	s.ask()
}

// answer has the model answer what the person says, and stop when interrupted, from now on.
func (s *session) answer() {
	if s.opened {
		return
	}
	s.opened = true
	send(s.sock, clientEvent{Type: "session.update", EventID: "answer", Session: &sessionSettings{Type: "realtime", Audio: audioSettings{Input: s.input()}}})
}

// ask asks for the next response, once the one before is made: the model makes one at a time.
func (s *session) ask() {
	if s.active || s.ended || !s.begun || len(s.waiting) == 0 {
		return
	}
	next := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.counted++
	s.active, s.asked, s.askedID = true, &next, "ask-"+strconv.Itoa(s.counted)
	s.making, s.spoken = next.first, ""
	settings := responseSettings{}
	if next.settings != nil {
		settings = *next.settings
	}
	settings.Metadata = map[string]string{asked: s.askedID}
	send(s.sock, clientEvent{Type: "response.create", EventID: s.askedID, Response: &settings})
}

func (s *session) Say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.begun {
		return
	}
	settings := exactly(text, true, s.spec.Settings)
	s.waiting = slices.DeleteFunc(s.waiting, func(r response) bool { return !r.first }) // never before the disclosure, but before all else
	clear(s.calls)                                                                      // nobody answers them any more
	s.waiting = append(s.waiting, response{settings: &settings, said: true})
	s.ask()
}

func (s *session) HearAudio(frame []byte) {
	s.mu.Lock()
	sock := s.sock
	s.mu.Unlock()
	if sock != nil {
		sock.Hear(frame)
	}
}

// HearDigit tells the model in words: the protocol has no keys.
func (s *session) HearDigit(digit byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.begun || digit < '#' || digit > 'D' {
		return
	}
	pressed := conversationItem{Type: "message", Role: "user", Content: []content{{Type: "input_text", Text: "[The person pressed the key " + string(rune(digit)) + "]"}}}
	send(s.sock, clientEvent{Type: "conversation.item.create", Item: &pressed})
	if len(s.waiting) == 0 {
		s.waiting = append(s.waiting, response{})
	}
	s.ask()
}

func (s *session) Events() <-chan agent.Event { return s.events }

// Interrupted tells the model how much of an item the person heard. An item that is not the session's, or was told of before, is passed over; more than has come of it
// would be an error.
func (s *session) Interrupted(id string, played time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	if it == nil || it.cut || s.ended {
		return
	}
	it.cut = true
	heard := min(played, agent.Duration(it.bytes))
	send(s.sock, clientEvent{Type: "conversation.item.truncate", truncation: &truncation{ItemID: id, AudioEndMS: heard.Milliseconds()}})
}

// Played forgets the item: it can be truncated no more.
func (s *session) Played(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[id]; it != nil && it.done {
		delete(s.items, id)
	}
}

// ToolResult sends the result of a tool to the model and requests a response. After end_call it
// requests a response only if the result is a refusal. Otherwise the conversation is over.
func (s *session) ToolResult(id string, result json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, waits := s.calls[id]
	if !waits || s.ended {
		return
	}
	delete(s.calls, id)
	send(s.sock, clientEvent{Type: "conversation.item.create", Item: &conversationItem{Type: "function_call_output", CallID: id, Output: string(result)}})
	if name == agent.ToolEndCall && !agent.IsRefusal(result) {
		return
	}
	if n := len(s.waiting); n == 0 || s.waiting[n-1] != (response{}) { // one answer for all results
		s.waiting = append(s.waiting, response{})
	}
	if len(s.calls) == 0 {
		s.ask()
	}
}

func (s *session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	close(s.over)
	if s.sock != nil {
		s.sock.Close()
	}
}
