// Package ratelimit limits the requests of API keys and client addresses. It computes the state of
// a limit with the generic cell rate algorithm (GCRA), remembers refusals, and writes the
// rate-limit headers. Package store counts the requests in the database.
package ratelimit

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"ringfence.dev/libs/apierr"
)

// Window is the period to which every limit applies.
const Window = time.Minute

// Anonymous is the limit of a client address for requests without a valid key. See
// docs/reference/api/README.md#requests-without-a-valid-key.
const Anonymous Policy = 600

// Policy is the number of requests that are allowed per minute. A client can send all of them in
// one burst.
type Policy int

// Step is the time in which the limit recovers by one request.
func (p Policy) Step() time.Duration { return Window / time.Duration(p) }

// Span is the time in which the whole limit recovers: one Step for each request. Span is computed
// from Step, so that rounding never reduces the limit by a request.
func (p Policy) Span() time.Duration { return p.Step() * time.Duration(p) }

// Status is the state of a rate limit after a request was counted.
type Status struct {
	Policy    Policy
	Allowed   bool
	Remaining int
	// Reset is the time until the next request is allowed if Remaining is 0. Otherwise it is the
	// time until the whole limit is available again.
	Reset time.Duration
	// RetryAfter is the time until the next request is allowed. It is 0 if this request was
	// allowed.
	RetryAfter time.Duration
}

// Status converts the result of GCRA. allowed is true if the request was allowed. tatDelay is the
// time from now to the theoretical arrival time (TAT).
func (p Policy) Status(allowed bool, tatDelay time.Duration) Status {
	tatDelay = min(max(tatDelay, 0), p.Span())
	s := Status{Policy: p, Allowed: allowed, Reset: tatDelay, Remaining: int((p.Span() - tatDelay) / p.Step())}
	next := max(tatDelay+p.Step()-p.Span(), 0)
	if !allowed {
		s.Remaining = 0
		s.RetryAfter = next
	}
	if s.Remaining == 0 {
		s.Reset = next
	}
	return s
}

// Unknown returns the status that is used if the database cannot count requests. Remaining is 0,
// and a client can try again after two seconds.
func (p Policy) Unknown() Status { return Status{Policy: p, Reset: 2 * time.Second} }

// Write sets the five rate-limit headers of a response. In a 429, the reset time equals
// Retry-After, so that a client can use either of them. See
// docs/reference/api/README.md#rate-limit-headers.
func (s Status) Write(header http.Header) {
	reset := seconds(s.Reset)
	if !s.Allowed {
		reset = max(reset, 1)
	}
	header.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, s.Policy, int(Window/time.Second)))
	header.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, s.Remaining, reset))
	header.Set("X-RateLimit-Limit", strconv.Itoa(int(s.Policy)))
	header.Set("X-RateLimit-Remaining", strconv.Itoa(s.Remaining))
	header.Set("X-RateLimit-Reset", strconv.Itoa(reset))
}

// Refusal returns the 429 error. Its Retry-After is at least one second.
func (s Status) Refusal() error {
	refused := apierr.New(http.StatusTooManyRequests, "rate_limited",
		"More than %d requests in a minute. Wait %d s, as Retry-After says.", s.Policy, max(seconds(s.RetryAfter), 1))
	refused.RetryAfter = max(s.RetryAfter, time.Second)
	return refused
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
