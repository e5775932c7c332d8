package realtime

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"ringfence.dev/services/dialer/internal/agent"
)

// handleEvent handles an event of the model. It ignores unknown events. An error ends the
// connection.
func (s *session) handleEvent(e serverEvent) error {
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
	case "conversation.item.input_audio_transcription.failed":
		s.emitEvent(agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: e.ItemID})
	case "input_audio_buffer.speech_started":
		s.onSpeechStarted(e.ItemID)
	case "response.created":
		s.onCreated(e)
	case "response.done":
		return s.onDone(e)
	case "response.output_item.added":
		s.mu.Lock()
		if e.Item.Type == "function_call" && len(s.names) < maxToolCalls {
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

// onSpeechStarted handles the start of the person's speech. If the model transcribes speech, it
// later sends the transcript as an Utterance with the same item.
func (s *session) onSpeechStarted(item string) {
	if s.transcription == "" {
		item = ""
	}
	s.emitEvent(agent.Event{Kind: agent.SpeechStarted, Item: item})
}

// onAudio handles audio of the model. It drops further audio of an interrupted item.
func (s *session) onAudio(e serverEvent) error {
	audio, err := e.audio()
	if err != nil {
		return err
	}
	s.mu.Lock()
	it := s.items[e.ItemID]
	if it == nil {
		if len(s.items) >= maxItems {
			clear(s.items) // the session no longer needs old items
		}
		it = &item{}
		s.items[e.ItemID] = it
	}
	it.bytes += len(audio)
	if s.disclosureActive && len(audio) > 0 {
		s.disclosureItem = e.ItemID
	}
	keep := s.keptResponseID != "" && (e.ResponseID == s.keptResponseID || e.ResponseID == "")
	cut, fromSay := it.cut, s.keptFromSay
	s.mu.Unlock()
	if !cut && len(audio) > 0 {
		s.emitEvent(agent.Event{
			Kind: agent.Audio, Item: e.ItemID, Audio: audio, Keep: keep, Asked: keep && fromSay, Disclosure: keep && !fromSay,
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
		s.emitEvent(agent.Event{Kind: agent.ItemDone, Item: id})
	}
}

func (s *session) onPartialWords(e serverEvent) {
	var delta string
	if json.Unmarshal(e.Delta, &delta) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.partial[e.ItemID]
	if (known || len(s.partial) < maxItems) && len(s.partial[e.ItemID])+len(delta) <= maxWords {
		s.partial[e.ItemID] += delta
	}
}

// emitPartialWords emits the texts of items that the model will not finish, because the session has
// ended or the connection was lost. The person can have heard a part of these items.
func (s *session) emitPartialWords() {
	s.mu.Lock()
	partial := s.partial
	s.partial = map[string]string{}
	s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(partial)) {
		s.onWords(agent.RoleAgent, serverEvent{ItemID: id, Transcript: partial[id]})
	}
}

func (s *session) onWords(role string, e serverEvent) {
	text := strings.TrimSpace(strings.ToValidUTF8(e.Transcript[:min(len(e.Transcript), maxWords)], ""))
	if text == "" {
		if role == agent.RolePerson { // the person's speech contained no recognisable words
			s.emitEvent(agent.Event{Kind: agent.Utterance, Role: role, Item: e.ItemID})
		}
		return
	}
	s.mu.Lock()
	delete(s.partial, e.ItemID)
	s.history, s.words = append(s.history, agent.Turn{Role: role, Text: text}), s.words+len(text)
	for s.words > maxHistory {
		s.words -= len(s.history[0].Text)
		s.history = s.history[1:]
	}
	s.mu.Unlock()
	s.emitEvent(agent.Event{Kind: agent.Utterance, Role: role, Item: e.ItemID, Text: text})
}

// onCreated handles the start of a response. Either the session requested the response, or the
// model itself created it because the person spoke.
func (s *session) onCreated(e serverEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// onError still needs s.requested. The model can create a response by itself and then refuse
	// the requested response.
	s.responseActive = true
	requestID := e.Response.Metadata[requestIDKey]
	s.returnsIDs = s.returnsIDs || requestID != ""
	if s.requested != nil && s.requested.uninterruptible() && (requestID == s.requestedID || !s.returnsIDs) {
		s.keptResponseID, s.keptFromSay = e.Response.ID, s.requested.fromSay
	}
}

// onDone handles the end of a response. If the disclosure is incomplete or contains no audio, the
// session requests it again.
func (s *session) onDone(e serverEvent) error {
	s.mu.Lock()
	whole := (e.Response.Status == "completed" || e.Response.Status == "") &&
		(!s.disclosureActive || s.disclosureItem != "")
	broken := e.Response.Status == "failed" || e.Response.Status == "incomplete" && s.disclosureActive
	if s.disclosureActive && !whole {
		broken = true
		s.queuedResponses = append([]response{s.disclosure()}, s.queuedResponses...)
	} else if broken {
		s.queuedResponses = append([]response{{}}, s.queuedResponses...)
	}
	disclosed := s.disclosureActive && whole
	if s.disclosureActive && whole {
		s.enableResponses()
	}
	spoken := s.disclosureItem
	s.failed = failedInARow(s.failed, broken)
	s.responseActive, s.requested, s.disclosureActive, s.keptResponseID = false, nil, false, ""
	silent := s.failed >= maxFailures
	if !silent && len(s.calls) == 0 {
		s.requestNext()
	}
	s.mu.Unlock()
	if silent {
		return errSilent
	}
	if disclosed {
		s.emitEvent(agent.Event{Kind: agent.Disclosed, Item: spoken})
	}
	if disclosed && s.spec.Notice != "" {
		s.emitEvent(agent.Event{Kind: agent.Noticed, Item: spoken})
	}
	s.emitEvent(agent.Event{Kind: agent.TurnDone})
	return nil
}

func failedInARow(before int, broken bool) int {
	if broken {
		return before + 1
	}
	return 0
}

// onTool handles a tool call. The model can report a tool call in two events; the second one has no
// effect. If the arguments are not valid JSON, onTool uses an empty object.
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
	if s.called[id] = true; len(s.called) > maxToolCalls {
		s.mu.Unlock()
		return errTools
	}
	s.calls[id] = name
	s.mu.Unlock()
	args := json.RawMessage(arguments)
	if len(arguments) > maxWords || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	s.emitEvent(agent.Event{Kind: agent.ToolCall, Tool: name, ID: id, Args: args})
	return nil
}

// onError handles an error event that refuses the requested response, and requests the response
// again. After maxFailures consecutive failures, it closes the connection.
func (s *session) onError(e serverEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == nil || e.Error.EventID != s.requestedID {
		return
	}
	again := *s.requested
	s.requested, s.disclosureActive = nil, false
	busy := e.Error.Code == "conversation_already_has_active_response"
	if !busy || !again.dropIfRefused {
		s.queuedResponses = append([]response{again}, s.queuedResponses...)
	}
	if busy {
		return
	}
	s.responseActive = false
	if s.failed++; s.failed >= maxFailures {
		if s.hasReconnected = true; s.sock != nil {
			s.sock.Cut()
		}
		return
	}
	s.requestNext()
}
