package dial

import (
	"testing"
	"testing/synctest"
	"time"
)

// never is when a process is told to stop that goes on.
const never = time.Hour

// TestWaits_AnOverloadIsNoEnd: the gate of an overloaded house was silent for more than 20 s, and what was fenced failed. A process that was told to stop waits no longer than it may.
func TestWaits_AnOverloadIsNoEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		waited, told time.Duration
		want         bool
	}{
		{"at first", 19 * time.Second, never, true},
		{"an overload of a minute", time.Minute, never, true},
		{"before the watchdog has the shortest call", 2 * time.Minute, never, false},
		{"told to stop a moment ago", time.Minute, time.Minute - time.Second, true},
		{"told to stop, and waited long enough", 20 * time.Second, 4 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, begun := &Dialer{}, time.Now()
				time.AfterFunc(tt.told, d.leave)
				time.Sleep(tt.waited)
				if got := d.waits(begun, gatePatience); got != tt.want {
					t.Errorf("waits = %v, want %v", got, tt.want)
				}
			})
		})
	}
}
