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
	// stale is how long an answer is used at all.
	stale = 3 * time.Second
	// lookLimit bounds one look-up and one count: a database that hangs is 503, not a queue.
	lookLimit = 3 * time.Second
	// strangers is how many look-ups of keys not known as good run at once, so that a flood of invented keys leaves the
	// database to the customers who are inside.
	strangers = 4
	// limitedWait is how long a look-up waits for the turn of an address above its limit.
	limitedWait = 500 * time.Millisecond
	// forgotten is when a key that was good and is not used any more may leave a full memory.
	forgotten = time.Hour
	// most bounds the memory against a flood of unknown keys.
	most = 20_000
)

// remembered keeps the answers of look-ups for a time.
type remembered[K comparable, V any] struct {
	look  func(context.Context, K) (V, error)
	now   func() time.Time
	asked singleflight.Group
	// turnstile lets strangers look up a few at a time.
	turnstile chan struct{}
	// limited lets requests from addresses above their limit look up one at a time.
	limited chan struct{}

	mu      sync.Mutex
	answers map[K]remembrance[V]
	// fresh and stale are the package's constants unless they are set before the first get.
	fresh, stale time.Duration
}

type remembrance[V any] struct {
	value V
	err   error // nil or store.ErrMissing
	asked time.Time
}

func remember[K comparable, V any](look func(context.Context, K) (V, error)) *remembered[K, V] {
	return &remembered[K, V]{
		look: look, now: time.Now, turnstile: make(chan struct{}, strangers), limited: make(chan struct{}, 1),
		answers: map[K]remembrance[V]{}, fresh: fresh, stale: stale,
	}
}

// get returns the answer of a look-up that began at most stale ago. Faults are not remembered.
func (m *remembered[K, V]) get(ctx context.Context, key K) (V, error) {
	m.mu.Lock()
	known, ok := m.answers[key]
	m.mu.Unlock()
	age := m.now().Sub(known.asked)
	switch {
	case ok && age < m.fresh:
		return known.value, known.err
	case ok && age < m.stale:
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

// getLimited is get for a request from an address above its limit. These requests look up one at a time;
// each waits for its turn for at most limitedWait.
func (m *remembered[K, V]) getLimited(ctx context.Context, key K) (V, error) {
	turn, cancel := context.WithTimeout(ctx, limitedWait)
	defer cancel()
	select {
	case m.limited <- struct{}{}:
		defer func() { <-m.limited }()
	case <-turn.Done():
		var none V
		return none, fmt.Errorf("wait for the turn to look up: %w", turn.Err())
	}
	return m.ask(ctx, key, true)
}

// ask looks up a key. Concurrent calls for the same key share one look-up. Without direct, it waits
// for one of the turns that unknown keys share.
func (m *remembered[K, V]) ask(ctx context.Context, key K, direct bool) (V, error) {
	flight := m.asked.DoChan(fmt.Sprint(key), func() (any, error) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
		defer cancel()
		if !direct {
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
		m.keep(key, remembrance[V]{value, err, begun})
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

// keep remembers an answer.
func (m *remembered[K, V]) keep(key K, answer remembrance[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
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

// forget deletes the answer of a key, so that the next get looks it up.
func (m *remembered[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}
