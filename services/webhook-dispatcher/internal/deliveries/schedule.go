package deliveries

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Schedule is the waits between attempts; there is one more attempt than there are waits.
type Schedule struct {
	// Delays rise: the first is the least, the last the most any wait may be (spec part 8: 60 s to 480 s).
	Delays []time.Duration
}

// Attempts is how many attempts a delivery has.
func (s Schedule) Attempts() int { return len(s.Delays) + 1 }

// Next says how long to wait after the given attempt (from 1) failed. spread in [-1, 1] moves the wait by up to a tenth, kept
// inside the least and the most; asked is a Retry-After, which can only lengthen the wait. ok is false once the last attempt has failed.
func (s Schedule) Next(attempt int, spread float64, asked time.Duration) (wait time.Duration, ok bool) {
	if attempt < 1 || attempt > len(s.Delays) {
		return 0, false
	}
	least, most := s.Delays[0], s.Delays[len(s.Delays)-1]
	base := s.Delays[attempt-1]
	wait = base + time.Duration(spread*0.1*float64(base))
	return min(max(wait, least, asked), most), true
}

// RetryAfter reads the header of a 429 or 503, in seconds or as a date; zero when it says nothing.
func RetryAfter(code int, header string, now time.Time) time.Duration {
	if code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
		return 0
	}
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the nearest that fits
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
