package dispatch_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
)

func defaultSchedule() dispatch.Schedule {
	return dispatch.Schedule{Delays: []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}}
}

func TestRetrySchedule_DelayDependsOnAttemptAndJitterAndRetryAfter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		attempt    int
		jitter     float64
		retryAfter time.Duration
		want       time.Duration // 0 if no further attempt follows
	}{
		{name: "first failure waits the minimum", attempt: 1, want: 60 * time.Second},
		{name: "second failure waits twice the minimum", attempt: 2, want: 120 * time.Second},
		{name: "third failure waits four times the minimum", attempt: 3, want: 240 * time.Second},
		{name: "fourth failure waits the maximum", attempt: 4, want: 480 * time.Second},
		{name: "fifth failure exhausts the delivery", attempt: 5},
		{name: "jitter never goes below the minimum", attempt: 1, jitter: -1, want: 60 * time.Second},
		{name: "jitter lengthens the first wait", attempt: 1, jitter: 1, want: 66 * time.Second},
		{name: "jitter shortens a middle wait", attempt: 2, jitter: -1, want: 108 * time.Second},
		{name: "jitter never goes above the maximum", attempt: 4, jitter: 1, want: 480 * time.Second},
		{name: "jitter shortens the last wait", attempt: 4, jitter: -1, want: 432 * time.Second},
		{name: "Retry-After lengthens the wait", attempt: 1, retryAfter: 100 * time.Second, want: 100 * time.Second},
		{name: "Retry-After never shortens the wait", attempt: 3, retryAfter: time.Second, want: 240 * time.Second},
		{name: "Retry-After above the maximum waits the maximum", attempt: 1, retryAfter: time.Hour, want: 480 * time.Second},
		{name: "Retry-After does not give a sixth attempt", attempt: 5, retryAfter: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, again := defaultSchedule().Next(tt.attempt, tt.jitter, tt.retryAfter)
			if got != tt.want {
				t.Errorf("Next(%d, %v, %s) = %s, want %s", tt.attempt, tt.jitter, tt.retryAfter, got, tt.want)
			}
			if wantAgain := tt.want != 0; again != wantAgain {
				t.Errorf("Next(%d, %v, %s): again = %v, want %v", tt.attempt, tt.jitter, tt.retryAfter, again, wantAgain)
			}
		})
	}
	if got := defaultSchedule().Attempts(); got != 5 {
		t.Errorf("Attempts = %d, want 5", got)
	}
}

func TestRetrySchedule_DelayIsWithinItsLimitsForAnyRetryAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 4).Draw(t, "attempt")
		jitter := rapid.Float64Range(-1, 1).Draw(t, "jitter")
		retryAfter := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "retryAfter"))
		wait, again := defaultSchedule().Next(attempt, jitter, retryAfter)
		if !again {
			t.Fatalf("Next(%d, %v, %s): again = false, want true", attempt, jitter, retryAfter)
		}
		if least := max(60*time.Second, min(retryAfter, 480*time.Second)); wait < least {
			t.Fatalf("Next(%d, %v, %s) = %s, want at least %s", attempt, jitter, retryAfter, wait, least)
		}
		if wait > 480*time.Second {
			t.Fatalf("Next(%d, %v, %s) = %s, want at most 480 s", attempt, jitter, retryAfter, wait)
		}
	})
}

func TestRetryAfter_SecondsAndDatesAreAccepted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		code   int
		header string
		want   time.Duration
	}{
		{name: "seconds of a 429", code: 429, header: "120", want: 120 * time.Second},
		{name: "seconds of a 503", code: 503, header: " 5 ", want: 5 * time.Second},
		{name: "a date", code: 503, header: "Thu, 04 Jun 2026 12:01:30 GMT", want: 90 * time.Second},
		{name: "a date in the past", code: 503, header: "Thu, 04 Jun 2026 11:00:00 GMT"},
		{name: "a negative number", code: 429, header: "-3"},
		{
			name: "a number above the integer range", code: 429, header: "99999999999999999999",
			want: math.MaxInt32 * time.Second,
		},
		{name: "a number below the integer range", code: 429, header: "-99999999999999999999"},
		{name: "a header that is neither a number nor a date", code: 429, header: "soon"},
		{name: "no header", code: 429},
		{name: "other status codes are ignored", code: 500, header: "120"},
		{name: "success is ignored", code: 200, header: "120"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := dispatch.RetryAfter(tt.code, tt.header, now); got != tt.want {
				t.Errorf("RetryAfter(%d, %q) = %s, want %s", tt.code, tt.header, got, tt.want)
			}
		})
	}
}
