// Package quota owns the arithmetic of the request rate (GCRA) and the headers that tell a client where it
// stands. The one statement that takes a turn is the store's.
package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/plural"
)

// Window is what every limit is counted over.
const Window = time.Minute

// Anonymous is how many requests a minute a client address has without a valid key (contract.md §6).
const Anonymous Policy = 600

// Policy is a number of requests a minute, which may all come at once.
type Policy int

// Step is the time one request costs.
func (p Policy) Step() time.Duration { return Window / time.Duration(p) }

// Span is the whole burst in time: as many steps as requests, so that rounding never costs one.
func (p Policy) Span() time.Duration { return p.Step() * time.Duration(p) }

// Standing is where a client stands after a request.
type Standing struct {
	Policy    Policy
	Allowed   bool
	Remaining int
	// Reset is when the whole limit is there again.
	Reset time.Duration
	// RetryAfter is when the next request will be allowed; zero when one is.
	RetryAfter time.Duration
}

// Standing reads GCRA's answer: whether the request was allowed, and how far the theoretical arrival time lies ahead of now.
func (p Policy) Standing(allowed bool, ahead time.Duration) Standing {
	ahead = min(max(ahead, 0), p.Span())
	s := Standing{Policy: p, Allowed: allowed, Reset: ahead, Remaining: int((p.Span() - ahead) / p.Step())}
	if !allowed {
		s.Remaining = 0
		s.RetryAfter = max(ahead+p.Step()-p.Span(), 0)
	}
	return s
}

// Unknown is what is said while nobody can count: nothing is left, try again in two seconds.
func (p Policy) Unknown() Standing { return Standing{Policy: p, Reset: 2 * time.Second} }

// Write sets the headers of contract.md §6: the IETF draft's two and the customary three.
func (s Standing) Write(header http.Header) {
	reset := seconds(s.Reset)
	header.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, s.Policy, int(Window/time.Second)))
	header.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, s.Remaining, reset))
	header.Set("X-RateLimit-Limit", strconv.Itoa(int(s.Policy)))
	header.Set("X-RateLimit-Remaining", strconv.Itoa(s.Remaining))
	header.Set("X-RateLimit-Reset", strconv.Itoa(reset))
}

// Refusal is the 429 with Retry-After, at least one second.
func (s Standing) Refusal() error {
	refused := apierr.New(http.StatusTooManyRequests, "rate_limited",
		"More than %s in a minute. Wait %d s, as Retry-After says.", plural.Of(s.Policy, "request"), max(seconds(s.RetryAfter), 1))
	refused.RetryAfter = max(s.RetryAfter, time.Second)
	return refused
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
