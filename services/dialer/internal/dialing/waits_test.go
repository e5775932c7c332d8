package dialing

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

// TestLetGo_EndsWithTheProcess: a fence behind which dialling is held up for good is given up, within what a process that was told to stop has left.
func TestLetGo_EndsWithTheProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ told, want time.Duration }{
		"nobody says stop":      {never, time.Minute},
		"told at once":          {0, 15 * time.Second},
		"told while it waits":   {10 * time.Second, 25 * time.Second},
		"told when it gives up": {59 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, begun := &Dialer{limits: Limits{Held: func() bool { return true }}}, time.Now()
				time.AfterFunc(tt.told, d.leave)
				if got := d.letGo(); got {
					t.Error("letGo: got = true, want false")
				} else if value := time.Since(begun); value != tt.want {
					t.Errorf("letGo: time.Since(begun) = %v, want %v", value, tt.want)
				}
			})
		})
	}
}
