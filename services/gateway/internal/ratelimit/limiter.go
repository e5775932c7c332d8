package ratelimit

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Limiter counts each request in the database. After a refusal, it refuses further requests with
// the same counter key from memory until Retry-After has passed. So many refused requests cause no
// writes. The refusal in memory ends earlier if the limit of the key has changed, or if the cache
// is full and removes it.
type Limiter struct {
	countInStore func(context.Context, string, Policy) (Status, error)
	refused      *lru.Cache[string, refusal]
}

// NewLimiter returns a Limiter. countInStore counts one request in the database.
func NewLimiter(countInStore func(context.Context, string, Policy) (Status, error)) *Limiter {
	refused, err := lru.New[string, refusal](maxRefusals)
	if err != nil { // lru.New returns an error only if the size is not positive
		panic(err)
	}
	return &Limiter{countInStore: countInStore, refused: refused}
}

// maxRefusals is the maximum number of refusals in memory.
const maxRefusals = 20_000

type refusal struct {
	policy Policy
	until  time.Time
}

// Count counts a request under the counter key. If a refusal of this key is in memory, Count
// returns it and counts nothing.
func (t *Limiter) Count(ctx context.Context, key string, policy Policy) (Status, error) {
	if status, refused := t.Refusal(key, policy); refused {
		return status, nil
	}
	started := time.Now()
	status, err := t.countInStore(ctx, key, policy)
	if err == nil && !status.Allowed {
		t.Refuse(key, policy, started.Add(status.RetryAfter))
	}
	return status, err
}

// Refusal returns the refusal of the counter key from memory. refused is false if there is none, or
// if the key was refused under another policy.
func (t *Limiter) Refusal(key string, policy Policy) (status Status, refused bool) {
	last, ok := t.refused.Get(key)
	if !ok {
		return Status{}, false
	}
	wait := time.Until(last.until)
	if last.policy != policy || wait <= 0 {
		t.refused.Remove(key)
		return Status{}, false
	}
	return Status{Policy: policy, Reset: wait, RetryAfter: wait}, true
}

// IsRefused reports whether a refusal of the counter key is in memory, under any policy.
func (t *Limiter) IsRefused(key string) bool { return t.refused.Contains(key) }

// Refuse stores a refusal. Until the time until, the Limiter refuses requests with this counter key
// and policy from memory.
func (t *Limiter) Refuse(key string, policy Policy, until time.Time) {
	t.refused.Add(key, refusal{policy, until})
}
