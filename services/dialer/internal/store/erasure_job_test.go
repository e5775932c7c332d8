package store_test

import (
	"flag"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/store"
)

var large = flag.Bool("large", false, "erase a person with 100,000 inbound calls, as make test-nightly does")

func eraseCalls(t *testing.T, st *store.Store, limit int) (steps int) {
	t.Helper()
	for {
		worked, err := st.EraseNextCalls(t.Context(), limit)
		if err != nil {
			t.Fatalf("EraseNextCalls: %v", err)
		}
		if !worked {
			return steps
		}
		steps++
	}
}

const insertInboundCalls = `
INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status,
	ringing_at, answered_at, ended_at,
	max_call_seconds, deadline_at, version, turns)
SELECT gen_random_uuid(), $1, 'inbound', $2, '+14155550100', $1, 'completed', now(), now(), now(), 600, now(), 4,
	'[{"role":"person","text":"Xylophone","at":"2026-11-21T12:00:00Z"}]'
FROM generate_series(1, $3)`

// addInboundCalls adds ended inbound calls of a number. It uses the connection of the schema's
// owner, because the owner has no statement timeout.
func addInboundCalls(t *testing.T, pool *pgxpool.Pool, workspace uuid.UUID, number string, calls int) {
	t.Helper()
	owner := pgtest.Owner(t, pool, "dialer")
	if _, err := owner.Exec(t.Context(), insertInboundCalls, workspace, number, calls); err != nil {
		t.Fatal(err)
	}
}

func TestOrderErasure_ManyCallsAreErasedInSteps(t *testing.T) {
	t.Parallel()
	const number, calls, limit = "+14155550111", 4_000, 500
	pool := newPool(t)
	first, second, workspace := newStore(pool), newStore(pool), uuid.Must(uuid.NewV7())
	e := store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace}
	addInboundCalls(t, pool, workspace, number, calls)
	runTx(t, pool, func(tx pgx.Tx) error { return first.OrderErasure(t.Context(), tx, number, e) })
	if got := countRows(t, pool, "SELECT count(*) FROM calls WHERE erased"); got != 0 {
		t.Errorf("calls erased by the order itself = %d, want 0", got)
	}
	if _, err := first.EraseNextCalls(t.Context(), limit); err != nil {
		t.Fatalf("EraseNextCalls: %v", err)
	}
	if got := countRows(t, pool, "SELECT count(*) FROM calls WHERE erased"); got != limit {
		t.Errorf("calls erased by one step = %d, want %d", got, limit)
	}
	// The erasure is ordered again while it is in progress.
	runTx(t, pool, func(tx pgx.Tx) error { return second.OrderErasure(t.Context(), tx, number, e) })
	if got, want := eraseCalls(t, second, limit), calls/limit; got != want {
		t.Errorf("further steps = %d, want %d", got, want)
	}

	if got := countRows(t, pool, "SELECT count(*) FROM calls WHERE NOT erased OR turns::text <> '[]'"); got != 0 {
		t.Errorf("calls that still have their words = %d, want 0", got)
	}
	if got := countRows(t, pool, "SELECT count(*) FROM erasures WHERE phone_e164 IS NOT NULL"); got != 0 {
		t.Errorf("erasures that keep the number = %d, want 0", got)
	}
	rows, err := pool.Query(t.Context(), "SELECT payload FROM outbox WHERE topic = 'erasure-reports.v1' ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]int{}
	for i, payload := range payloads {
		var report eventv1.ErasureReport
		if err := proto.Unmarshal(payload, &report); err != nil {
			t.Fatal(err)
		}
		if got, want := report.GetStepDone().GetMore(), i < len(payloads)-1; got != want {
			t.Errorf("report %d of %d: more = %v, want %v", i+1, len(payloads), got, want)
		}
		for _, next := range report.GetStepDone().GetNext() {
			reported[next.GetRef()]++
		}
	}
	if len(reported) != calls {
		t.Errorf("calls reported = %d, want %d", len(reported), calls)
	}
	for id, times := range reported {
		if times != 1 {
			t.Fatalf("call %s was reported %d times, want 1", id, times)
		}
	}
	if got := countRows(t, pool, "SELECT count(*) FROM outbox WHERE topic = 'dial-events.v1'"); got != calls {
		t.Errorf("erased events = %d, want %d", got, calls)
	}
}

// The consumer runs OrderErasure in its transaction. If OrderErasure read many calls, it would
// delay later records.
func TestOrderErasure_DoesNotReadTheCallsOfTheNumber(t *testing.T) {
	t.Parallel()
	const number, calls = "+14155550112", 100_000
	pool := newPool(t)
	workspace := uuid.Must(uuid.NewV7())
	addInboundCalls(t, pool, workspace, number, calls)
	watchedPool, watched := pgtest.Watch(t, pool)
	st := newStore(watchedPool)
	e := store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace}
	runTx(t, watchedPool, func(tx pgx.Tx) error { return st.OrderErasure(t.Context(), tx, number, e) })
	pages, plans := watched.Pages(t, pgtest.GenericPlan)
	if pages > 30 {
		t.Errorf("pages read by the order = %d, want at most 30; plans:\n%s", pages, plans)
	}
	if got := countRows(t, pool, "SELECT count(*) FROM calls WHERE erased"); got != 0 {
		t.Errorf("calls erased by the order = %d, want 0", got)
	}
}

// The consumer fails if a record waits a second for a lock that the erasure job holds.
func TestOrderErasure_RunningJobDoesNotDelayOtherRecords(t *testing.T) {
	t.Parallel()
	const number, limit = "+14155550113", 200
	calls := 2_000
	if *large {
		calls = 100_000
	}
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	addInboundCalls(t, pool, workspace, number, calls)
	order := func(number string, e store.Erasure) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1s'"); err != nil {
				return err
			}
			return st.OrderErasure(t.Context(), tx, number, e)
		})
	}
	of := func() store.Erasure { return store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace} }
	if err := order(number, of()); err != nil {
		t.Fatalf("OrderErasure: %v", err)
	}
	erased := make(chan error, 1)
	go func() {
		for left := true; left; {
			if _, err := st.EraseNextCalls(t.Context(), limit); err != nil {
				erased <- err
				return
			}
			const unfinished = "SELECT EXISTS (SELECT FROM erasures WHERE phone_e164 = $1)"
			if err := pool.QueryRow(t.Context(), unfinished, number).Scan(&left); err != nil {
				erased <- err
				return
			}
		}
		erased <- nil
	}()
	other := of() // always the same erasure, so at most one of its steps is due
	records, longest := 0, time.Duration(0)
	for running := true; running; records++ {
		began := time.Now()
		if err := order("+14155550114", other); err != nil {
			t.Fatalf("record %d during the job: %v", records, err)
		}
		longest = max(longest, time.Since(began))
		select {
		case err := <-erased:
			if err != nil {
				t.Fatalf("erase calls: %v", err)
			}
			running = false
		default:
		}
	}
	// Only the run with -large checks the time, because `make test` asserts no times.
	if *large && longest > time.Second {
		t.Errorf("longest record beside the erasure = %s, want at most 1 s", longest)
	}
	t.Logf("%d records beside the erasure of %d calls; the longest took %s", records, calls, longest)
	if got := countRows(t, pool, "SELECT count(*) FROM calls WHERE NOT erased"); got != 0 {
		t.Errorf("calls that are not erased = %d, want 0", got)
	}
}
