package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter_RefusedKeyCausesNoDatabaseQueryUntilRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queries := 0
		counted := NewLimiter(func(_ context.Context, _ string, p Policy) (Status, error) {
			queries++
			return p.Status(queries != 1, p.Span()), nil
		})
		first, _ := counted.Count(t.Context(), "k", 60)
		second, _ := counted.Count(t.Context(), "k", 60)
		if first.Allowed {
			t.Errorf("first = %+v, want it refused", first)
		}
		want := Status{Policy: 60, Reset: time.Second, RetryAfter: time.Second}
		if second != want {
			t.Errorf("second = %+v, want %+v", second, want)
		}
		if queries != 1 {
			t.Errorf("requests that the database counted = %d, want 1", queries)
		}
		if other, _ := counted.Count(t.Context(), "other", 60); !other.Allowed {
			t.Errorf("another key = %+v", other)
		}
		time.Sleep(time.Second)
		if third, _ := counted.Count(t.Context(), "k", 60); !third.Allowed {
			t.Error("after Retry-After: third.Allowed = false, want true")
		} else if queries != 3 {
			t.Errorf("after Retry-After: queries = %v, want 3", queries)
		}
	})
}

func TestLimiter_ChangedLimitAppliesToTheNextRequest(t *testing.T) {
	t.Parallel()
	counted := NewLimiter(func(_ context.Context, _ string, p Policy) (Status, error) {
		return p.Status(p > 1, p.Span()), nil
	})
	if got, _ := counted.Count(t.Context(), "k", 1); got.Allowed {
		t.Fatal("under a limit of 1: got.Allowed = true, want false")
	} else if got.RetryAfter != time.Minute {
		t.Fatalf("under a limit of 1: got.RetryAfter = %v, want %v", got.RetryAfter, time.Minute)
	}
	if got, _ := counted.Count(t.Context(), "k", 100); !got.Allowed {
		t.Errorf("status under the raised limit = %+v, want it allowed", got)
	}
}
