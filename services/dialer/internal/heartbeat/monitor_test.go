package heartbeat_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/heartbeat"
)

func TestMonitor_Healthy(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	type beat struct {
		took time.Duration
		err  error
	}
	tests := []struct {
		name  string
		beats []beat
		since time.Duration // after the last heartbeat
		want  bool
	}{
		{name: "no heartbeat yet"},
		{name: "quick heartbeat", beats: []beat{{took: time.Millisecond}}, want: true},
		{name: "a third of the lease", beats: []beat{{took: time.Second}}, want: true},
		{name: "more than a third of the lease", beats: []beat{{took: time.Second + 1}}},
		{name: "quick again", beats: []beat{{took: 2 * time.Second}, {took: time.Millisecond}}, want: true},
		{
			name:  "failed heartbeat",
			beats: []beat{{took: time.Millisecond}, {took: time.Millisecond, err: errors.New("away")}},
		},
		{name: "next heartbeat hangs", beats: []beat{{took: time.Millisecond}}, since: 2 * time.Second},
		{name: "next heartbeat is due", beats: []beat{{took: time.Millisecond}}, since: time.Second, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := heartbeat.NewMonitor(lease)
				for _, b := range test.beats {
					start := time.Now()
					time.Sleep(b.took) // virtual time
					m.Observe(start, b.err)
				}
				time.Sleep(test.since) // virtual time
				if got := m.Healthy(); got != test.want {
					t.Errorf("Healthy = %v, want %v", got, test.want)
				}
			})
		})
	}
}
