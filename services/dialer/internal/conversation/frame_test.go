package conversation

import (
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// BenchmarkFrame measures one frame in each direction, without a recorder and a detector.
func BenchmarkFrame(b *testing.B) {
	c := New(&fakeSession{events: make(chan agent.Event, 1)}, Settings{}, nil, nil, nil)
	frame, heard, second := make([]byte, 160), tone(20*time.Millisecond), tone(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if c.queue.queuedBytes == 0 {
			c.queue.removePlayed()
			c.queue.addAudio("a", second, false)
		}
		c.NextFrame(frame)
		c.HearFrame(heard)
	}
}
