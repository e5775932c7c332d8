package media

import (
	"testing"
	"time"
)

func TestFrameLimit_PermitsABurstAndThenOneFrameEvery20Milliseconds(t *testing.T) {
	var l FrameLimit
	pass := func(n int, now time.Duration) (passed int) {
		for range n {
			if l.Pass(20*time.Millisecond, time.Second, now) {
				passed++
			}
		}
		return passed
	}
	for _, step := range []struct {
		name  string
		tries int
		now   time.Duration
		want  int
	}{
		{"full burst at the start", 1000, 5 * time.Second, 50},
		{"no further frame at the same time", 10, 5 * time.Second, 0},
		{"3 frames after 60 ms", 10, 5*time.Second + 60*time.Millisecond, 3},
		{"one burst after a long time", 1000, time.Hour, 50},
	} {
		if got := pass(step.tries, step.now); got != step.want {
			t.Errorf("%s: passed = %d, want %d", step.name, got, step.want)
		}
	}
}
