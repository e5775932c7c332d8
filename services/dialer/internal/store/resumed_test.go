package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func version(workspace uuid.UUID, number int64, status string) dialqueue.Workspace {
	return dialqueue.Workspace{
		WorkspaceID: workspace, Version: number, Status: status, APIEnabled: true, MaxLiveCalls: 500, CallsPerSecond: 500,
	}
}

func applyAll(t *testing.T, st *store.Store, versions ...dialqueue.Workspace) {
	t.Helper()
	for _, w := range versions {
		if err := st.ApplyWorkspace(t.Context(), w); err != nil {
			t.Fatalf("ApplyWorkspace of version %d: %v", w.Version, err)
		}
	}
}

func scheduled(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspace uuid.UUID) dialqueue.Request {
	t.Helper()
	r := aRequest(workspace, 1)
	r.DueAt = time.Now().Add(time.Hour)
	enqueue(t, pool, st, r)
	return r
}

func wantKept(t *testing.T, pool *pgxpool.Pool, r dialqueue.Request) {
	t.Helper()
	var got time.Time
	const query = "SELECT look_at FROM dial_queue WHERE call_request_id = $1"
	if err := pool.QueryRow(t.Context(), query, r.CallRequestID).Scan(&got); err != nil {
		t.Fatalf("read the request: %v", err)
	}
	if want := r.DueAt.Truncate(time.Microsecond); !got.Equal(want) {
		t.Errorf("look_at of the request = %s, want %s", got, want)
	}
}

// The suspension of a workspace makes its queued requests due immediately, so that they end as
// blocked. If the workspace is resumed before they end, they must wait until their scheduled time
// again.
func TestClaim_RequestsOfAResumedWorkspaceStayScheduled(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	r := scheduled(t, pool, st, workspace)
	applyAll(t, st, version(workspace, 1, "suspended"), version(workspace, 2, "active"))
	for range 2 {
		if got := len(claimRequests(t, st, 8)); got != 0 {
			t.Fatalf("requests claimed an hour before they are due = %d, want 0", got)
		}
	}
	wantKept(t, pool, r)
}

// A claim takes a request of a suspended workspace before its due time, to block it. If the
// workspace is resumed before the attempt checks it, the request must not be dialed early.
func TestFence_RejectsARequestThatIsNotDue(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	r := scheduled(t, pool, st, workspace)
	applyAll(t, st, version(workspace, 1, "suspended"))
	claimed := claimRequests(t, st, 8)
	if len(claimed) != 1 {
		t.Fatalf("requests of a suspended workspace that are claimed = %d, want 1", len(claimed))
	}
	applyAll(t, st, version(workspace, 2, "active"))
	err := st.Fence(t.Context(), claimed[0], uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
	if !errors.Is(err, store.ErrLost) {
		t.Errorf("Fence an hour before the request is due = %v, want ErrLost", err)
	}
	if err := st.PutBack(t.Context(), claimed[0], 250*time.Millisecond, 0); err != nil {
		t.Fatalf("PutBack: %v", err)
	}
	wantKept(t, pool, r)
}

// ApplySetting can store a new version of a workspace before the event of an older version arrives.
func TestSaveWorkspace_OlderVersionDoesNotMakeRequestsDue(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	applyAll(t, st, version(workspace, 1, "suspended"), version(workspace, 2, "active"))
	r := scheduled(t, pool, st, workspace)
	runTx(t, pool, func(tx pgx.Tx) error { return st.SaveWorkspace(t.Context(), tx, version(workspace, 1, "suspended")) })
	wantKept(t, pool, r)
}

func TestClaim_TakesRequestsOfADeletedAgent(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	applyAll(t, st, version(workspace, 1, "active"))
	r := scheduled(t, pool, st, workspace)
	agent := dialqueue.Agent{AgentID: r.AgentID, WorkspaceID: workspace, Version: 1, Settings: []byte("{}"), Deleted: true}
	if err := st.ApplyAgent(t.Context(), agent); err != nil {
		t.Fatalf("ApplyAgent: %v", err)
	}
	if got := len(claimRequests(t, st, 8)); got != 1 {
		t.Errorf("claimed requests of a deleted agent = %d, want 1", got)
	}
}

// ApplySetting has usually stored a version before the consumer reads its event. If the event took
// a lock, the next change of the workspace or agent would wait until the consumer's batch commits.
func TestSaveWorkspace_RepeatedVersionTakesNoLock(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	applyAll(t, st, version(workspace, 1, "active"))
	batch, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin batch: %v", err)
	}
	t.Cleanup(func() { _ = batch.Rollback(context.Background()) })
	if err := st.SaveWorkspace(t.Context(), batch, version(workspace, 1, "active")); err != nil {
		t.Fatalf("save the stored version in the batch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := st.ApplyWorkspace(ctx, version(workspace, 2, "active")); err != nil {
		t.Errorf("apply version 2 before the batch commits: %v", err)
	}
	// If the change to version 2 waited for the batch, the database would end the batch's idle
	// session.
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("commit the batch: %v", err)
	}
}

func TestSaveAgent_RepeatedVersionTakesNoLock(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	agent := dialqueue.Agent{
		AgentID: uuid.Must(uuid.NewV7()), WorkspaceID: uuid.Must(uuid.NewV7()), Version: 1, MaxCallSeconds: 60,
		Settings: []byte("{}"),
	}
	if err := st.ApplyAgent(t.Context(), agent); err != nil {
		t.Fatalf("apply version 1: %v", err)
	}
	batch, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin batch: %v", err)
	}
	t.Cleanup(func() { _ = batch.Rollback(context.Background()) })
	if err := st.SaveAgent(t.Context(), batch, agent); err != nil {
		t.Fatalf("save the stored version in the batch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	agent.Version = 2
	if err := st.ApplyAgent(ctx, agent); err != nil {
		t.Errorf("apply version 2 before the batch commits: %v", err)
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("commit the batch: %v", err)
	}
}

// Without API access, the requests of API keys are claimed immediately, to block them. The requests
// of people obey their due time, pauses and limits.
func TestClaim_RequestsOfPeopleNeedNoAPIAccess(t *testing.T) {
	t.Parallel()
	for _, level := range []dialqueue.PauseLevel{"", dialqueue.PauseWorkspace, dialqueue.PauseAgent} {
		t.Run("paused: "+string(level), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
			agent := uuid.Must(uuid.NewV7())
			request := func(number int, byPerson bool, due time.Duration) dialqueue.Request {
				r := aRequest(workspace, number)
				r.AgentID, r.ByPerson, r.DueAt = agent, byPerson, time.Now().Add(due)
				return r
			}
			ofPerson, ofKey := request(1, true, -time.Second), request(2, false, -time.Second)
			later, laterOfKey := request(3, true, time.Hour), request(4, false, time.Hour)
			enqueue(t, pool, st, ofPerson, ofKey, later, laterOfKey)
			exec(t, pool, knownAgent, agent, workspace)
			if level != "" {
				scope := dialqueue.PauseScope{Level: level, ID: workspace}
				if level == dialqueue.PauseAgent {
					scope.ID = agent
				}
				setDialing(t, st, scope, true, nil)
			}
			runTx(t, pool, func(tx pgx.Tx) error {
				return st.SaveWorkspace(t.Context(), tx, dialqueue.Workspace{
					WorkspaceID: workspace, Version: 1, Status: "active", MaxLiveCalls: 500, CallsPerSecond: 500,
				})
			})
			want := []dialqueue.Request{ofKey, laterOfKey}
			if level == "" {
				want = append(want, ofPerson)
			}
			var got []uuid.UUID
			for range 3 { // the first claim takes requests of keys only
				if _, err := st.MovePaused(t.Context()); err != nil {
					t.Fatal(err)
				}
				got = append(got, claimedIDs(t, st)...)
			}
			if !sameIDs(got, want) {
				t.Errorf("claimed = %v, want %v", got, idsOf(want))
			}
			const tookToken = "SELECT count(*) FROM rate_buckets WHERE scope = $1 AND claimed_at IS NOT NULL"
			if took := countRows(t, pool, tookToken, workspace.String()) == 1; took != (level == "") {
				t.Errorf("a request took a token of the workspace = %t, want %t", took, level == "")
			}
			if found := dueWorkspaces(t, st); level != "" && len(found) != 0 {
				t.Errorf("due workspaces during the pause = %v, want none", found)
			}
		})
	}
}
