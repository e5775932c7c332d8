package dial

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// queue is what this process knows of the dial queue. Only the loop of the Dialer uses it.
type queue struct {
	candidates dialqueue.Candidates
	// wanted: something may have become due since the last look, which began at looked and took took.
	wanted bool
	looked time.Time
	took   time.Duration
	// full counts the workspaces that were looked at since a request was claimed.
	full   int
	tidied time.Time // when the index was tidied
}

// pause returns how long to wait before workspaces with due requests are looked for.
func (q *queue) pause(now time.Time) time.Duration {
	pause := longestRest
	if q.wanted {
		pause = min(longestRest, max(shortestLook, 2*q.took))
	}
	return q.looked.Add(pause).Sub(now)
}

// find looks for workspaces with due requests.
func (q *queue) find(ctx context.Context, st *store.Store) error {
	now := time.Now()
	if now.Sub(q.tidied) >= tidyEvery {
		moved, err := st.ReturnStrays(ctx)
		if err != nil {
			return err
		}
		if _, err := st.MoveLongCalls(ctx); err != nil {
			return err
		}
		if moved > 0 {
			slog.WarnContext(ctx, "due requests before scan_from moved to the front of the queue", "requests", moved)
		}
		q.tidied, now = now, time.Now()
	}
	q.wanted, q.looked = false, now
	found, err := st.Due(ctx)
	if err != nil {
		return err
	}
	q.took = time.Since(now)
	q.candidates.Replace(found, now)
	return nil
}

// claimed takes the result of a claim of window.
func (q *queue) claimed(window []uuid.UUID, c store.Claimed) {
	q.candidates.Claimed(window, c.Last, c.Drained, time.Now())
	if q.full += len(window); len(c.Requests) > 0 {
		q.full = 0
	}
}

// allFull reports whether all workspaces were looked at and none received a request.
func (q *queue) allFull() bool {
	if q.full < q.candidates.Len() {
		return false
	}
	q.full = 0
	return true
}

// unused counts the tokens of claimed requests that were not dialed, by workspace. The next claim
// returns them to the buckets.
type unused struct {
	mu sync.Mutex
	of map[uuid.UUID]int
}

// add counts the token of a request.
func (u *unused) add(r dialqueue.Request) {
	if !r.TookToken {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[uuid.UUID]int{}
	}
	u.of[r.WorkspaceID]++
}

// take returns the tokens of the workspaces, once.
func (u *unused) take(workspaces []uuid.UUID) map[uuid.UUID]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := map[uuid.UUID]int{}
	for _, id := range workspaces {
		if n := u.of[id]; n > 0 {
			taken[id] = n
			delete(u.of, id)
		}
	}
	return taken
}
