package admitting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"ringfence.dev/services/gateway/internal/store"
)

const (
	// fresh is how long an answer is used without a thought; from then on it is used once more while it is asked again.
	fresh = time.Second
	// stale is how long an answer counts at all: a revocation takes effect everywhere within it, and the contract's 5 s.
	stale = 3 * time.Second
	// lookLimit bounds one look-up and one count: a database that hangs is 503, not a queue.
	lookLimit = 3 * time.Second
	// strangers is how many look-ups of keys not known as good run at once, so that a flood of invented keys leaves the
	// database to the customers who are inside.
	strangers = 4
	// forgotten is when a key that was good and is not used any more may leave a full memory.
	forgotten = time.Hour
	// most bounds the memory against a flood of unknown keys.
	most = 20_000
)

// remembered keeps the answers of a look-up for a moment, so that a busy key costs one look-up a second.
type remembered[K comparable, V any] struct {
	look  func(context.Context, K) (V, error)
	now   func() time.Time
	asked singleflight.Group
	// turnstile lets strangers look up a few at a time.
	turnstile chan struct{}

	mu      sync.Mutex
	answers map[K]remembrance[V]
	// changes counts what forget was told of.
	changes int
}

type remembrance[V any] struct {
	value V
	err   error // nil or store.ErrMissing
	asked time.Time
}

func remember[K comparable, V any](look func(context.Context, K) (V, error)) *remembered[K, V] {
	return &remembered[K, V]{look: look, now: time.Now, turnstile: make(chan struct{}, strangers), answers: map[K]remembrance[V]{}}
}

// get is the answer, at most 3 s old. Faults are not remembered.
func (m *remembered[K, V]) get(ctx context.Context, key K) (V, error) {
	m.mu.Lock()
	known, ok := m.answers[key]
	m.mu.Unlock()
	age := m.now().Sub(known.asked)
	switch {
	case ok && age < fresh:
		return known.value, known.err
	case ok && age < stale:
		go func() {
			ctx := context.WithoutCancel(ctx) // the request does not wait for this
			if _, err := m.ask(ctx, key, known.err == nil); err != nil && !errors.Is(err, store.ErrMissing) {
				slog.WarnContext(ctx, "a remembered answer could not be renewed", "error", err)
			}
		}()
		return known.value, known.err
	}
	return m.ask(ctx, key, ok && known.err == nil)
}

// ask looks up once for all who ask at the same time. good: the key was known as good when it was last looked up.
func (m *remembered[K, V]) ask(ctx context.Context, key K, good bool) (V, error) {
	m.mu.Lock()
	changes := m.changes
	m.mu.Unlock()
	flight := m.asked.DoChan(fmt.Sprint(changes, " ", key), func() (any, error) { // nobody joins a question from before a change
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
		defer cancel()
		if !good {
			select {
			case m.turnstile <- struct{}{}:
				defer func() { <-m.turnstile }()
			case <-own.Done():
				return nil, fmt.Errorf("wait for the turn to look up: %w", own.Err())
			}
		}
		begun := m.now() // the answer is as old as the question
		value, err := m.look(own, key)
		if err != nil && !errors.Is(err, store.ErrMissing) {
			return value, err
		}
		m.keep(key, remembrance[V]{value, err, begun}, changes)
		return value, err
	})
	select {
	case <-ctx.Done():
		var none V
		return none, fmt.Errorf("wait for a look-up: %w", ctx.Err())
	case answer := <-flight:
		value, _ := answer.Val.(V)
		return value, answer.Err
	}
}

// keep remembers an answer, unless something has changed since it was asked for.
func (m *remembered[K, V]) keep(key K, answer remembrance[V], changes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if changes != m.changes {
		return
	}
	if len(m.answers) >= most {
		for k, old := range m.answers {
			if old.err != nil || m.now().Sub(old.asked) >= forgotten {
				delete(m.answers, k)
			}
		}
		if len(m.answers) >= most {
			clear(m.answers)
		}
	}
	m.answers[key] = answer
}

// forget makes every answer be asked again before it counts: what was just changed here is seen at once. Who was known as good still is
// no stranger: a change in the middle of a flood must not send the customers to the end of its queue.
func (m *remembered[K, V]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	for key, answer := range m.answers {
		if answer.err != nil {
			delete(m.answers, key)
			continue
		}
		answer.asked = m.now().Add(-stale)
		m.answers[key] = answer
	}
}
