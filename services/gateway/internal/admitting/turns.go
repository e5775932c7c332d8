package admitting

import (
	"context"
	"sync"
	"time"

	"ringfence.dev/services/gateway/internal/quota"
)

// turns counts requests in the database, once each. Who was refused there is refused here until the time he was told, which
// is as exact and spares the database a flood. It ends sooner when the policy changes.
type turns struct {
	take func(context.Context, string, quota.Policy) (quota.Standing, error)
	now  func() time.Time

	mu      sync.Mutex
	refused map[string]refusal
}

type refusal struct {
	policy quota.Policy
	until  time.Time
}

// next counts a request of the client address unless it is refused already.
func (t *turns) next(ctx context.Context, key string, policy quota.Policy) (quota.Standing, error) {
	if standing, refused := t.stillRefused(key, policy); refused {
		return standing, nil
	}
	begun := t.now()
	standing, err := t.take(ctx, key, policy)
	if err == nil && !standing.Allowed {
		t.refuse(key, refusal{policy, begun.Add(standing.RetryAfter)})
	}
	return standing, err
}

// stillRefused returns the standing of a key that was refused under the policy and may not try again yet.
func (t *turns) stillRefused(key string, policy quota.Policy) (standing quota.Standing, refused bool) {
	wait := t.wait(key, policy)
	return quota.Standing{Policy: policy, Reset: wait, RetryAfter: wait}, wait > 0
}

// isRefused reports whether a refusal of the key is remembered, under any policy.
func (t *turns) isRefused(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.refused[key]
	return ok
}

func (t *turns) wait(key string, policy quota.Policy) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	told, ok := t.refused[key]
	if !ok {
		return 0
	}
	wait := told.until.Sub(t.now())
	if told.policy != policy {
		wait = 0
	}
	if wait <= 0 {
		delete(t.refused, key)
	}
	return wait
}

func (t *turns) refuse(key string, told refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refused) >= most {
		clear(t.refused) // the database refuses them again
	}
	t.refused[key] = told
}
