package store_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

const manyRequests = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, max_call_seconds, queued_at, due_at,
	look_at)
SELECT gen_random_uuid(), $1, 'queued', '+1415' || lpad((n % 9999999)::text, 7, '0'), $1, 600, now(),
	now() + $4::interval + n * interval '1 millisecond', now() + $4::interval + n * interval '1 millisecond'
FROM generate_series($2::integer, $3::integer) n`

func insertRequests(t *testing.T, pool *pgxpool.Pool, workspace uuid.UUID, first, last int, at time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(), knownWorkspace, workspace, dialqueue.DefaultMaxLiveCalls, dialqueue.DefaultCallsPerSecond)
	if err != nil {
		t.Fatal(err)
	}
	const atOnce = 10_000 // a larger statement would reach the statement timeout
	for ; first <= last; first += atOnce {
		if _, err := pool.Exec(t.Context(), manyRequests, workspace, first, min(last, first+atOnce-1), at); err != nil {
			t.Fatal(err)
		}
	}
}

func limited(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspace uuid.UUID, live, rate int32) {
	t.Helper()
	runTx(t, pool, func(tx pgx.Tx) error {
		return st.SaveWorkspace(t.Context(), tx, dialqueue.Workspace{
			WorkspaceID: workspace, Version: time.Now().UnixNano(), Status: "active", APIEnabled: true, MaxLiveCalls: live, CallsPerSecond: rate,
		})
	})
}

func TestClaim_ManyRequestsOfOneWorkspaceDoNotDelayAnotherWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	big, small := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	limited(t, pool, st, big, 100_000, 100_000)
	limited(t, pool, st, small, 100_000, 100_000)
	insertRequests(t, pool, big, 1, 100_000, -time.Hour)
	replica := &claimer{Store: st}
	for round, workers := range []int{64, 1, 64, 1, 1, 5} {
		enqueue(t, pool, st, aRequest(small, 1000+round))
		claims := 0
		for found := false; !found; claims++ {
			if claims == 2 {
				t.Fatalf("two claims with %d workers did not take the single request", workers)
			}
			claimed, err := replica.claim(t.Context(), ampleCapacity(workers))
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			taken := claimed.Requests
			found = slices.ContainsFunc(taken, func(r dialqueue.Request) bool { return r.WorkspaceID == small })
			if len(taken) != workers {
				t.Fatalf("claimed requests = %d with %d workers", len(taken), workers)
			}
		}
		if claims > 1 && workers > 1 {
			t.Errorf("the first claim with %d workers did not take the single request", workers)
		}
	}
}

func pagesOf(t *testing.T, seen *pgtest.Watched, do func()) (most int) {
	t.Helper()
	for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
		seen.Forget()
		do()
		n, plans := seen.Pages(t, mode)
		if n == 0 {
			t.Fatalf("pages = 0, want more; plans:\n%s", plans)
		}
		if n > most {
			most = n
		}
	}
	return most
}

func TestClaim_CostDoesNotGrowWithScheduledRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	plain, st := newStore(pool), newStore(watched)
	super := pgtest.Super(t, pool, "dialer")
	workspace, next := uuid.Must(uuid.NewV7()), 0
	pages := func() (claim, look int) {
		_, err := super.Exec(t.Context(), "VACUUM ANALYZE dial_queue, rate_buckets, workspaces")
		if err != nil {
			t.Fatal(err)
		}
		claim = pagesOf(t, seen, func() {
			for range 20 { // enough requests for all repetitions of the claim
				next++
				enqueue(t, pool, plain, aRequest(workspace, next))
			}
			claimed, err := st.Claim(t.Context(), ampleCapacity(1), []uuid.UUID{workspace})
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			if got := len(claimed.Requests); got != 1 {
				t.Fatalf("claimed requests = %d, want 1", got)
			}
		})
		look = pagesOf(t, seen, func() { dueWorkspaces(t, st) })
		return claim, look
	}
	ahead := uuid.Must(uuid.NewV7())
	insertRequests(t, pool, ahead, 10_001, 11_000, 24*time.Hour)
	few, _ := pages()
	insertRequests(t, pool, ahead, 11_001, 60_000, 24*time.Hour)
	for n := range 300 {
		insertRequests(t, pool, uuid.Must(uuid.NewV7()), n, n, 24*time.Hour)
	}
	insertRequests(t, pool, uuid.Must(uuid.NewV7()), 60_001, 68_000, -time.Hour)
	lot, look := pages()
	t.Logf("pages of a claim = %d beside 1,000 scheduled requests, %d beside 50,000; pages of a look = %d", few, lot, look)
	if float64(lot) > 1.3*float64(few) {
		t.Errorf("pages of a claim beside 50,000 scheduled requests = %d, want at most 1.3 times %d", lot, few)
	}
	if look > 6*303 {
		t.Errorf("pages of a look at 303 workspaces = %d, want at most 6 for each", look)
	}
}

func TestClaim_ManyRequestsDueAtTheSameTimeDoNotDelayAnotherWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	big, small := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	limited(t, pool, st, big, 100_000, 100_000)
	insertRequests(t, pool, big, 1, 20_000, time.Hour)
	insertRequests(t, pool, small, 20_001, 20_001, time.Hour) // the request to this number is due last
	if _, err := pool.Exec(t.Context(), "UPDATE dial_queue SET look_at = look_at - interval '2 hours', due_at = due_at - interval '2 hours'"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, r := range claimRequests(t, st, 10) {
			if r.WorkspaceID == small {
				return
			}
		}
	}
	t.Error("three claims did not take the single request")
}

func TestClaim_LastTenthOfCapacityIsReservedForSmallWorkspaces(t *testing.T) {
	t.Parallel()
	ample := dialqueue.Limit{Live: 100_000, PerSecond: 100_000}
	tests := []struct {
		name           string
		trunk, overall dialqueue.Limit
	}{
		{name: "channels of the trunk", trunk: dialqueue.Limit{Live: 20, PerSecond: 100_000}, overall: ample},
		{name: "live calls of all trunks", trunk: ample, overall: dialqueue.Limit{Live: 20, PerSecond: 100_000}},
		// At 200 calls per second, the bucket contains 20 tokens. A tenth of them (2) is reserved.
		{name: "calls per second of the trunk", trunk: dialqueue.Limit{Live: 100_000, PerSecond: 200}, overall: ample},
		{name: "calls per second of all trunks", trunk: ample, overall: dialqueue.Limit{Live: 100_000, PerSecond: 200}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			replicas := []*store.Store{newStore(pool), newStore(pool)}
			big := uuid.Must(uuid.NewV7())
			limited(t, pool, replicas[0], big, 100_000, 100_000)
			for i := range 50 {
				enqueue(t, pool, replicas[0], aRequest(big, i))
			}
			r := store.Capacity{Workers: dialqueue.Workers{Free: 50}, Trunk: "sim", OfTrunk: tt.trunk, Total: tt.overall}
			first, err := claimOnce(t.Context(), replicas[0], r)
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			if len(first.Requests) != 18 {
				t.Fatalf("length of first.Requests = %d, want 18", len(first.Requests))
			}
			small := uuid.Must(uuid.NewV7())
			enqueue(t, pool, replicas[0], aRequest(small, 1))
			second, err := claimOnce(t.Context(), replicas[1], r)
			if err != nil || !slices.ContainsFunc(second.Requests, func(r dialqueue.Request) bool { return r.WorkspaceID == small }) {
				t.Errorf("claim of a workspace without calls = %v, %v; want one request", second.Requests, err)
			}
		})
	}
}

func TestClaim_ReplicasTogetherDoNotExceedTheLimitOfLiveCalls(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	first := newStore(pool)
	workspaces := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
	limits := []int32{4, 100, 100}
	for i, w := range workspaces {
		limited(t, pool, first, w, limits[i], 100_000)
		for n := range 60 {
			enqueue(t, pool, first, aRequest(w, n))
		}
	}
	r := store.Capacity{
		Workers: dialqueue.Workers{Free: 8}, Trunk: "sim", OfTrunk: dialqueue.Limit{Live: 20, PerSecond: 100_000},
		Total: dialqueue.Limit{Live: 100, PerSecond: 100_000},
	}
	var ended atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		st := newStore(pool)
		all.Go(func() {
			for begun := time.Now(); ended.Load() < 180 && !t.Failed() && time.Since(begun) < testkit.Timeout; {
				ended.Add(dialClaimed(t, st, r))
			}
		})
	}
	for ended.Load() < 180 && !t.Failed() {
		var all, first, most int
		if err := pool.QueryRow(t.Context(), usedByWorkspace, workspaces[0]).Scan(&all, &first, &most); err != nil {
			t.Fatal(err)
		}
		if all > 20 {
			t.Errorf("requests in use = %d, want at most 20", all)
		}
		if first > 4 {
			t.Errorf("requests in use of the workspace with 4 calls = %d", first)
		}
		if most > 18 {
			t.Errorf("requests in use of a workspace = %d, want at most 18 of 20", most)
		}
	}
	all.Wait()
	if n := inUse(t, pool); n != 0 {
		t.Errorf("requests in use after the last call = %d, want 0", n)
	}
	if got := ended.Load(); got != 180 {
		t.Errorf("ended calls = %d, want 180", got)
	}
}

func dialClaimed(t *testing.T, st *store.Store, capacity store.Capacity) (calls int64) {
	t.Helper()
	claimed, err := claimOnce(t.Context(), st, capacity)
	if err != nil {
		t.Errorf("Claim: %v", err)
	}
	for _, c := range claimed.Requests {
		id := uuid.Must(uuid.NewV7())
		if err := st.Fence(t.Context(), c, id, dialqueue.DefaultFrom, "sim"); err != nil {
			t.Errorf("Fence: %v", err)
		}
		end(t, st, id)
		calls++
	}
	return calls
}

// usedByWorkspace returns the number of requests in use: the sum, the number of the workspace $1,
// and the largest number of one workspace.
const usedByWorkspace = `
SELECT coalesce(sum(n), 0), coalesce(sum(n) FILTER (WHERE workspace_id = $1), 0), coalesce(max(n), 0) FROM (
	SELECT workspace_id, count(*) AS n FROM dial_queue
	WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now() GROUP BY workspace_id) u`

func TestClaim_SecondRequestToANumberWaitsForTheFirstCall(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*testing.T, *store.Store, dialqueue.Request, uuid.UUID){
		"the first call ends": func(t *testing.T, st *store.Store, _ dialqueue.Request, id uuid.UUID) { end(t, st, id) },
		"the first call becomes void": func(t *testing.T, st *store.Store, r dialqueue.Request, id uuid.UUID) {
			if err := st.Void(t.Context(), r, id, dialqueue.Blocked, dialqueue.Refusal{Code: dialqueue.CodeOutsideHours, Detail: "No."}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, over := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
			limited(t, pool, st, workspace, 500, 100_000)
			requests := []dialqueue.Request{aRequest(workspace, 1), aRequest(workspace, 1), aRequest(workspace, 1), aRequest(workspace, 2)}
			enqueue(t, pool, st, requests...)
			taken := claimRequests(t, st, 10)
			if len(taken) != 2 {
				t.Fatalf("length of taken = %d, want 2", len(taken))
			}
			if taken[0].To == taken[1].To {
				t.Fatalf("taken[0].To = %v, want another value", taken[0].To)
			}
			live := taken[slices.IndexFunc(taken, func(r dialqueue.Request) bool { return r.To == requests[0].To })]
			id := uuid.Must(uuid.NewV7())
			if err := st.Fence(t.Context(), live, id, dialqueue.DefaultFrom, "sim"); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "the others of the number are held", func() bool {
				if got := claimRequests(t, st, 10); len(got) != 0 {
					t.Fatalf("claimed requests = %v while the number is in a call, want none", got)
				}
				return countRows(t, pool, "SELECT count(*) FROM dial_queue WHERE held") == 2
			})
			if found := dueWorkspaces(t, st); len(found) != 0 {
				t.Errorf("workspaces with due requests = %v, want none", found)
			}
			over(t, st, live, id)
			if got := claimRequests(t, st, 10); len(got) != 1 {
				t.Errorf("claim: length of got = %d, want 1", len(got))
			} else if got[0].To != requests[0].To {
				t.Errorf("claim: got[0].To = %v, want %v", got[0].To, requests[0].To)
			}
		})
	}
}

// stallingPool is a pool that delays the second batch of a transaction, as if the process halted
// during a claim.
type stallingPool struct {
	batches atomic.Int64
	stopped chan struct{}
	goOn    chan struct{}
}

func (s *stallingPool) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*stallingPool) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*stallingPool) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*stallingPool) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (s *stallingPool) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if s.batches.Add(1) == 2 {
		close(s.stopped)
		<-s.goOn
	}
	return ctx
}

func TestClaim_HaltedProcessDoesNotBlockClaimsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	settings, stall := pool.Config(), &stallingPool{stopped: make(chan struct{}), goOn: make(chan struct{})}
	settings.ConnConfig.Tracer = stall
	paused, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(paused.Close)
	resume := sync.OnceFunc(func() { close(stall.goOn) })
	t.Cleanup(resume)
	st := newStore(pool)
	workspace := uuid.Must(uuid.NewV7())
	enqueue(t, pool, st, aRequest(workspace, 1))
	failed := make(chan error, 1)
	go func() {
		_, err := newStore(paused).Claim(t.Context(), ampleCapacity(5), []uuid.UUID{workspace})
		failed <- err
	}()
	<-stall.stopped
	if got := claimRequests(t, st, 5); len(got) != 1 {
		t.Errorf("claimed requests while another process is paused = %d, want 1", len(got))
	}
	resume()
	if err := <-failed; err == nil {
		t.Error("the paused claim was committed")
	}
}

func TestClaim_ReplicasTogetherDoNotExceedTheRateLimit(t *testing.T) {
	t.Parallel()
	ample := dialqueue.Limit{Live: 100_000, PerSecond: 100_000}
	tests := []struct {
		name           string
		workspace      int32
		trunk, overall dialqueue.Limit
	}{
		{name: "calls per second of the workspace", workspace: 50, trunk: ample, overall: ample},
		{
			name: "calls per second of the trunk", workspace: 100_000, trunk: dialqueue.Limit{Live: 100_000, PerSecond: 50},
			overall: ample,
		},
		{name: "calls per second of all trunks",
			workspace: 100_000, trunk: ample, overall: dialqueue.Limit{Live: 100_000, PerSecond: 50}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			workspace := uuid.Must(uuid.NewV7())
			limited(t, pool, newStore(pool), workspace, 100_000, tt.workspace)
			insertRequests(t, pool, workspace, 1, 500, -time.Hour)
			r := store.Capacity{Workers: dialqueue.Workers{Free: 64}, Trunk: "sim", OfTrunk: tt.trunk, Total: tt.overall}
			var taken atomic.Int64
			var all sync.WaitGroup
			begun := time.Now()
			for range 3 {
				st := newStore(pool)
				all.Go(func() {
					for taken.Load() < 40 && time.Since(begun) < testkit.Timeout {
						claimed, err := claimOnce(t.Context(), st, r)
						if err != nil {
							t.Error(err)
							return
						}
						taken.Add(int64(len(claimed.Requests)))
					}
				})
			}
			all.Wait()
			// At 50 requests per second, the bucket starts with five tokens. The sixth request is a margin.
			if took, want := time.Since(begun), time.Duration(taken.Load()-6)*time.Second/50; took < want {
				t.Errorf("%d requests were claimed in %s, want at least %s at 50 per second", taken.Load(), took, want)
			}
		})
	}
}
