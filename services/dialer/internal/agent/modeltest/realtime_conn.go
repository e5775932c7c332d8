package modeltest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
)

type conn struct {
	server  *RealtimeServer
	ws      *websocket.Conn
	model   string
	replies chan string
	writing sync.Mutex

	mu       sync.Mutex
	settings map[string]any // settings of session.update; nil before the first one
	detect   detection
	voice    string
	spoken   bool // the model has sent audio, so the voice can no longer be changed
	counter  int
	turn     int
	items    map[string]int // length of the audio of the model's items in ms, by id
	active   *making
	heard    string
	speech   string // id of the person's current utterance; empty if the person is silent
	loud     int
	quiet    int
	times    int
	clock    int // length of the received audio in ms
	lastEcho string
}

type detection struct{ create, interrupt bool }

type making struct {
	id       string
	cancel   context.CancelFunc
	done     chan struct{}
	canceled bool
	metadata map[string]any
}

func (c *conn) id(prefix string) string {
	c.counter++
	return fmt.Sprintf("%s_%04d", prefix, c.counter)
}

func (c *conn) write(message []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.ws.Write(ctx, websocket.MessageText, message)
}

// send sends an event. The caller must not hold c.mu.
func (c *conn) send(kind string, fields map[string]any) {
	c.mu.Lock()
	event := map[string]any{"type": kind, "event_id": c.id("event")}
	c.mu.Unlock()
	for name, value := range fields {
		event[name] = value
	}
	message, err := json.Marshal(event)
	if err != nil {
		panic(err) // only a bug in this package can cause this
	}
	if !c.server.opts.Echo {
		c.server.store(&c.server.sent, message)
	}
	c.write(message)
}

func (c *conn) refuse(event map[string]any, code, message, param string) {
	fault := map[string]any{
		"type":     "invalid_request_error",
		"code":     code,
		"message":  message,
		"param":    param,
		"event_id": event["event_id"],
	}
	c.send("error", map[string]any{"error": fault})
}

func (c *conn) session() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	session := map[string]any{
		"type":              "realtime",
		"object":            "realtime.session",
		"id":                "sess_1",
		"model":             c.model,
		"output_modalities": []string{"audio"},
	}
	for name, value := range c.settings {
		session[name] = value
	}
	return session
}

func (c *conn) take(message []byte) {
	var event map[string]any
	if json.Unmarshal(message, &event) != nil {
		c.refuse(nil, "invalid_json", "The message is no JSON.", "")
		return
	}
	kind, _ := event["type"].(string)
	if kind != "input_audio_buffer.append" || c.server.frames.Load() < 100 {
		c.server.store(&c.server.received, message)
	}
	switch kind {
	case "session.update":
		c.update(event)
	case "input_audio_buffer.append":
		c.hearAudio(event)
	case "response.create":
		c.create(event)
	case "response.cancel":
		if !c.cancelResponse() {
			c.refuse(event, "response_cancel_not_active", "Cancellation failed: no active response found", "")
		}
	case "conversation.item.create":
		c.createItem(event)
	case "conversation.item.truncate":
		c.truncateItem(event)
	default:
		c.refuse(event, "invalid_value", "Invalid value: '"+kind+"'.", "type")
	}
}

func dig(from any, path ...string) any {
	for _, name := range path {
		object, _ := from.(map[string]any)
		from = object[name]
	}
	return from
}

func (c *conn) update(event map[string]any) {
	update, _ := event["session"].(map[string]any)
	if update["type"] != "realtime" {
		c.refuse(event, "missing_required_parameter", "Missing required parameter: 'session.type'.", "session.type")
		return
	}
	for _, side := range []string{"input", "output"} {
		if kind := dig(update, "audio", side, "format", "type"); kind != nil && kind != "audio/pcmu" &&
			kind != "audio/pcma" &&
			kind != "audio/pcm" {
			c.refuse(event, "invalid_value", "Invalid value.", "session.audio."+side+".format.type")
			return
		}
	}
	voice, _ := dig(update, "audio", "output", "voice").(string)
	c.mu.Lock()
	if c.spoken && voice != "" && voice != c.voice {
		c.mu.Unlock()
		c.refuse(
			event,
			"cannot_update_voice",
			"Cannot update a conversation's voice if assistant audio is present.",
			"session.audio.output.voice",
		)
		return
	}
	if c.settings == nil {
		c.settings = map[string]any{}
	}
	for name, value := range update {
		c.settings[name] = value
	}
	if voice != "" {
		c.voice = voice
	}
	c.detect.create, _ = dig(update, "audio", "input", "turn_detection", "create_response").(bool)
	c.detect.interrupt, _ = dig(update, "audio", "input", "turn_detection", "interrupt_response").(bool)
	c.mu.Unlock()
	c.server.mu.Lock()
	mute := c.server.mute
	c.server.mu.Unlock()
	if !mute {
		c.send("session.updated", map[string]any{"session": c.session()})
	}
}

// hearAudio handles the person's audio. It refuses audio before session.update, which sets the
// audio format.
func (c *conn) hearAudio(event map[string]any) {
	text, _ := event["audio"].(string)
	audio, err := base64.StdEncoding.DecodeString(text)
	c.mu.Lock()
	ready, silent := c.settings != nil, c.turn == 0 || c.active != nil
	c.mu.Unlock()
	if err != nil || !ready {
		c.refuse(event, "invalid_value", "Invalid 'audio'.", "audio")
		return
	}
	c.server.frames.Add(1)
	if c.server.opts.Echo {
		if !silent {
			c.echoBack(text)
		}
		return
	}
	if c.server.opts.Hears != nil {
		c.listen(audio)
	}
}

func (c *conn) createItem(event map[string]any) {
	kind, _ := dig(event, "item", "type").(string)
	c.mu.Lock()
	switch output, _ := dig(event, "item", "output").(string); kind {
	case "function_call_output":
		c.heard = output
	case "message":
		if words, _ := dig(event, "item", "content").([]any); len(words) == 1 && dig(event, "item", "role") == "user" {
			c.heard, _ = dig(words[0], "text").(string)
		}
	default:
		c.mu.Unlock()
		c.refuse(event, "invalid_value", "Invalid value.", "item.type")
		return
	}
	id := c.id("item")
	c.mu.Unlock()
	item, _ := event["item"].(map[string]any)
	item["id"], item["object"], item["status"] = id, "realtime.item", "completed"
	c.send("conversation.item.added", map[string]any{"item": item, "previous_item_id": nil})
	c.send("conversation.item.done", map[string]any{"item": item, "previous_item_id": nil})
}

// truncateItem refuses an item that is not the assistant's, and a length beyond the item's audio,
// as the real server does.
func (c *conn) truncateItem(event map[string]any) {
	id, _ := event["item_id"].(string)
	end, _ := event["audio_end_ms"].(float64)
	c.mu.Lock()
	length, known := c.items[id]
	c.mu.Unlock()
	switch {
	case !known:
		c.refuse(event, "item_truncate_invalid_item_id", "Item with item_id not found: "+id, "item_id")
	case int(end) > length || end < 0:
		c.refuse(
			event,
			"invalid_value",
			fmt.Sprintf("Audio content of %dms is already shorter than %dms", length, int(end)),
			"audio_end_ms",
		)
	default:
		c.mu.Lock()
		c.items[id] = int(end)
		c.mu.Unlock()
		c.send(
			"conversation.item.truncated",
			map[string]any{"item_id": id, "content_index": 0, "audio_end_ms": int(end)},
		)
	}
}
