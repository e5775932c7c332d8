package dial

import (
	"testing"
	"testing/synctest"
	"time"
)

// notStopping is a time after the end of each test.
const notStopping = time.Hour

// The gate timeout does not depend on the load of contacts-compliance. It becomes shorter when the
// process begins to stop.
func TestWithinTimeout_IsShorterWhileTheProcessStops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		waited, stoppedAt time.Duration
		want              bool
	}{
		{"after 19 s", 19 * time.Second, notStopping, true},
		{"after a minute", time.Minute, notStopping, true},
		{"after the gate timeout", 2 * time.Minute, notStopping, false},
		{"a second after the stop", time.Minute, time.Minute - time.Second, true},
		{"after the stop timeout", 20 * time.Second, 4 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, start := &Dialer{}, time.Now()
				time.AfterFunc(tt.stoppedAt, d.markStopping)
				time.Sleep(tt.waited)
				if got := d.withinTimeout(start, gateTimeout); got != tt.want {
					t.Errorf("within the timeout = %t, want %t", got, tt.want)
				}
			})
		})
	}
}
