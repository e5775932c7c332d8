package admitting

import (
	"context"
	"sync"
	"time"

	"ringfence.dev/services/gateway/internal/quota"
)

// turns counts requests in the database, once each. Who was refused there is refused here until the time he was told, which
// is as exact and spares the database a flood.
type turns struct {
	take func(context.Context, string, quota.Policy) (quota.Standing, error)
	now  func() time.Time

	mu      sync.Mutex
	refused map[string]time.Time
}

func (t *turns) next(ctx context.Context, key string, policy quota.Policy) (quota.Standing, error) {
	if wait := t.wait(key); wait > 0 {
		return quota.Standing{Policy: policy, Reset: policy.Span() - policy.Step() + wait, RetryAfter: wait}, nil
	}
	begun := t.now()
	standing, err := t.take(ctx, key, policy)
	if err == nil && !standing.Allowed {
		t.refuse(key, begun.Add(standing.RetryAfter))
	}
	return standing, err
}

func (t *turns) wait(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.refused[key]
	if !ok {
		return 0
	}
	wait := until.Sub(t.now())
	if wait <= 0 {
		delete(t.refused, key)
	}
	return wait
}

func (t *turns) refuse(key string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refused) >= most {
		clear(t.refused) // the database refuses them again
	}
	t.refused[key] = until
}
