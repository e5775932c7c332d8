package replicas_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/replicas"
)

func TestMonitor_IsHealthyAfterALeaseOfHeartbeatsOnTime(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	type beat struct {
		after time.Duration // pause after the end of the previous heartbeat
		took  time.Duration
		err   error
	}
	inTime := func(n int) []beat { return slices.Repeat([]beat{{after: time.Second}}, n) }
	tests := []struct {
		name  string
		beats []beat
		since time.Duration // time since the end of the last heartbeat
		want  bool
	}{
		{name: "not healthy before the first heartbeat"},
		{name: "not healthy directly after the first heartbeat", beats: []beat{{took: time.Millisecond}}},
		{
			name:  "not healthy just before a lease after the first heartbeat",
			beats: slices.Concat(inTime(3), []beat{{after: time.Second - 1}}),
		},
		{name: "healthy a lease after the first heartbeat", beats: inTime(4), want: true},
		{
			name:  "healthy if the last heartbeat took a third of the lease",
			beats: slices.Concat(inTime(4), []beat{{took: time.Second}}),
			want:  true,
		},
		{
			name:  "not healthy if the last heartbeat took more than a third of the lease",
			beats: slices.Concat(inTime(4), []beat{{took: time.Second + 1}}),
		},
		{
			name:  "healthy if the heartbeat after a slow one was quick",
			beats: slices.Concat(inTime(4), []beat{{took: 2 * time.Second}, {took: time.Millisecond}}),
			want:  true,
		},
		{
			name:  "not healthy after a failed heartbeat",
			beats: slices.Concat(inTime(4), []beat{{took: time.Millisecond, err: errors.New("away")}}),
		},
		{
			name:  "not healthy at the first heartbeat after a failure",
			beats: slices.Concat(inTime(4), []beat{{err: errors.New("away")}, {took: time.Millisecond}}),
		},
		{
			name:  "not healthy just before a lease after a failure",
			beats: slices.Concat([]beat{{err: errors.New("away")}}, inTime(3), []beat{{after: time.Second - 1}}),
		},
		{
			name:  "healthy a lease after a failure",
			beats: slices.Concat([]beat{{err: errors.New("away")}}, inTime(4)),
			want:  true,
		},
		{
			name:  "not healthy if another heartbeat failed within the lease",
			beats: slices.Concat([]beat{{err: errors.New("away")}}, inTime(3), []beat{{err: errors.New("away")}}, inTime(3)),
		},
		{name: "not healthy after a late heartbeat", beats: slices.Concat(inTime(4), []beat{{after: 2*time.Second + 1}})},
		{
			name:  "healthy a lease after a late heartbeat",
			beats: slices.Concat(inTime(4), []beat{{after: 2*time.Second + 1}}, inTime(3)),
			want:  true,
		},
		{name: "not healthy while the next heartbeat is late", beats: inTime(4), since: 2*time.Second + 1},
		{name: "healthy while the next heartbeat is due", beats: inTime(4), since: time.Second, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := replicas.NewMonitor(lease)
				for _, b := range test.beats {
					time.Sleep(b.after) // synctest replaces the clock
					start := time.Now()
					time.Sleep(b.took)
					m.Observe(start, b.err)
				}
				time.Sleep(test.since)
				if got := m.Healthy(); got != test.want {
					t.Errorf("Healthy = %v, want %v", got, test.want)
				}
			})
		})
	}
}
