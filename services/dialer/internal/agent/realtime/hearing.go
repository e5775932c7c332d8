package realtime

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"ringfence.dev/services/dialer/internal/agent"
)

// take is one event of the model's. Those that nobody knows are passed over; an error ends the connection.
func (s *session) take(e serverEvent) error {
	switch e.Type {
	case "response.output_audio.delta":
		return s.onAudio(e)
	case "response.output_audio.done":
		s.onItemDone(e.ItemID)
	case "response.output_audio_transcript.delta":
		s.onPartialWords(e)
	case "response.output_audio_transcript.done":
		s.onWords(agent.RoleAgent, e)
	case "conversation.item.input_audio_transcription.completed":
		s.onWords(agent.RolePerson, e)
	case "input_audio_buffer.speech_started":
		s.emit(agent.Event{Kind: agent.SpeechStarted, Item: e.ItemID})
	case "response.created":
		s.onCreated(e)
	case "response.done":
		return s.onDone(e)
	case "response.output_item.added":
		s.mu.Lock()
		if e.Item.Type == "function_call" && len(s.names) < mostTools {
			s.names[e.Item.ID] = e.Item.Name
		}
		s.mu.Unlock()
	case "response.function_call_arguments.done":
		return s.onTool(e.ItemID, e.Name, e.CallID, e.Arguments)
	case "response.output_item.done":
		if e.Item.Type == "function_call" {
			return s.onTool(e.Item.ID, e.Item.Name, e.Item.CallID, e.Item.Arguments)
		}
	case "error":
		s.onError(e)
	}
	return nil
}

// onAudio: a piece of what the model says. Of an item that was cut nothing more is played.
func (s *session) onAudio(e serverEvent) error {
	audio, err := e.audio()
	if err != nil {
		return err
	}
	s.mu.Lock()
	it := s.items[e.ItemID]
	if it == nil {
		if len(s.items) >= mostItems {
			clear(s.items) // of items so old nobody asks
		}
		it = &item{}
		s.items[e.ItemID] = it
	}
	it.bytes += len(audio)
	if s.making && len(audio) > 0 {
		s.spoken = e.ItemID
	}
	cut, keep, said := it.cut, s.kept != "" && (e.ResponseID == s.kept || e.ResponseID == ""), s.keptSaid
	s.mu.Unlock()
	if !cut && len(audio) > 0 {
		s.emit(agent.Event{
			Kind: agent.Audio, Item: e.ItemID, Audio: audio, Keep: keep, Asked: keep && said, Disclosure: keep && !said,
		})
	}
	return nil
}

func (s *session) onItemDone(id string) {
	s.mu.Lock()
	it := s.items[id]
	if it != nil {
		it.done = true
	}
	s.mu.Unlock()
	if it != nil {
		s.emit(agent.Event{Kind: agent.ItemDone, Item: id})
	}
}

// onPartialWords keeps the text of an item that is not complete yet.
func (s *session) onPartialWords(e serverEvent) {
	var delta string
	if json.Unmarshal(e.Delta, &delta) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.partial[e.ItemID]
	if (known || len(s.partial) < mostItems) && len(s.partial[e.ItemID])+len(delta) <= mostWords {
		s.partial[e.ItemID] += delta
	}
}

// emitPartialWords emits the text of the items that the model will not complete: the session ended, or
// its connection was lost. A part of them may have been played.
func (s *session) emitPartialWords() {
	s.mu.Lock()
	partial := s.partial
	s.partial = map[string]string{}
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(partial)) {
		s.onWords(agent.RoleAgent, serverEvent{ItemID: id, Transcript: partial[id]})
	}
}

// onWords emits a complete text and adds it to the history.
func (s *session) onWords(role string, e serverEvent) {
	text := strings.TrimSpace(strings.ToValidUTF8(e.Transcript[:min(len(e.Transcript), mostWords)], ""))
	if text == "" {
		return
	}
	s.mu.Lock()
	delete(s.partial, e.ItemID)
	s.history, s.words = append(s.history, agent.Turn{Role: role, Text: text}), s.words+len(text)
	for s.words > mostHistory {
		s.words -= len(s.history[0].Text)
		s.history = s.history[1:]
	}
	s.mu.Unlock()
	s.emit(agent.Event{Kind: agent.Said, Role: role, Item: e.ItemID, Text: text})
}

// onCreated: the model makes a response, ours or, when the person spoke, its own.
func (s *session) onCreated(e serverEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = true // whether ours was taken shows when it is not: the error comes before the end of the other
	echo := e.Response.Metadata[asked]
	s.echoes = s.echoes || echo != ""
	if s.asked != nil && s.asked.keep() && (echo == s.askedID || !s.echoes) {
		s.kept, s.keptSaid = e.Response.ID, s.asked.said
	}
}

// onDone: the response is made, or given up. A disclosure that was not made, or without a sound, is asked for again.
func (s *session) onDone(e serverEvent) error {
	s.mu.Lock()
	whole := (e.Response.Status == "completed" || e.Response.Status == "") && (!s.making || s.spoken != "")
	broken := e.Response.Status == "failed" || e.Response.Status == "incomplete" && s.making
	if s.making && !whole {
		broken = true
		s.waiting = append([]response{s.disclosure()}, s.waiting...)
	} else if broken {
		s.waiting = append([]response{{}}, s.waiting...)
	}
	disclosed := s.making && whole
	if s.making && whole {
		s.answer()
	}
	spoken := s.spoken
	s.failed = failedInARow(s.failed, broken)
	s.active, s.asked, s.making, s.kept = false, nil, false, ""
	silent := s.failed >= failures
	if !silent && len(s.calls) == 0 {
		s.ask()
	}
	s.mu.Unlock()
	if silent {
		return errSilent
	}
	if disclosed {
		s.emit(agent.Event{Kind: agent.Disclosed, Item: spoken})
	}
	if disclosed && s.spec.Notice != "" {
		s.emit(agent.Event{Kind: agent.Noticed, Item: spoken})
	}
	s.emit(agent.Event{Kind: agent.TurnDone})
	return nil
}

func failedInARow(before int, broken bool) int {
	if broken {
		return before + 1
	}
	return 0
}

// onTool: a tool is called, told once or twice by two events. Arguments that are no object are none.
func (s *session) onTool(itemID, name, id, arguments string) error {
	s.mu.Lock()
	if name == "" {
		name = s.names[itemID]
	}
	delete(s.names, itemID)
	if id == "" || s.called[id] {
		s.mu.Unlock()
		return nil
	}
	if s.called[id] = true; len(s.called) > mostTools {
		s.mu.Unlock()
		return errTools
	}
	s.calls[id] = name
	s.mu.Unlock()
	args := json.RawMessage(arguments)
	if len(arguments) > mostWords || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	s.emit(agent.Event{Kind: agent.ToolCall, Tool: name, ID: id, Args: args})
	return nil
}

// onError: only a response that was not taken matters. When the model is making one of its own, ours waits for the end of that.
func (s *session) onError(e serverEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil || e.Error.EventID != s.askedID {
		return
	}
	again := *s.asked
	s.asked, s.making = nil, false
	busy := e.Error.Code == "conversation_already_has_active_response"
	if !busy || !again.moot {
		s.waiting = append([]response{again}, s.waiting...)
	}
	if busy {
		return
	}
	s.active = false
	if s.failed++; s.failed >= failures {
		if s.lost = true; s.sock != nil {
			s.sock.Cut()
		}
		return
	}
	s.ask()
}
