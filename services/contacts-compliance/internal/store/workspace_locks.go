package store

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// workspaceLocks contains a mutex for each workspace. The zero value is ready to use, with all
// mutexes unlocked. A caller that waits for a mutex needs no database connection.
type workspaceLocks struct {
	mu    sync.Mutex
	locks map[uuid.UUID]*workspaceLock
}

type workspaceLock struct {
	held  chan struct{} // the channel contains a value while a caller holds the lock
	users int           // the number of callers that hold the lock or wait for it
}

// lock waits for the lock of a workspace. The caller must call unlock.
func (t *workspaceLocks) lock(ctx context.Context, workspace uuid.UUID) (unlock func(), err error) {
	q := t.join(workspace)
	select {
	case q.held <- struct{}{}:
		return func() { <-q.held; t.leave(workspace, q) }, nil
	case <-ctx.Done():
		t.leave(workspace, q)
		return nil, context.Cause(ctx)
	}
}

func (t *workspaceLocks) join(workspace uuid.UUID) *workspaceLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.locks[workspace]
	if q == nil {
		if t.locks == nil {
			t.locks = map[uuid.UUID]*workspaceLock{}
		}
		q = &workspaceLock{held: make(chan struct{}, 1)}
		t.locks[workspace] = q
	}
	q.users++
	return q
}

func (t *workspaceLocks) leave(workspace uuid.UUID, q *workspaceLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(t.locks, workspace)
	}
}
