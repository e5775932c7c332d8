package realtime

import (
	"encoding/base64"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

func BenchmarkAppendAudio(b *testing.B) {
	frame, buf := make([]byte, agent.FrameBytes), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendAudio(buf[:0], frame)
	}
}

// BenchmarkDelta decodes half a second of the model's audio per operation.
func BenchmarkDelta(b *testing.B) {
	message := []byte(
		`{"type":"response.output_audio.delta","event_id":"event_1","response_id":"resp_1","item_id":"item_1",` +
			`"output_index":0,"content_index":0,"delta":"` +
			base64.StdEncoding.EncodeToString(
				make([]byte, agent.BytesPerSecond/2),
			) + `"}`,
	)
	b.ReportAllocs()
	for b.Loop() {
		e, err := decode(message)
		if err != nil {
			b.Fatal(err)
		}
		if audio, err := e.audio(); err != nil {
			b.Fatalf("audio: %v", err)
		} else if len(audio) != agent.BytesPerSecond/2 {
			b.Fatalf("audio: length of audio = %d, want %d", len(audio), agent.BytesPerSecond/2)
		}
	}
}
