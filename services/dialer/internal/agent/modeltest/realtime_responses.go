package modeltest

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

func (c *conn) create(event map[string]any) {
	instructions, _ := dig(event, "response", "instructions").(string)
	c.mu.Lock()
	busy := c.active
	c.mu.Unlock()
	if busy != nil {
		c.refuse(
			event,
			"conversation_already_has_active_response",
			"Conversation already has an active response in progress: "+busy.id,
			"",
		)
		return
	}
	metadata, _ := dig(event, "response", "metadata").(map[string]any)
	c.make(instructions, metadata)
}

func (c *conn) make(instructions string, metadata map[string]any) {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	m := &making{id: c.id("resp"), cancel: cancel, done: make(chan struct{}), metadata: metadata}
	c.active = m
	c.turn++
	reply := c.server.opts.Reply(c.heard, instructions, c.turn)
	c.heard = ""
	item := c.id("item")
	c.mu.Unlock()
	go c.say(ctx, m, item, reply)
}

// cancelResponse cancels the active response and returns after its end. It returns false if no
// response is active.
func (c *conn) cancelResponse() bool {
	c.mu.Lock()
	m := c.active
	if m != nil {
		m.canceled = true
		m.cancel()
	}
	c.mu.Unlock()
	if m != nil {
		<-m.done
	}
	return m != nil
}

func (c *conn) say(ctx context.Context, m *making, item string, reply RealtimeReply) {
	response := func(status string, output ...any) map[string]any {
		return map[string]any{"response": map[string]any{
			"id": m.id, "object": "realtime.response", "status": status, "output": append([]any{}, output...), "output_modalities": []string{"audio"}, "metadata": m.metadata,
		}}
	}
	c.send("response.created", response("in_progress"))
	var output []any
	if reply.Text != "" {
		output = append(output, c.speak(ctx, m, item, reply))
	}
	if reply.Tool != "" && ctx.Err() == nil {
		output = append(output, c.call(m, reply, len(output)))
	}
	status := reply.Status
	c.mu.Lock()
	if m.canceled {
		status = "cancelled"
	} else if status == "" {
		status = "completed"
	}
	c.active = nil
	c.mu.Unlock()
	c.send("response.done", response(status, output...))
	m.cancel()
	close(m.done)
}

// Voice returns mu-law audio for a text: loud noise of the given length. If length is 0, each
// letter lasts 60 ms. Each text has different noise, so that a recording shows which text was
// played and where it was cut.
func Voice(text string, length time.Duration) []byte {
	if length == 0 {
		length = time.Duration(len(text)) * 60 * time.Millisecond
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(text))
	noise := rand.NewPCG(seed.Sum64(), 0)
	audio := make([]byte, int(length/time.Millisecond)*8)
	for i := range audio {
		audio[i] = "\x20\x30\xa0\xb0"[noise.Uint64()%4]
	}
	return audio
}

func (c *conn) speak(ctx context.Context, m *making, item string, reply RealtimeReply) map[string]any {
	audio := Voice(reply.Text, reply.Length)
	message := func(status string, content ...any) map[string]any {
		return map[string]any{
			"id":      item,
			"object":  "realtime.item",
			"type":    "message",
			"role":    "assistant",
			"status":  status,
			"content": append([]any{}, content...),
		}
	}
	at := func(fields map[string]any) map[string]any {
		fields["response_id"], fields["item_id"], fields["output_index"], fields["content_index"] = m.id, item, 0, 0
		return fields
	}
	c.mu.Lock()
	c.items[item], c.spoken = 0, true
	c.mu.Unlock()
	c.send(
		"response.output_item.added",
		map[string]any{"response_id": m.id, "output_index": 0, "item": message("in_progress")},
	)
	c.send("conversation.item.added", map[string]any{"item": message("in_progress"), "previous_item_id": nil})
	c.send("response.content_part.added", at(map[string]any{"part": map[string]any{"type": "audio", "transcript": ""}}))
	for len(audio) > 0 && ctx.Err() == nil {
		n := min(c.server.opts.Chunk, len(audio))
		c.mu.Lock()
		c.items[item] += n / 8
		c.mu.Unlock()
		c.send("response.output_audio.delta", at(map[string]any{"delta": base64.StdEncoding.EncodeToString(audio[:n])}))
		audio = audio[n:]
		if c.server.opts.Pace > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(c.server.opts.Pace):
			}
		}
	}
	c.send("response.output_audio_transcript.delta", at(map[string]any{"delta": reply.Text}))
	c.send("response.output_audio.done", at(map[string]any{}))
	c.send("response.output_audio_transcript.done", at(map[string]any{"transcript": reply.Text}))
	part := map[string]any{"type": "audio", "transcript": reply.Text}
	c.send("response.content_part.done", at(map[string]any{"part": part}))
	done := message("completed", map[string]any{"type": "output_audio", "transcript": reply.Text})
	c.send("response.output_item.done", map[string]any{"response_id": m.id, "output_index": 0, "item": done})
	c.send("conversation.item.done", map[string]any{"item": done, "previous_item_id": nil})
	return done
}

func (c *conn) call(m *making, reply RealtimeReply, index int) map[string]any {
	c.mu.Lock()
	item, id := c.id("item"), c.id("call")
	c.mu.Unlock()
	args := reply.Args
	if args == "" {
		args = "{}"
	}
	call := func(status, arguments string) map[string]any {
		return map[string]any{
			"id":        item,
			"object":    "realtime.item",
			"type":      "function_call",
			"status":    status,
			"call_id":   id,
			"name":      reply.Tool,
			"arguments": arguments,
		}
	}
	c.send(
		"response.output_item.added",
		map[string]any{"response_id": m.id, "output_index": index, "item": call("in_progress", "")},
	)
	c.send(
		"response.function_call_arguments.delta",
		map[string]any{"response_id": m.id, "item_id": item, "output_index": index, "call_id": id, "delta": args},
	)
	c.send("response.function_call_arguments.done", map[string]any{
		"response_id": m.id, "item_id": item, "output_index": index, "call_id": id, "name": reply.Tool, "arguments": args,
	})
	c.send(
		"response.output_item.done",
		map[string]any{"response_id": m.id, "output_index": index, "item": call("completed", args)},
	)
	return call("completed", args)
}
