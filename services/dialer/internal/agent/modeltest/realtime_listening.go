package modeltest

// The voice detection uses the largest sample of each frame. An utterance starts after 60 ms of
// loud frames and ends after 500 ms of quiet frames.
const (
	loudFrames  = 3
	quietFrames = 25
)

func (c *conn) listen(audio []byte) {
	peak := byte(0)
	for _, b := range audio {
		peak = max(peak, ^b&0x7f)
	}
	c.mu.Lock()
	c.clock += len(audio) / 8
	if peak >= 0x48 { // 0x48 is the code of the sample value 3,004; the maximum is 32,124
		c.loud, c.quiet = c.loud+1, 0
	} else {
		c.quiet++
		if c.quiet > 5 {
			c.loud = 0
		}
	}
	begins, ends := c.speech == "" && c.loud >= loudFrames, c.speech != "" && c.quiet >= quietFrames
	if ends {
		c.times++
	}
	n := c.times
	c.mu.Unlock()
	if begins {
		c.startSpeech()
	}
	if ends {
		c.stopSpeech(c.server.opts.Hears(n))
	}
}

func (c *conn) startSpeech() {
	c.mu.Lock()
	c.speech = c.id("item")
	item, at, interrupt := c.speech, c.clock, c.detect.interrupt
	c.mu.Unlock()
	c.send("input_audio_buffer.speech_started", map[string]any{"audio_start_ms": at, "item_id": item})
	if interrupt {
		c.cancelResponse()
	}
}

func (c *conn) stopSpeech(text string) {
	c.mu.Lock()
	item, at, create := c.speech, c.clock, c.detect.create
	c.speech, c.heard = "", text
	busy := c.active != nil
	c.mu.Unlock()
	c.send("input_audio_buffer.speech_stopped", map[string]any{"audio_end_ms": at, "item_id": item})
	c.send("input_audio_buffer.committed", map[string]any{"item_id": item, "previous_item_id": nil})
	message := map[string]any{
		"id":      item,
		"object":  "realtime.item",
		"type":    "message",
		"role":    "user",
		"status":  "completed",
		"content": []any{map[string]any{"type": "input_audio", "transcript": nil}},
	}
	c.send("conversation.item.added", map[string]any{"item": message, "previous_item_id": nil})
	c.send("conversation.item.done", map[string]any{"item": message, "previous_item_id": nil})
	if create && !busy {
		c.make("", nil)
	}
	c.send("conversation.item.input_audio_transcription.completed", map[string]any{
		"item_id": item, "content_index": 0, "transcript": text, "usage": map[string]any{"type": "duration", "seconds": 1},
	})
}

func (c *conn) echoBack(frame string) {
	c.mu.Lock()
	if c.lastEcho == "" {
		c.lastEcho = c.id("item")
		c.items[c.lastEcho] = 0
	}
	c.items[c.lastEcho] += 20
	item := c.lastEcho
	c.mu.Unlock()
	c.send(
		"response.output_audio.delta",
		map[string]any{
			"response_id":   "resp_echo",
			"item_id":       item,
			"output_index":  0,
			"content_index": 0,
			"delta":         frame,
		},
	)
}
