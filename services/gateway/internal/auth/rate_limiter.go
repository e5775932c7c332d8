package auth

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ringfence.dev/services/gateway/internal/ratelimit"
)

// limiter counts each request in the database. After a refusal, it refuses further requests with
// the same counter key from memory until Retry-After has passed. So many refused requests cause no
// writes. The refusal in memory ends earlier if the limit of the key has changed, or if the cache
// is full and removes it.
type limiter struct {
	countInStore func(context.Context, string, ratelimit.Policy) (ratelimit.Status, error)
	refused      *lru.Cache[string, refusal]
}

func newLimiter(countInStore func(context.Context, string, ratelimit.Policy) (ratelimit.Status, error)) *limiter {
	return &limiter{countInStore: countInStore, refused: newCache[string, refusal]()}
}

type refusal struct {
	policy ratelimit.Policy
	until  time.Time
}

// countRequest counts a request under the counter key. If a refusal of this key is cached, it
// returns that refusal and counts nothing.
func (t *limiter) countRequest(ctx context.Context, key string, policy ratelimit.Policy) (ratelimit.Status, error) {
	if status, refused := t.stillRefused(key, policy); refused {
		return status, nil
	}
	started := time.Now()
	status, err := t.countInStore(ctx, key, policy)
	if err == nil && !status.Allowed {
		t.refuse(key, refusal{policy, started.Add(status.RetryAfter)})
	}
	return status, err
}

// stillRefused returns the status of a key whose cached refusal is still valid. refused is false if
// there is no such refusal, or if the key was refused under another policy.
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

// isRefused reports whether a refusal of the counter key is cached, including a refusal under an
// earlier limit of the key.
func (t *limiter) isRefused(key string) bool { return t.refused.Contains(key) }

func (t *limiter) refuse(key string, r refusal) { t.refused.Add(key, r) }
