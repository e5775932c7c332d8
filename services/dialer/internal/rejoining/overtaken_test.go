package rejoining

import (
	"testing"

	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// A released attempt makes the request queued again. A repetition of an older event does not.
func TestOvertaken_ReleasedAttempts(t *testing.T) {
	t.Parallel()
	dialing := func(attempt int32) past.Told { return past.Told{State: request.Dialing, Attempt: attempt} }
	queued := func(attempt int32) past.Told { return past.Told{State: request.Queued, Attempt: attempt} }
	tests := []struct {
		name      string
		t, before past.Told
		want      bool
	}{
		{name: "rescheduled before the dial, repeated", t: queued(0), before: dialing(1), want: true},
		{name: "rescheduled, repeated, by an older build", t: queued(0), before: dialing(0), want: true},
		{name: "the attempt was released", t: queued(1), before: dialing(1), want: false},
		{name: "attempts over two trunks were released", t: queued(2), before: dialing(1), want: false},
		{name: "release repeated after the next dial", t: queued(1), before: dialing(2), want: true},
		{name: "dial repeated after its release", t: dialing(1), before: queued(1), want: true},
		{name: "the next dial", t: dialing(2), before: queued(1), want: false},
		{name: "the first dial", t: dialing(1), before: queued(0), want: false},
		{name: "any event after a call", t: queued(1), before: past.Told{Call: &past.Call{}}, want: true},
	}
	for _, tt := range tests {
		if got := overtaken(tt.t, tt.before); got != tt.want {
			t.Errorf("%s: overtaken = %v, want %v", tt.name, got, tt.want)
		}
	}
}
