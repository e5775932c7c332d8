package live

import (
	"encoding/json"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// Begin makes the model speak the disclosure and then the greeting. If there is no greeting, the
// model starts the conversation as its instructions require.
func (s *session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended {
		return
	}
	s.started = true
	s.sock.Flow()
	if text, inLanguage := agent.FirstWords(s.spec); text != "" {
		s.queuedSentences = append(s.queuedSentences, &sentence{text: text, inLanguage: inLanguage, isDisclosure: true})
	}
	if greeting := agent.Greeting(s.spec); greeting != "" {
		s.openingRequest = appendEvent{Type: "session.commentary.append",
			Content: agent.SayExactly(greeting, true, s.spec.Settings)}
	} else {
		s.openingRequest = appendEvent{
			Type: "session.instructions.append", Content: "Speak first: begin the conversation now.",
		}
	}
	s.requestNextSentence()
}

func (s *session) HearAudio(frame []byte) { s.sock.Hear(frame) }

// HearDigit sends a sentence about the digit to the model, because the API has no event for digits
// on this transport.
func (s *session) HearDigit(digit byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.started || digit < '#' || digit > 'D' {
		return
	}
	s.append("session.instructions.append",
		"The person pressed the key "+string(rune(digit))+" of the telephone. React to that.")
}

func (s *session) Events() <-chan agent.Event { return s.events }

// Say makes the model speak a text after the disclosure. If the greeting was not requested yet, it
// is omitted.
func (s *session) Say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.started {
		return
	}
	s.openingRequest = appendEvent{}
	clear(s.calls) // the model no longer needs the results of its open tool calls
	s.queuedSentences = append(s.queuedSentences, &sentence{text: text, inLanguage: true})
	s.requestNextSentence()
}

// Interrupted has no effect: the model stops by itself, and the API has no event that reports how
// much audio was played.
func (s *session) Interrupted(string, time.Duration) {}

func (s *session) Played(string) {}

// ToolResult sends the result of a tool to the backend, the model that calls the tools. When no
// other tool call is open, the session also requests a response. After end_call, it requests one
// only if the result is a refusal.
func (s *session) ToolResult(id string, result json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, waits := s.calls[id]
	if !waits || s.ended {
		return
	}
	delete(s.calls, id)
	s.send(itemEvent{Type: "response.item.create",
		Item: toolOutput{Type: "function_call_output", CallID: id, Output: string(result)}})
	if (name != agent.ToolEndCall || agent.IsRefusal(result)) && len(s.calls) == 0 {
		s.send(plainEvent{"response.create"})
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
	s.sock.Close([]byte(`{"type":"session.close"}`))
}
