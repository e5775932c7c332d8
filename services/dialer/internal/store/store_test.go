package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

const lease = 5 * time.Minute // long enough that no lease ends during a test

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: store.Migrations})
}

func newStore(pool *pgxpool.Pool) *store.Store { return newInstance(pool, uuid.Must(uuid.NewV7())) }

func newInstance(pool *pgxpool.Pool, id uuid.UUID) *store.Store {
	return store.New(pool, id, store.Timing{
		InstanceLease: lease, ClaimLease: time.Minute, QueueLimit: 24 * time.Hour, CapacityLimit: 24 * time.Hour, RingLimit: time.Minute, WatchdogGrace: time.Minute,
	})
}

func runTx(t *testing.T, pool *pgxpool.Pool, f func(tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), pool, f); err != nil {
		t.Fatal(err)
	}
}

func aRequest(workspace uuid.UUID, number int) dialqueue.Request {
	now := time.Now()
	return dialqueue.Request{
		CallRequestID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, To: phone.Number(fmt.Sprintf("+1415%07d", number)),
		AgentID: uuid.Must(uuid.NewV7()), MaxCallSeconds: 600, QueuedAt: &now, DueAt: now.Add(-time.Second),
	}
}

func enqueue(t *testing.T, pool *pgxpool.Pool, st *store.Store, requests ...dialqueue.Request) {
	t.Helper()
	runTx(t, pool, func(tx pgx.Tx) error {
		for _, r := range requests {
			_, err := tx.Exec(t.Context(), knownWorkspace, r.WorkspaceID, dialqueue.DefaultMaxLiveCalls,
				dialqueue.DefaultCallsPerSecond)
			if err != nil {
				return err
			}
		}
		_, err := st.Enqueue(t.Context(), tx, requests...)
		return err
	})
}

// The consumer handles the requests of all workspaces. Unusual variables of one customer must not
// stop it.
func TestEnqueue_StoresAnyValidJSON(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	for n, variables := range []string{`{"x":1e400000}`, `{"x":"\ud800"}`, `{"a":1,"a":2}`, `{"x":"\u0000"}`, `{}`} {
		r := aRequest(workspace, n)
		r.Variables = []byte(variables)
		enqueue(t, pool, st, r)
		taken := claimRequests(t, st, 1)
		if len(taken) != 1 {
			t.Fatalf("length of taken = %d, want 1", len(taken))
		}
		if string(taken[0].Variables) != variables {
			t.Fatalf("taken[0].Variables = %q, want %q", string(taken[0].Variables), variables)
		}
		if err := st.Fence(t.Context(), taken[0], uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim"); err != nil {
			t.Fatal(err)
		}
	}
}

func countRows(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func ampleCapacity(workers int) store.Capacity {
	ample := dialqueue.Limit{Live: 100_000, PerSecond: 100_000}
	return store.Capacity{Workers: dialqueue.Workers{Free: workers}, Trunk: "sim", OfTrunk: ample, Total: ample}
}

func claimRequests(t *testing.T, st *store.Store, workers int) []dialqueue.Request {
	t.Helper()
	return claimAs(t, st, ampleCapacity(workers)).Requests
}

func claimAs(t *testing.T, st *store.Store, c store.Capacity) store.Claimed {
	t.Helper()
	claimed, err := (&claimer{Store: st}).claim(t.Context(), c)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return claimed
}

type claimer struct {
	*store.Store
	candidates dialqueue.Candidates
}

func (c *claimer) claim(ctx context.Context, capacity store.Capacity) (store.Claimed, error) {
	found, err := c.Due(ctx)
	if err != nil {
		return store.Claimed{}, err
	}
	now := time.Now()
	c.candidates.Replace(found, now)
	window, _, _ := c.candidates.Next(now)
	claimed, err := c.Claim(ctx, capacity, window)
	if err == nil {
		c.candidates.RecordClaim(window, claimed.Last, claimed.Drained, now)
	}
	return claimed, err
}

func claimOnce(ctx context.Context, st *store.Store, c store.Capacity) (store.Claimed, error) {
	return (&claimer{Store: st}).claim(ctx, c)
}

func claimWithoutTrunk(t *testing.T, st *store.Store, want int) {
	t.Helper()
	over := ampleCapacity(8)
	over.OfTrunk = dialqueue.Limit{}
	if got := len(claimAs(t, st, over).Requests); got != want {
		t.Errorf("requests claimed while no trunk can take a call = %d, want %d", got, want)
	}
}

func inUse(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return countRows(t, pool, `SELECT count(*) FROM dial_queue
		WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now()`)
}

const knownWorkspace = `
INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations)
VALUES ($1, 0, 'active', true, $2, $3, '{}') ON CONFLICT DO NOTHING`

func fenced(t *testing.T, pool *pgxpool.Pool, st *store.Store, r dialqueue.Request) uuid.UUID {
	t.Helper()
	enqueue(t, pool, st, r)
	claimed := claimRequests(t, st, 1)
	if got := len(claimed); got != 1 {
		t.Fatalf("claimed requests = %d, want 1", got)
	}
	id := uuid.Must(uuid.NewV7())
	if err := st.Fence(t.Context(), claimed[0], id, dialqueue.DefaultFrom, "sim"); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestWithdraw_ExactlyOneOfWithdrawalAndFenceSucceeds(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	won := map[bool]int{}
	for i := range 200 {
		workspace := uuid.Must(uuid.NewV7())
		r := aRequest(workspace, i)
		enqueue(t, pool, st, r)
		claimed := claimRequests(t, st, 1)
		if got := len(claimed); got != 1 {
			t.Fatalf("round %d: claimed requests = %d, want 1", i, got)
		}
		var fenceErr error
		var withdrawn bool
		var both sync.WaitGroup
		both.Go(func() {
			fenceErr = st.Fence(t.Context(), claimed[0], uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
		})
		both.Go(func() {
			runTx(t, pool, func(tx pgx.Tx) error {
				var err error
				withdrawn, err = st.Withdraw(t.Context(), tx, r.CallRequestID, workspace)
				return err
			})
		})
		both.Wait()
		if fenceErr != nil && !errors.Is(fenceErr, store.ErrLost) {
			t.Fatal(fenceErr)
		}
		if (fenceErr == nil) == withdrawn {
			t.Fatalf("round %d: fence %v, withdrawn %v: exactly one must win", i, fenceErr, withdrawn)
		}
		fences := countRows(t, pool, "SELECT count(*) FROM fences WHERE call_request_id = $1", r.CallRequestID)
		facts := countRows(t, pool, "SELECT count(*) FROM outbox WHERE key = $1", []byte(r.CallRequestID.String()))
		if (fences == 0) != withdrawn {
			t.Fatalf("no fence = %v, want %v; run = %d", fences == 0, withdrawn, i)
		}
		if facts != 1 {
			t.Fatalf("facts = %v, want 1; i = %d", facts, i)
		}
		won[withdrawn]++
	}
	t.Logf("withdraw won %d times, the fence %d times", won[true], won[false])
}

func TestClaim_ReplicasNeverClaimTheSameRequest(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	replicas := []*store.Store{newStore(pool), newStore(pool), newStore(pool)}
	workspace := uuid.Must(uuid.NewV7())
	runTx(t, pool, func(tx pgx.Tx) error {
		return replicas[0].SaveWorkspace(t.Context(), tx, dialqueue.Workspace{
			WorkspaceID: workspace, Version: 1, Status: "active", APIEnabled: true, MaxLiveCalls: 500, CallsPerSecond: 10_000,
		})
	})
	for i := range 90 {
		enqueue(t, pool, replicas[0], aRequest(workspace, i))
	}
	var mu sync.Mutex
	taken := map[uuid.UUID]int{}
	var all sync.WaitGroup
	for _, st := range replicas {
		all.Go(func() {
			for {
				claimed, err := claimOnce(t.Context(), st, ampleCapacity(7))
				if err != nil {
					t.Error(err)
				}
				if len(claimed.Requests) == 0 {
					return
				}
				mu.Lock()
				for _, r := range claimed.Requests {
					taken[r.CallRequestID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(taken) != 90 {
		t.Errorf("claimed requests = %d, want 90", len(taken))
	}
	for id, n := range taken {
		if n != 1 {
			t.Errorf("request %s was claimed %d times, want 1", id, n)
		}
	}
}

func TestClaim_ObeysTheLimitsOfEachWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	big, small := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	limited := func(workspace uuid.UUID, live, rate int32) {
		runTx(t, pool, func(tx pgx.Tx) error {
			return st.SaveWorkspace(t.Context(), tx, dialqueue.Workspace{
				WorkspaceID: workspace, Version: time.Now().UnixNano(), Status: "active", APIEnabled: true, MaxLiveCalls: live, CallsPerSecond: rate,
			})
		})
	}
	limited(big, 3, 10_000)
	limited(small, 500, 10_000)
	for i := range 50 {
		enqueue(t, pool, st, aRequest(big, i))
	}
	enqueue(t, pool, st, aRequest(small, 1))
	by := map[uuid.UUID]int{}
	for _, r := range claimRequests(t, st, 10) {
		by[r.WorkspaceID]++
	}
	if by[big] != 3 {
		t.Errorf("by[big] = %v, want 3", by[big])
	} else if by[small] != 1 {
		t.Errorf("by[small] = %v, want 1", by[small])
	}
	if again := claimRequests(t, st, 10); len(again) != 0 {
		t.Errorf("requests claimed beyond the limit of live calls = %d, want 0", len(again))
	}
	limited(big, 500, 5) // five calls per second: one call now, the next after 200 ms
	if got := len(claimRequests(t, st, 10)); got > 1 {
		t.Errorf("requests claimed immediately at five per second = %d", got)
	}
}

func TestClaim_DoesNotTakeRequestsBeforeTheirDueTime(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	r := aRequest(uuid.Must(uuid.NewV7()), 1)
	r.DueAt = time.Now().Add(time.Hour)
	enqueue(t, pool, st, r)
	if got := claimRequests(t, st, 10); len(got) != 0 {
		t.Errorf("requests claimed before their due time = %v, want none", got)
	}
	if found := dueWorkspaces(t, st); len(found) != 0 {
		t.Errorf("workspaces with due requests = %v, want none", found)
	}
}

func dueWorkspaces(t *testing.T, st *store.Store) []dialqueue.Due {
	t.Helper()
	found, err := st.Due(t.Context())
	if err != nil {
		t.Fatalf("Due: %v", err)
	}
	return found
}

func TestFence_RejectsASecondLiveCallToANumber(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	workspace := uuid.Must(uuid.NewV7())
	first, second := aRequest(workspace, 1), aRequest(workspace, 2)
	enqueue(t, pool, st, first, second)
	claimed := claimRequests(t, st, 2)
	if len(claimed) != 2 {
		t.Fatalf("claimed requests = %d", len(claimed))
	}
	// A claim takes at most one request per number. So the test changes the number of the second
	// request after the claim.
	if _, err := pool.Exec(t.Context(), "UPDATE dial_queue SET to_e164 = $1", first.To); err != nil {
		t.Fatal(err)
	}
	fence := func(r dialqueue.Request) error {
		return st.Fence(t.Context(), r, uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
	}
	if err := fence(claimed[0]); err != nil {
		t.Fatal(err)
	}
	if err := fence(claimed[0]); !errors.Is(err, store.ErrLost) {
		t.Errorf("a second fence of one request = %v, want ErrLost", err)
	}
	if err := fence(claimed[1]); !errors.Is(err, store.ErrLost) {
		t.Errorf("fence of a number in a call = %v, want ErrLost", err)
	}
	if n := countRows(t, pool, "SELECT count(*) FROM fences"); n != 1 {
		t.Errorf("fences = %d, want 1", n)
	}
}

func TestFences_DeletingAYoungFenceIsRejected(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	fenced(t, pool, st, aRequest(uuid.Must(uuid.NewV7()), 1))
	for _, statement := range []string{"DELETE FROM fences", "UPDATE fences SET trunk = 'x'", "TRUNCATE fences"} {
		if _, err := pool.Exec(t.Context(), statement); err == nil {
			t.Errorf("statement %s succeeded, want an error", statement)
		}
	}
}

func TestTakeOver_TakesOnlyCallsOfDeadProcesses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	deadID, thirdID := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	dead, living, third := newInstance(pool, deadID), newStore(pool), newInstance(pool, thirdID)
	beat := func(st *store.Store) {
		t.Helper()
		if err := st.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ages := func(id uuid.UUID, silent, alive time.Duration) {
		t.Helper()
		tag, err := pool.Exec(t.Context(), "UPDATE instances SET seen_at = seen_at - $2::interval, steady_since = steady_since - $3::interval WHERE instance_id = $1", id, silent, alive)
		if err != nil {
			t.Fatalf("Exec: %v", err)
		}
		if got := tag.RowsAffected(); got != 1 {
			t.Fatalf("tag.RowsAffected() = %v, want 1", got)
		}
	}
	takesOver := func(want int64, who string) {
		t.Helper()
		if n, err := third.TakeOver(t.Context()); err != nil {
			t.Errorf("TakeOver: %v", err)
		} else if n != want {
			t.Errorf("TakeOver: n = %v, want %v; who = %s", n, want, who)
		}
	}
	for _, st := range []*store.Store{dead, living, third} {
		beat(st)
	}
	workspace := uuid.Must(uuid.NewV7())
	orphan, kept := fenced(t, pool, dead, aRequest(workspace, 1)), fenced(t, pool, living, aRequest(workspace, 2))
	ages(deadID, 2*lease, 0)
	takesOver(0, "who has just begun to live")
	ages(thirdID, lease*2/3, 2*lease)
	beat(third)
	takesOver(0, "who was silent for most of a lease itself")
	for _, id := range []uuid.UUID{living.Instance(), thirdID} {
		ages(id, 2*lease, 2*lease)
	}
	takesOver(0, "whose own last heartbeat is lost, like those of the living process")
	beat(living)
	beat(third)
	takesOver(0, "who has just stored its first heartbeat since")
	ages(thirdID, 0, 2*lease)
	takesOver(1, "who has lived for a lease")
	due, err := third.DueHangups(t.Context())
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case len(due) != 1:
		t.Errorf("length of due = %v, want 1", len(due))
	case due[0].CallID != orphan:
		t.Errorf("due[0].CallID = %v, want %v", due[0].CallID, orphan)
	case due[0].Ending != callstate.EndingRecovery:
		t.Errorf("due[0].Ending = %v, want %v", due[0].Ending, callstate.EndingRecovery)
	}
	if mine, err := dead.StillFenced(t.Context(), orphan); err != nil {
		t.Errorf("StillFenced of the dead process: %v", err)
	} else if mine {
		t.Error("the dead process may still dial: mine = true, want false")
	}
	if mine, err := living.StillFenced(t.Context(), kept); err != nil {
		t.Errorf("StillFenced of the live process: %v", err)
	} else if !mine {
		t.Error("the living process lost its fence: mine = false, want true")
	}
}

func TestVoid_RejectsACallThatWasDialed(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	r := aRequest(uuid.Must(uuid.NewV7()), 1)
	id := fenced(t, pool, st, r)
	if err := st.Change(t.Context(), []uuid.UUID{id}, func(calls map[uuid.UUID]*callstate.Call) { calls[id].Initiate(time.Now()) }); err != nil {
		t.Fatal(err)
	}
	err := st.Void(t.Context(), r, id, dialqueue.Blocked, dialqueue.Refusal{Code: dialqueue.CodeRecipientDND, Detail: "No."})
	if !errors.Is(err, store.ErrLost) {
		t.Errorf("void of an initiated call = %v, want ErrLost", err)
	}
}

func TestApplyEvents_OnlyTheOwnerOfTheEventStreamAppliesEvents(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first, second := newStore(pool), newStore(pool)
	id := fenced(t, pool, first, aRequest(uuid.Must(uuid.NewV7()), 1))
	place, mine, err := first.ClaimEventStream(t.Context(), "sim")
	if err != nil {
		t.Fatalf("ClaimEventStream: %v", err)
	}
	if !mine {
		t.Fatal("ClaimEventStream: mine = false, want true")
	}
	if _, mine, err := second.ClaimEventStream(t.Context(), "sim"); err != nil {
		t.Errorf("ClaimEventStream by a second reader: %v", err)
	} else if mine {
		t.Error("a second reader: mine = true, want false")
	}
	next := store.StreamPosition{Stream: "a", Cursor: 2}
	events := func(reader *store.Store) store.Events {
		return store.Events{
			Guard: reader.MoveStreamPosition("sim", place, next), Calls: []uuid.UUID{id},
			Fold: func(calls map[uuid.UUID]*callstate.Call, _ bool) (store.Folded, error) {
				calls[id].Initiate(time.Now())
				return store.Folded{}, nil
			},
		}
	}
	if err := second.ApplyEvents(t.Context(), events(second)); !errors.Is(err, store.ErrLost) {
		t.Errorf("ApplyEvents by a process that is not the reader = %v, want ErrLost", err)
	}
	if err := first.ApplyEvents(t.Context(), events(first)); err != nil {
		t.Fatal(err)
	}
	if err := first.ApplyEvents(t.Context(), events(first)); !errors.Is(err, store.ErrLost) {
		t.Errorf("ApplyEvents of the same batch again = %v, want ErrLost", err)
	}
}
