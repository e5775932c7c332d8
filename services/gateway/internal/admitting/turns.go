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

func (t *turns) next(ctx context.Context, key string, policy quota.Policy) (quota.Standing, error) {
	if wait := t.wait(key, policy); wait > 0 {
		return quota.Standing{Policy: policy, Reset: wait, RetryAfter: wait}, nil
	}
	begun := t.now()
	standing, err := t.take(ctx, key, policy)
	if err == nil && !standing.Allowed {
		t.refuse(key, refusal{policy, begun.Add(standing.RetryAfter)})
	}
	return standing, err
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
