package live

import (
	"encoding/json"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

// No message of the model may cause a panic. The size of the audio and text in the events must be
// limited by the size of the message.
func FuzzModelEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type":"session.output_audio.delta","delta":"IDCgsA=="}`, `{"type":"session.output_audio.delta","delta":7}`,
		`{"type":"session.output_audio.delta"}`, `{"type":"session.output_transcript.delta","delta":"\ud800"}`,
		`{"type":"session.input_transcript.delta","delta":"Hello"}`,
		`{"type":"session.commentary.appended","client_event_id":"append-1"}`,
		`{"type":"response.event","event":{"type":"response.output_item.done",` +
			`"item":{"type":"function_call","call_id":"c","name":"opt_out","arguments":"{"}}}`,
		`{"type":"error","error":{"client_event_id":"append-1","code":"x"}}`,
		`{"type":"session.closed","reason":"expired"}`, `[]`, `{"type":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		s := newSession(agent.Spec{}, nil)
		s.started = true
		e, err := decode(message)
		if err != nil {
			return
		}
		events, _ := s.take(e)
		for _, event := range append(append(events, s.endItem()...), s.endPerson()...) {
			if len(event.Audio) > len(message) {
				t.Errorf("%q became %d bytes of audio", message, len(event.Audio))
			}
			if len(event.Text) > 3*len(message) {
				t.Errorf("%q became %d bytes of text", message, len(event.Text))
			}
			if event.Args != nil && !json.Valid(event.Args) {
				t.Errorf("%q became the arguments %q", message, event.Args)
			}
		}
	})
}
