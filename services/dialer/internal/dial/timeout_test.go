package dial

import (
	"testing"
	"testing/synctest"
	"time"
)

const notStopping = time.Hour

// A call with a committed fence waits up to gateTimeout for a slow dial-time check. The wait is
// shorter while the process stops.
func TestWithinTimeout_IsShorterWhileTheProcessStops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		waited, stoppedAt time.Duration
		want              bool
	}{
		{"the process runs and has waited for 19 s", 19 * time.Second, notStopping, true},
		{"the process runs and has waited for a minute", time.Minute, notStopping, true},
		{"the process runs and has waited longer than gateTimeout", 2 * time.Minute, notStopping, false},
		{"the process began to stop one second ago", time.Minute, time.Minute - time.Second, true},
		{"the process began to stop longer than stopTimeout ago", 20 * time.Second, 4 * time.Second, false},
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
