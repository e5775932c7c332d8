package dialing

import (
	"testing"
	"time"
)

// TestWaits_AnOverloadIsNoEnd: the gate of an overloaded house was silent for more than 20 s, and what was fenced failed.
func TestWaits_AnOverloadIsNoEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		waited  time.Duration
		leaving bool
		want    bool
	}{
		{"at first", 19 * time.Second, false, true},
		{"an overload of a minute", time.Minute, false, true},
		{"before the watchdog has the shortest call", 2 * time.Minute, false, false},
		{"told to stop a moment ago", 19 * time.Second, true, true},
		{"told to stop, and waited long enough", 21 * time.Second, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := waits(tt.waited, tt.leaving); got != tt.want {
				t.Errorf("waits = %v, want %v", got, tt.want)
			}
		})
	}
}
