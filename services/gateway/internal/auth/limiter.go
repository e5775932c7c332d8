package auth

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ringfence.dev/services/gateway/internal/ratelimit"
)

// limiter counts requests in the database, once each. A refused key is refused again from memory
// until its Retry-After has passed, so that a flood of one key writes nothing. This ends sooner if
// its policy changes, or if it is evicted from the full cache: the database then refuses it.
type limiter struct {
	countRequest func(context.Context, string, ratelimit.Policy) (ratelimit.Status, error)
	refused      *lru.Cache[string, refusal]
}

func newLimiter(take func(context.Context, string, ratelimit.Policy) (ratelimit.Status, error)) *limiter {
	return &limiter{countRequest: take, refused: newCache[string, refusal]()}
}

type refusal struct {
	policy ratelimit.Policy
	until  time.Time
}

// count counts a request of the client address unless it is refused already.
func (t *limiter) count(ctx context.Context, key string, policy ratelimit.Policy) (ratelimit.Status, error) {
	if status, refused := t.stillRefused(key, policy); refused {
		return status, nil
	}
	started := time.Now()
	status, err := t.countRequest(ctx, key, policy)
	if err == nil && !status.Allowed {
		t.refuse(key, refusal{policy, started.Add(status.RetryAfter)})
	}
	return status, err
}

// stillRefused returns the status of a key that was refused under the policy and may not send
// requests yet.
func (t *limiter) stillRefused(key string, policy ratelimit.Policy) (status ratelimit.Status, refused bool) {
	last, ok := t.refused.Get(key)
	if !ok {
		return ratelimit.Status{}, false
	}
	wait := time.Until(last.until)
	if last.policy != policy || wait <= 0 {
		t.refused.Remove(key)
		return ratelimit.Status{}, false
	}
	return ratelimit.Status{Policy: policy, Reset: wait, RetryAfter: wait}, true
}

// isRefused reports whether a refusal of the key is cached, under any policy.
func (t *limiter) isRefused(key string) bool { return t.refused.Contains(key) }

func (t *limiter) refuse(key string, r refusal) { t.refused.Add(key, r) }
