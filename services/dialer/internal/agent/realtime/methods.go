package realtime

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// requestIDKey is the metadata key for the id of a request of the session. The server copies the
// metadata of the request into the response.
const requestIDKey = "asked"

func exactly(text string, inLanguage bool, s agent.Settings) responseSettings {
	return responseSettings{Instructions: agent.SayExactly(text, inLanguage, s), ToolChoice: "none"}
}

// disclosure returns the request for the first response of every call. The person cannot interrupt
// this response. Until the disclosure was spoken, the model does not respond to the person.
func (s *session) disclosure() response {
	text, inLanguage := agent.FirstWords(s.spec)
	settings := exactly(text, inLanguage, s.spec.Settings)
	return response{settings: &settings, isDisclosure: true}
}

// Begin requests the disclosure and then the greeting. If there is no greeting, the model starts
// the conversation as its instructions require.
func (s *session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended || s.sock == nil {
		return
	}
	s.started = true
	s.sock.Flow()
	if text, _ := agent.FirstWords(s.spec); text != "" {
		s.queuedResponses = append(s.queuedResponses, s.disclosure())
	}
	greeting := response{dropIfRefused: true}
	if text := agent.Greeting(s.spec); text != "" {
		settings := exactly(text, true, s.spec.Settings)
		greeting.settings = &settings
	}
	s.queuedResponses = append(s.queuedResponses, greeting)
	s.requestNext()
}

// enableResponses lets the model respond to the person, and lets the person interrupt the model. It
// is called after the disclosure.
func (s *session) enableResponses() {
	if s.opened {
		return
	}
	s.opened = true
	send(
		s.sock,
		clientEvent{
			Type:    "session.update",
			EventID: "answer",
			Session: &sessionSettings{Type: "realtime", Audio: audioSettings{Input: s.input()}},
		},
	)
}

// requestNext requests the next queued response. It does nothing while a response is active,
// because the model creates only one response at a time.
func (s *session) requestNext() {
	if s.responseActive || s.ended || !s.started || len(s.queuedResponses) == 0 {
		return
	}
	next := s.queuedResponses[0]
	s.queuedResponses = s.queuedResponses[1:]
	s.counted++
	s.responseActive, s.requested, s.requestedID = true, &next, "ask-"+strconv.Itoa(s.counted)
	s.disclosureActive, s.disclosureItem = next.isDisclosure, ""
	settings := responseSettings{}
	if next.settings != nil {
		settings = *next.settings
	}
	settings.Metadata = map[string]string{requestIDKey: s.requestedID}
	send(s.sock, clientEvent{Type: "response.create", EventID: s.requestedID, Response: &settings})
}

func (s *session) Say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.started {
		return
	}
	settings := exactly(text, true, s.spec.Settings)
	s.queuedResponses = slices.DeleteFunc(s.queuedResponses, func(r response) bool { return !r.isDisclosure })
	clear(s.calls) // the model no longer needs the results of its open tool calls
	s.queuedResponses = append(s.queuedResponses, response{settings: &settings, fromSay: true})
	s.requestNext()
}

func (s *session) HearAudio(frame []byte) {
	s.mu.Lock()
	sock := s.sock
	s.mu.Unlock()
	if sock != nil {
		sock.Hear(frame)
	}
}

// HearDigit sends a sentence about the digit to the model, because the API has no event for digits.
func (s *session) HearDigit(digit byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.started || digit < '#' || digit > 'D' {
		return
	}
	pressed := conversationItem{
		Type:    "message",
		Role:    "user",
		Content: []content{{Type: "input_text", Text: "[The person pressed the key " + string(rune(digit)) + "]"}},
	}
	send(s.sock, clientEvent{Type: "conversation.item.create", Item: &pressed})
	if len(s.queuedResponses) == 0 {
		s.queuedResponses = append(s.queuedResponses, response{})
	}
	s.requestNext()
}

func (s *session) Events() <-chan agent.Event { return s.events }

// Interrupted informs the model how much of an item the person heard. It does so once per item, and
// ignores unknown items. played is limited to the length of the item, because the API refuses more.
func (s *session) Interrupted(id string, played time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	if it == nil || it.cut || s.ended {
		return
	}
	it.cut = true
	heard := min(played, agent.Duration(it.bytes))
	send(
		s.sock,
		clientEvent{
			Type:       "conversation.item.truncate",
			truncation: &truncation{ItemID: id, AudioEndMS: heard.Milliseconds()},
		},
	)
}

// Played deletes the state of an item that was played to its end. Such an item cannot be
// interrupted any more.
func (s *session) Played(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[id]; it != nil && it.done {
		delete(s.items, id)
	}
}

// ToolResult sends the result of a tool to the model. If no other tool call is open, the session
// also requests a response, except after a successful end_call.
func (s *session) ToolResult(id string, result json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, waits := s.calls[id]
	if !waits || s.ended {
		return
	}
	delete(s.calls, id)
	send(
		s.sock,
		clientEvent{
			Type: "conversation.item.create",
			Item: &conversationItem{Type: "function_call_output", CallID: id, Output: string(result)},
		},
	)
	if name == agent.ToolEndCall && !agent.IsRefusal(result) {
		return
	}
	// One queued response answers the results of all tool calls.
	if n := len(s.queuedResponses); n == 0 || s.queuedResponses[n-1] != (response{}) {
		s.queuedResponses = append(s.queuedResponses, response{})
	}
	if len(s.calls) == 0 {
		s.requestNext()
	}
}

func (s *session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	close(s.closed)
	if s.sock != nil {
		s.sock.Close()
	}
}
