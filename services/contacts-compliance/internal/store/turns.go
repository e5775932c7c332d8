package store

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// turns lets one caller at a time through for each workspace. The zero value is ready. Callers that
// wait hold no database connection.
type turns struct {
	mu     sync.Mutex
	queues map[uuid.UUID]*queue
}

type queue struct {
	turn  chan struct{} // has a value while a caller has the turn
	users int           // callers that have the turn or wait for it
}

// take waits for the turn of a workspace. The caller must call done when it has finished.
func (t *turns) take(ctx context.Context, workspace uuid.UUID) (done func(), err error) {
	q := t.join(workspace)
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn; t.leave(workspace, q) }, nil
	case <-ctx.Done():
		t.leave(workspace, q)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(workspace uuid.UUID) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[workspace]
	if q == nil {
		if t.queues == nil {
			t.queues = map[uuid.UUID]*queue{}
		}
		q = &queue{turn: make(chan struct{}, 1)}
		t.queues[workspace] = q
	}
	q.users++
	return q
}

func (t *turns) leave(workspace uuid.UUID, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(t.queues, workspace)
	}
}
