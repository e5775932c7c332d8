package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

type deadTimes struct {
	due, claimedUntil time.Duration
	counted           time.Duration
}

// While a transaction has an old snapshot, vacuum cannot remove dead rows. The statements of the
// queue must not read the dead rows of requests that ended some time ago.
func TestQueue_CostDoesNotGrowDuringAnOldSnapshot(t *testing.T) {
	t.Parallel()
	earlier := deadTimes{due: -time.Hour, claimedUntil: -6 * time.Minute, counted: -11 * time.Minute}
	few, lot := pagesBesideDeadRows(t, earlier)
	for name, got := range lot {
		if got > few[name]+few[name]/2+20 {
			t.Errorf("pages read by %s with 22,000 dead requests = %d, with 2,000 = %d", name, got, few[name])
		}
	}
}

// While a transaction has an old snapshot, vacuum cannot remove the dead rows of recent requests.
// The statements of the queue must read these rows, but they may read only few pages.
func TestQueue_ReadsFewDatabasePagesDespiteRecentDeadRows(t *testing.T) {
	t.Parallel()
	recent := deadTimes{due: -20 * time.Second, claimedUntil: 30 * time.Second, counted: -time.Minute}
	few, lot := pagesBesideDeadRows(t, recent)
	for name, got := range lot {
		if most := few[name] + 20_000/5; got > most {
			t.Errorf("pages read by %s with 20,000 more dead requests = %d, want at most %d", name, got, most)
		}
	}
}

// pagesBesideDeadRows returns, for each statement, the number of pages that it reads: few with
// 2,000 dead requests, and lot with 22,000.
func pagesBesideDeadRows(t *testing.T, at deadTimes) (few, lot map[string]int) {
	t.Helper()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	plain, st := newStore(pool), newStore(watched)
	workspace, next := uuid.Must(uuid.NewV7()), 0
	limited(t, pool, plain, workspace, 100_000, 100_000)
	// An INSERT first tries the pages that vacuum reported as free, and these reads would count as
	// pages of the statement. So autovacuum is off.
	turnOffVacuum(t, pool)
	snapshot, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(t.Context()) }()
	for _, sql := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", "SELECT count(*) FROM dial_queue"} {
		if _, err := snapshot.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	long := claimOf(t, pool, plain, workspace, &next)
	if err := plain.Fence(t.Context(), long, uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim"); err != nil {
		t.Fatalf("Fence: %v", err)
	}
	dialed := func(n int) {
		exec("UPDATE dial_queue SET look_at = now() - interval '10 minutes' WHERE state = 'dialing'")
		exec("UPDATE rate_buckets SET version = version + 1, scan_from = now() - interval '11 minutes'")
		insertRequests(t, pool, workspace, next+1, next+n, at.due)
		next += n
		exec(`UPDATE dial_queue SET claimed_by = gen_random_uuid(), look_at = now() + $1::interval
			WHERE state = 'queued'`, at.claimedUntil)
		exec("UPDATE dial_queue SET state = 'dialing', claimed_by = NULL WHERE state = 'queued'")
		exec(`UPDATE dial_queue SET state = 'ended', ended_at = now() WHERE state = 'dialing' AND call_request_id <> $1`,
			long.CallRequestID)
		exec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE rate_buckets SET version = version + 1;
			END LOOP; END $$`, n/10))
		exec(`INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at,
				max_call_seconds, deadline_at, counted_at)
			SELECT gen_random_uuid(), $1, 'inbound', '+14155550100', '+14155550101', $1, 'ringing', now(), 600, now(),
				now() + $3::interval FROM generate_series(1, $2::integer)`, workspace, n, at.counted)
		exec("UPDATE calls SET status = 'no_answer', ended_at = now() WHERE direction = 'inbound' AND ended_at IS NULL")
		if moved, err := plain.MoveLongCalls(t.Context()); err != nil || moved != 1 {
			t.Fatalf("MoveLongCalls = %d, %v, want 1", moved, err)
		}
		exec(`UPDATE rate_buckets SET version = version + 1, scan_from = now() - interval '30 seconds',
			next_scan_from = now() - interval '30 seconds', next_scan_at = now()`)
	}
	steps := map[string]func(t *testing.T) int{
		"claim": func(t *testing.T) int {
			return pagesOf(t, seen, func() {
				for range 5 {
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
		},
		"look": func(t *testing.T) int { return pagesOf(t, seen, func() { dueWorkspaces(t, st) }) },
		"enqueue": func(t *testing.T) int {
			return pagesOf(t, seen, func() { next++; enqueue(t, watched, st, aRequest(workspace, next)) })
		},
		"expire": func(t *testing.T) int {
			return pagesOf(t, seen, func() {
				if _, err := st.Expire(t.Context()); err != nil {
					t.Fatalf("Expire: %v", err)
				}
			})
		},
		"put back": func(t *testing.T) int {
			return pagesOf(t, seen, func() {
				r := claimOf(t, pool, st, workspace, &next)
				seen.Forget()
				if err := st.PutBack(t.Context(), r, 0, 0); err != nil {
					t.Fatalf("PutBack: %v", err)
				}
			})
		},
	}
	dialed(2_000)
	few, lot = map[string]int{}, map[string]int{}
	for name, step := range steps {
		few[name] = step(t)
	}
	dialed(20_000)
	for name, step := range steps {
		lot[name] = step(t)
		t.Logf("pages of %s = %d beside 2,000 dead requests, %d beside 22,000", name, few[name], lot[name])
	}
	return few, lot
}

func TestReadDepth_CostDoesNotGrowDuringAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	st := newStore(pool)
	workspace, next := uuid.Must(uuid.NewV7()), 0
	limited(t, pool, st, workspace, 100_000, 100_000)
	turnOffVacuum(t, pool)
	snapshot, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(t.Context()) }()
	for _, sql := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", "SELECT count(*) FROM dial_queue"} {
		if _, err := snapshot.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	claimOf(t, pool, st, workspace, &next)
	for _, sql := range []string{
		`INSERT INTO dial_queue SELECT (jsonb_populate_record(q, jsonb_build_object('call_request_id', gen_random_uuid(),
			'state', 'dialing', 'claimed_by', NULL, 'look_at', now() - interval '6 minutes'))).*
			FROM dial_queue q, generate_series(1, 20000)`,
		"UPDATE dial_queue SET state = 'ended', ended_at = now() WHERE state = 'dialing'",
		"UPDATE rate_buckets SET version = version + 1, scan_from = now() - interval '30 seconds'",
		"ANALYZE dial_queue",
	} {
		if _, err := pgtest.Owner(t, pool, "dialer").Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	found, err := store.ReadDepth(t.Context(), watched)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	if found.InUse != 1 {
		t.Errorf("requests in use = %d, want 1", found.InUse)
	}
	for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
		if got, plans := seen.Pages(t, mode); got > 40 {
			t.Errorf("pages of the counts = %d, want at most 40; plans:\n%s", got, plans)
		}
	}
}

func turnOffVacuum(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	owner := pgtest.Owner(t, pool, "dialer")
	for _, table := range []string{"dial_queue", "rate_buckets", "calls"} {
		if _, err := owner.Exec(t.Context(), "ALTER TABLE "+table+" SET (autovacuum_enabled = false)"); err != nil {
			t.Fatalf("turn off vacuum of %s: %v", table, err)
		}
	}
}

func claimOf(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspace uuid.UUID, next *int) dialqueue.Request {
	t.Helper()
	*next++
	enqueue(t, pool, st, aRequest(workspace, *next))
	claimed, err := st.Claim(t.Context(), ampleCapacity(1), []uuid.UUID{workspace})
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	if len(claimed.Requests) != 1 {
		t.Fatalf("claimed requests = %d, want 1", len(claimed.Requests))
	}
	return claimed.Requests[0]
}
