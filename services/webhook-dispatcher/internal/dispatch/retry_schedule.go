package dispatch

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Schedule is the retry schedule of deliveries (docs/reference/api/webhooks.md#retry-schedule).
type Schedule struct {
	// Delays are the delays before the second and each later attempt, in ascending order. The first
	// delay is the minimum and the last delay is the maximum, also after jitter and Retry-After.
	Delays []time.Duration
}

// Attempts returns the maximum number of attempts of a delivery.
func (s Schedule) Attempts() int { return len(s.Delays) + 1 }

// Next returns the delay after a failed attempt. attempt is counted from 1. ok is false after the
// last attempt. jitter is between -1 and 1 and changes the delay by at most a tenth.
//
// retryAfter is the delay that the endpoint requested, or 0. It can make the delay longer, but not
// longer than the last of Delays.
func (s Schedule) Next(attempt int, jitter float64, retryAfter time.Duration) (delay time.Duration, ok bool) {
	if attempt < 1 || attempt > len(s.Delays) {
		return 0, false
	}
	minDelay, maxDelay := s.Delays[0], s.Delays[len(s.Delays)-1]
	base := s.Delays[attempt-1]
	delay = base + time.Duration(jitter*0.1*float64(base))
	return min(max(delay, minDelay, retryAfter), maxDelay), true
}

// RetryAfter returns the delay in the Retry-After header of a response with status 429 or 503,
// given in seconds or as a date. The delay is 0 for any other status, for an invalid header and for
// a date in the past.
func RetryAfter(code int, header string, now time.Time) time.Duration {
	if code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
		return 0
	}
	header = strings.TrimSpace(header)
	// for a number out of range, ParseInt returns the nearest number in range
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
