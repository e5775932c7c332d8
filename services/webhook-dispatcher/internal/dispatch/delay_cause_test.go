package dispatch

import (
	"testing"
	"time"
)

func TestSlowdown_CountsOnlyLongDelaysThatTheEndpointCaused(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	type note struct {
		active bool
		at     int
	}
	tests := []struct {
		name    string
		notes   []note
		created int
		queued  int
		sent    int
		want    bool
	}{
		{name: "no slowdown", created: 0, queued: 0, sent: 60, want: false},
		{name: "endpoint slow from the event to the request",
			notes: []note{{true, 0}}, created: 1, queued: 1, sent: 60, want: true},
		{name: "sent within 5 s", notes: []note{{true, 0}}, created: 1, queued: 1, sent: 5, want: false},
		{name: "queued 29 s late by the service", notes: []note{{true, 0}}, created: 1, queued: 30, sent: 60, want: false},
		{name: "endpoint slow only for the last 7 s",
			notes: []note{{true, 55}}, created: 1, queued: 1, sent: 62, want: false},
		{name: "endpoint slow again after 3 quick seconds",
			notes: []note{{true, 0}, {false, 20}, {true, 23}}, created: 1, queued: 1, sent: 60,
			want: true},
		{name: "slowdown that ended 40 s ago",
			notes: []note{{true, 0}, {false, 20}}, created: 1, queued: 1, sent: 60, want: false},
		{name: "slowdown that ended 3 s ago",
			notes: []note{{true, 0}, {false, 57}}, created: 1, queued: 1, sent: 60, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s slowdown
			for _, n := range tt.notes {
				s.update(n.active, at(n.at))
			}
			if got := s.causedDelay(at(tt.created), at(tt.queued), at(tt.sent)); got != tt.want {
				t.Errorf("delayed = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSlowdown_DeliveryQueuedDuringAPauseIsCountedAsDelayed(t *testing.T) {
	t.Parallel()
	resumed := time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC)
	var s slowdown
	s.endPause(resumed)
	hourAgo := resumed.Add(-time.Hour)
	if got := s.causedDelay(hourAgo, hourAgo, resumed.Add(time.Second)); !got {
		t.Error("delayed = false for a delivery that was held by a pause, want true")
	}
}
