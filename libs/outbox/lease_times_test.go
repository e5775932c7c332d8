package outbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewLeaseTimes_AreDerivedFromTheLease(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	tests := []struct {
		name string
		cfg  Config
		want leaseTimes
		// wantIdle is the time between two reads of an idle leader. It must be shorter than
		// want.trustTime, because each read renews the lease.
		wantIdle time.Duration
	}{
		{
			name: "default lease", cfg: Config{}, wantIdle: 2500 * ms,
			want: leaseTimes{duration: 5000 * ms, trustTime: 4000 * ms, renewInterval: 1000 * ms, acquireInterval: 1000 * ms},
		},
		{
			name: "lease of 2 s", cfg: Config{Lease: 2 * time.Second}, wantIdle: 1000 * ms,
			want: leaseTimes{duration: 2000 * ms, trustTime: 1600 * ms, renewInterval: 400 * ms, acquireInterval: 400 * ms},
		},
		{
			name: "lease below the minimum", cfg: Config{Lease: ms}, wantIdle: 500 * ms,
			want: leaseTimes{duration: 1000 * ms, trustTime: 800 * ms, renewInterval: 200 * ms, acquireInterval: 200 * ms},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := newLeaseTimes(tt.cfg)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(leaseTimes{})); diff != "" {
				t.Errorf("newLeaseTimes (-want +got):\n%s", diff)
			}
			if idle := got.pollInterval(time.Minute); idle != tt.wantIdle {
				t.Errorf("pollInterval after a minute without rows = %v, want %v", idle, tt.wantIdle)
			}
			if busy := got.pollInterval(0); busy != fastPoll {
				t.Errorf("pollInterval after a row = %v, want %v", busy, fastPoll)
			}
		})
	}
}
