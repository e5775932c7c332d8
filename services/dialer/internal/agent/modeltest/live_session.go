package modeltest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3/live"
)

const (
	frameBytes = 160 // 20 ms of PCMU
	chunkBytes = 5 * frameBytes
	// letterBytes is the length of one spoken letter. It is 40 ms.
	letterBytes = 2 * frameBytes
	// thinkBytes is the length of the silence before the model speaks. It is 1 s.
	thinkBytes = 50 * frameBytes
	// The person's utterance starts after 60 ms of loud frames and ends after 500 ms of quiet
	// frames.
	liveLoudFrames, liveQuietFrames = 3, 25
	// maxContent is the maximum length of the text in an append event, in characters. The real server
	// accepts 500 tokens.
	maxContent = 2000
	keptAudio  = 100
)

type session struct {
	server *LiveServer
	ws     *websocket.Conn

	mu       sync.Mutex
	counter  int
	config   map[string]any
	closed   bool
	muted    bool
	unspoken int
	clock    int // length of the session in ms
	input    int // bytes of the person's audio since the last output
	audioIn  int // number of received audio events; only the first keptAudio are kept
	audioOut int

	speech  []speech
	pending map[string]bool
	output  string

	loud, quiet, times int
	hearing            bool
}

type speech struct {
	think int // bytes of silence before the text
	words []string
	left  int // remaining bytes of the current word
	reply LiveReply
}

func (s *session) id(prefix string) string {
	s.counter++
	return fmt.Sprintf("%s_%04d", prefix, s.counter)
}

func (s *session) write(message []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.ws.Write(ctx, websocket.MessageText, message)
}

// send sends an event. The caller must hold s.mu.
func (s *session) send(kind string, members map[string]any) {
	event := map[string]any{"type": kind}
	if kind != "session.output_audio.delta" {
		event["event_id"] = s.id("event")
	}
	for name, value := range members {
		event[name] = value
	}
	message, err := json.Marshal(event)
	if err != nil {
		panic(err) // only a bug in this package can cause this
	}
	if kind != "session.output_audio.delta" || s.audioOut < keptAudio {
		s.server.store(&s.server.sent, message)
	}
	if kind == "session.output_audio.delta" {
		s.audioOut++
	}
	s.write(message)
}

func (s *session) refuse(clientEventID, code, param string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendError(clientEventID, code, param)
}

func (s *session) sendError(clientEventID, code, param string) {
	fault := map[string]any{"type": "invalid_request_error", "code": code,
		"message": "The command was not accepted: " + code + "."}
	if clientEventID != "" {
		fault["client_event_id"] = clientEventID
	}
	if param != "" {
		fault["param"] = param
	}
	s.send("error", map[string]any{"error": fault})
}

func (s *session) close(reason string) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.send(
			"session.closed",
			map[string]any{
				"reason":  reason,
				"session": s.resource(),
				"usage":   map[string]any{"seconds": s.clock / 1000},
			},
		)
	}
	s.mu.Unlock()
	_ = s.ws.Close(websocket.StatusNormalClosure, "")
}

func (s *session) resource() map[string]any {
	resource := map[string]any{"id": "live_1", "status": "active", "expires_at": time.Now().Add(2 * time.Hour).Unix()}
	for name, value := range s.config {
		resource[name] = value
	}
	return resource
}

func (s *session) take(message []byte) {
	kind := typeOf(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == "session.input_audio.append" {
		if s.audioIn++; s.audioIn > keptAudio {
			s.hearAudio(message)
			return
		}
	}
	s.server.store(&s.server.received, message)
	var event live.ClientEventUnionParam
	if unknown := decodeEvent(message, &event); unknown != "" {
		s.sendError(deref(event.GetEventID()), "unknown_parameter", unknown)
		return
	}
	id := deref(event.GetEventID())
	switch {
	case s.closed:
	case kind == "session.start":
		s.start(message, id)
	case s.config == nil:
		s.sendError(id, "session_not_started", "")
	case kind == "session.input_audio.append":
		s.hearAudio(message)
	case kind == "session.input_audio.mute", kind == "session.input_audio.unmute":
		s.muted = kind == "session.input_audio.mute"
		s.send(kind+"d", map[string]any{})
	case kind == "session.commentary.append", kind == "session.instructions.append", kind == "session.thinking.append":
		s.append(kind, id, deref(event.GetContent()))
	case kind == "response.item.create":
		s.toolOutput(event, id)
	case kind == "response.create":
		s.replyToTools(id)
	case kind == "session.close":
		s.closed = true
		s.send("session.closed", map[string]any{"reason": "close_requested", "session": s.resource(),
			"usage": map[string]any{"seconds": s.clock / 1000}})
	default:
		s.sendError(id, "unsupported_event", "type")
	}
}

// decodeEvent reads an event with the SDK's types and encodes it again. If the result differs from
// the message, the client sent unknown fields, which decodeEvent returns.
func decodeEvent(message []byte, into *live.ClientEventUnionParam) (unknownMembers string) {
	if err := json.Unmarshal(message, into); err != nil {
		return err.Error()
	}
	again, err := json.Marshal(*into)
	if err != nil {
		return err.Error()
	}
	var sent, read map[string]any
	if json.Unmarshal(message, &sent) != nil || json.Unmarshal(again, &read) != nil {
		return "the event is no object"
	}
	if id, null := sent["delegation_id"]; null && id == nil { // the SDK omits null fields
		delete(sent, "delegation_id")
		delete(read, "delegation_id")
	}
	if !reflect.DeepEqual(sent, read) {
		return string(again)
	}
	return ""
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (s *session) start(message []byte, id string) {
	var event struct {
		Session map[string]any `json:"session"`
	}
	_ = json.Unmarshal(message, &event)
	format, _ := event.Session["audio"].(map[string]any)["format"].(map[string]any)
	switch {
	case s.config != nil:
		s.sendError(id, "session_already_started", "")
	case s.server.opts.Refuse != "":
		s.sendError(id, s.server.opts.Refuse, "")
	case format["type"] != "audio/pcmu" || format["rate"] != 8000.0:
		s.sendError(id, "invalid_value", "session.audio.format")
	default:
		s.config = event.Session
		s.send("session.started", map[string]any{"session": s.resource()})
	}
}

// append adds content to the session. For session.commentary.append, the model speaks the sentence
// that the content quotes. For session.instructions.append, the function Reply decides what the
// model does.
func (s *session) append(kind, id, content string) {
	if len([]rune(content)) > maxContent || content == "" {
		s.sendError(id, "invalid_value", "content")
		return
	}
	s.send(kind+"ed", map[string]any{"client_event_id": id, "start_ms": s.clock, "end_ms": s.clock})
	switch kind {
	case "session.commentary.append":
		if s.unspoken > 0 {
			s.unspoken--
			return
		}
		s.speech = nil
		s.say(LiveReply{Text: QuotedLive(content)})
	case "session.instructions.append":
		s.say(s.server.opts.Reply(content))
	}
}

func (s *session) say(reply LiveReply) {
	s.speech = append(s.speech, speech{think: thinkBytes, words: strings.Fields(reply.Text), reply: reply})
}

// hearAudio handles the person's audio, and sends the same amount of the model's audio.
func (s *session) hearAudio(message []byte) {
	var event struct{ Audio []byte }
	if json.Unmarshal(message, &event) != nil || s.config == nil || s.closed {
		return
	}
	if s.server.opts.Hears != nil && !s.muted {
		s.listen(event.Audio)
	}
	for s.input += len(event.Audio); s.input >= chunkBytes; s.input -= chunkBytes {
		s.sendAudio()
	}
}

func (s *session) listen(audio []byte) {
	peak := byte(0)
	for _, b := range audio {
		peak = max(peak, ^b&0x7f)
	}
	if peak < 0x48 { // 0x48 is the code of the sample value 3,004; the maximum is 32,124
		s.loud, s.quiet = 0, s.quiet+1
	} else {
		s.loud, s.quiet = s.loud+1, 0
	}
	if !s.hearing && s.loud >= liveLoudFrames {
		s.hearing, s.speech = true, nil // the model stops speaking, because the person speaks
	}
	if !s.hearing || s.quiet < liveQuietFrames {
		return
	}
	s.hearing = false
	s.times++
	text := s.server.opts.Hears(s.times)
	for i, word := range strings.Fields(text) {
		if i > 0 {
			word = " " + word
		}
		s.send(
			"session.input_transcript.delta",
			map[string]any{"delta": word, "start_ms": s.clock - 500, "end_ms": s.clock},
		)
	}
	s.say(s.server.opts.Reply(text))
}

// sendAudio sends 100 ms of audio, and the transcript of the words that begin in this audio.
func (s *session) sendAudio() {
	audio := []byte(strings.Repeat("\xff", chunkBytes))
	for filled := 0; filled < chunkBytes && len(s.speech) > 0; {
		now := &s.speech[0]
		if now.think > 0 {
			now.think -= chunkBytes - filled
			break
		}
		if now.left == 0 && len(now.words) == 0 {
			reply := now.reply
			s.speech = s.speech[1:]
			if reply.Tool != "" {
				s.call(reply)
			}
			continue
		}
		if now.left == 0 {
			word := now.words[0]
			now.words, now.left = now.words[1:], len(word)*letterBytes
			s.send("session.output_transcript.delta",
				map[string]any{"delta": word + " ", "start_ms": s.clock, "end_ms": s.clock + 40*len(word)})
		}
		n := min(now.left, chunkBytes-filled)
		copy(audio[filled:filled+n], strings.Repeat("\x20\x30\xa0\xb0", n/4+1))
		now.left -= n
		filled += n
	}
	s.clock += 100
	s.send("session.output_audio.delta", map[string]any{"delta": base64.StdEncoding.EncodeToString(audio)})
}

func (s *session) call(reply LiveReply) {
	args := reply.Args
	if args == "" {
		args = "{}"
	}
	delegation, id := s.id("dlg"), s.id("call")
	if s.pending == nil {
		s.pending = map[string]bool{}
	}
	s.pending[id] = true
	s.send("session.delegation.created", map[string]any{
		"delegation": map[string]any{"id": delegation, "type": "delegation", "target": "responses",
			"response_id": "resp_1"}, "offset_ms": s.clock,
	})
	item := map[string]any{"id": s.id("fc"), "type": "function_call", "status": "completed", "call_id": id,
		"name": reply.Tool, "arguments": args}
	for _, event := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": "resp_1"}},
		{"type": "response.output_item.done", "output_index": 0, "item": map[string]any{"id": "rs_1", "type": "reasoning"}},
		{"type": "response.output_item.done", "output_index": 1, "item": item},
		{"type": "response.completed", "response": map[string]any{"id": "resp_1", "output": []any{}}},
	} {
		s.send("response.event", map[string]any{"delegation_id": delegation, "event": event})
	}
}

func (s *session) toolOutput(event live.ClientEventUnionParam, id string) {
	item := event.OfResponseItemCreate.Item.OfFunctionCallOutput
	if item == nil || !s.pending[item.CallID.Value] {
		s.sendError(id, "invalid_value", "item.call_id")
		return
	}
	delete(s.pending, item.CallID.Value)
	s.output = item.Output.OfString.Value
}

// replyToTools makes the model reply as soon as the client has sent the outputs of all tool calls.
func (s *session) replyToTools(id string) {
	if len(s.pending) > 0 || s.output == "" {
		s.sendError(id, "no_pending_response", "")
		return
	}
	output := s.output
	s.output = ""
	s.say(s.server.opts.Reply(output))
}
