package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/libs/apierr"
)

func TestStatus_ContainsTheRemainingRequestsAndTheWaitTimes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		policy  Policy
		allowed bool
		ahead   time.Duration
		want    Status
	}{
		{"first request of 120", 120, true, 500 * time.Millisecond, Status{120, true, 119, 500 * time.Millisecond, 0}},
		{"last request of a burst", 120, true, time.Minute, Status{120, true, 0, 500 * time.Millisecond, 0}},
		{
			"request above the limit waits one step", 120, false, time.Minute,
			Status{120, false, 0, 500 * time.Millisecond, 500 * time.Millisecond},
		},
		{
			"request above the limit after a part of the step", 120, false, time.Minute - 200*time.Millisecond,
			Status{120, false, 0, 300 * time.Millisecond, 300 * time.Millisecond},
		},
		{"last request was an hour ago", 120, true, -time.Hour, Status{120, true, 120, 0, 0}},
		{"request after the limit was lowered", 1, false, 5 * time.Minute, Status{1, false, 0, time.Minute, time.Minute}},
	} {
		if got := row.policy.Status(row.allowed, row.ahead); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
}

func TestPolicy_WholeLimitIsAllowedInOneBurst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		policy := Policy(rapid.IntRange(1, 100_000).Draw(r, "limit"))
		ahead := policy.Step() * time.Duration(policy)
		if ahead > policy.Span() || ahead+policy.Step() <= policy.Span() {
			r.Fatalf("a burst of %d does not fit exactly", policy)
		}
		if left := policy.Status(true, ahead).Remaining; left != 0 {
			r.Fatalf("remaining = %d after the whole limit", left)
		}
	})
}

func TestWrite_SetsTheRateLimitHeaders(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	Status{Policy: 120, Allowed: true, Remaining: 119, Reset: 500 * time.Millisecond}.Write(header)
	for name, want := range map[string]string{
		"RateLimit-Policy": `"default";q=120;w=60`, "RateLimit": `"default";r=119;t=1`,
		"X-RateLimit-Limit": "120", "X-RateLimit-Remaining": "119", "X-RateLimit-Reset": "1",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	var refused *apierr.Error
	if !errors.As(Status{Policy: 120, RetryAfter: time.Millisecond}.Refusal(), &refused) {
		t.Fatalf("refusal: Standing{Policy: 120, RetryAfter: time.Millisecond}.Refusal() = %v, want a %T",
			Status{Policy: 120, RetryAfter: time.Millisecond}.Refusal(), refused)
	}
	if refused.Status != 429 {
		t.Errorf("refusal: refused.Status = %v, want 429", refused.Status)
	}
	if refused.Code != "rate_limited" {
		t.Errorf("refusal: refused.Code = %q, want \"rate_limited\"", refused.Code)
	}
	if refused.RetryAfter < time.Second {
		t.Errorf("refusal: refused.RetryAfter = %v, want at least %v", refused.RetryAfter, time.Second)
	}
}

// Retry-After, X-RateLimit-Reset and the parameter t of RateLimit must give the same waiting time.
// After this time, the next request must be allowed. The time is at most one second too long,
// because the headers have whole seconds.
func TestStatus_AllHeadersGiveTheSameRetryTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		policy := Policy(rapid.IntRange(1, 2000).Draw(r, "limit"))
		ahead := time.Duration(rapid.Int64Range(int64(policy.Span()-policy.Step())+1, int64(policy.Span())).Draw(r, "ahead"))
		refused := policy.Status(false, ahead)
		header := http.Header{}
		refused.Write(header)
		var limited *apierr.Error
		if !errors.As(refused.Refusal(), &limited) {
			r.Fatal("Refusal returned no *apierr.Error")
		}
		// rounded up to seconds, like the header Retry-After of package httpserver
		retryAfter := int((limited.RetryAfter + time.Second - 1) / time.Second)
		if got, want := header.Get("X-RateLimit-Reset"), strconv.Itoa(retryAfter); got != want {
			r.Errorf("X-RateLimit-Reset = %s, want Retry-After's %s", got, want)
		}
		if got, want := header.Get("RateLimit"), fmt.Sprintf(`"default";r=0;t=%d`, retryAfter); got != want {
			r.Errorf("RateLimit = %s, want %s", got, want)
		}
		waited := ahead - time.Duration(retryAfter)*time.Second
		if waited+policy.Step() > policy.Span() {
			r.Errorf("after %d s the next request is refused again", retryAfter)
		}
		if needed := ahead + policy.Step() - policy.Span(); time.Duration(retryAfter)*time.Second-needed > time.Second {
			r.Errorf("Retry-After = %d s, want at most a second more than %s", retryAfter, needed)
		}
	})
}

func TestStatus_ReportsTheTimeToWaitIfNoRequestRemains(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	Policy(120).Status(true, time.Minute).Write(header)
	if got, want := header.Get("RateLimit"), `"default";r=0;t=1`; got != want {
		t.Errorf("RateLimit = %s, want %s", got, want)
	}
	if got, want := header.Get("X-RateLimit-Reset"), "1"; got != want {
		t.Errorf("X-RateLimit-Reset = %s, want %s", got, want)
	}
}
