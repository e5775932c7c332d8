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

// queue contains the workspaces that Dialer.Run searches for due requests. Only Dialer.Run uses it.
type queue struct {
	candidates dialqueue.Candidates
	// searchWanted is true if a request can have become due after the last search. searchedAt is
	// the start of the last search. searchTime is the duration of the last search.
	searchWanted bool
	searchedAt   time.Time
	searchTime   time.Duration
	// searchedWorkspaces is the number of workspaces that were searched since a claim last took a
	// request.
	searchedWorkspaces int
	tidiedAt           time.Time // time of the last run of ReturnStrays
}

// timeToSearch returns the time until the next search. If it is zero or negative, the search is
// due.
func (q *queue) timeToSearch(now time.Time) time.Duration {
	pause := maxScanInterval
	if q.searchWanted {
		pause = min(maxScanInterval, max(minScanInterval, 2*q.searchTime))
	}
	return q.searchedAt.Add(pause).Sub(now)
}

func (q *queue) search(ctx context.Context, st *store.Store) error {
	now := time.Now()
	if now.Sub(q.tidiedAt) >= tidyInterval {
		moved, err := st.ReturnStrays(ctx)
		if err != nil {
			return err
		}
		if moved > 0 {
			slog.WarnContext(ctx, "requests moved to the front of the dial queue, because no claim could find them",
				"requests", moved)
		}
		q.tidiedAt, now = now, time.Now()
	}
	q.searchWanted, q.searchedAt = false, now
	found, err := st.Due(ctx)
	if err != nil {
		return err
	}
	q.searchTime = time.Since(now)
	q.candidates.Replace(found, now)
	return nil
}

// recordClaim stores the result of a claim. window contains the workspaces that the claim searched.
func (q *queue) recordClaim(window []uuid.UUID, c store.Claimed) {
	q.candidates.RecordClaim(window, c.Last, c.Drained, time.Now())
	if q.searchedWorkspaces += len(window); len(c.Requests) > 0 {
		q.searchedWorkspaces = 0
	}
}

// allFull reports whether claims have searched all workspaces without taking a request. No claim
// can then succeed before capacity becomes free.
func (q *queue) allFull() bool {
	if q.searchedWorkspaces < q.candidates.Len() {
		return false
	}
	q.searchedWorkspaces = 0
	return true
}

// unusedTokens counts, by workspace, the rate tokens of claimed requests that were not dialed. The
// next claim of a workspace returns its tokens to the buckets.
type unusedTokens struct {
	mu          sync.Mutex
	byWorkspace map[uuid.UUID]int
}

func (u *unusedTokens) add(r dialqueue.Request) {
	if !r.TookToken {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byWorkspace == nil {
		u.byWorkspace = map[uuid.UUID]int{}
	}
	u.byWorkspace[r.WorkspaceID]++
}

// restore adds the tokens of a failed claim again.
func (u *unusedTokens) restore(tokens map[uuid.UUID]int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, n := range tokens {
		u.byWorkspace[id] += n
	}
}

func (u *unusedTokens) take(workspaces []uuid.UUID) map[uuid.UUID]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := map[uuid.UUID]int{}
	for _, id := range workspaces {
		if n := u.byWorkspace[id]; n > 0 {
			taken[id] = n
			delete(u.byWorkspace, id)
		}
	}
	return taken
}
