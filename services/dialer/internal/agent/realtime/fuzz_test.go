package realtime

import (
	"encoding/json"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

// No message of the model may cause a panic. The size of the audio and text in the events must be
// limited by the size of the message.
func FuzzModelEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type":"response.output_audio.delta","item_id":"i","delta":"//8="}`,
		`{"type":"response.output_audio.delta","delta":"\/\/8="}`,
		`{"type":"response.output_audio.delta","delta":7}`, `{"type":"response.output_audio.delta"}`,
		`{"type":"response.done","response":{"status":"failed"}}`,
		`{"type":"response.created","response":{"id":"r"}}`, `{"type":"error","error":{"event_id":"ask-1","code":"x"}}`,
		`{"type":"response.function_call_arguments.done","call_id":"c","name":"end_call","arguments":"{"}`,
		`{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c","name":"opt_out"}}`,
		`{"type":"conversation.item.input_audio_transcription.completed","transcript":"\ud800"}`, `[]`, `{"type":1}`,
		`{"type":"x","delta":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		s := newSession(agent.Spec{}, "", nil)
		s.started = true
		e, err := decode(message)
		if err != nil {
			return
		}
		_ = s.handleEvent(e)
		close(s.events)
		for event := range s.events {
			switch {
			case len(event.Audio) > len(message):
				t.Errorf("length of event.Audio = %v, want at most %v", len(event.Audio), len(message))
			case len(event.Text) > len(message)*3:
				t.Errorf("length of event.Text = %v, want at most %v", len(event.Text), len(message)*3)
			case len(event.Args) > len(message)+2:
				t.Errorf("length of event.Args = %v, want at most %v", len(event.Args), len(message)+2)
			case event.Args != nil && !json.Valid(event.Args):
				t.Errorf("event.Args = %q, want valid JSON", event.Args)
			}
		}
	})
}
