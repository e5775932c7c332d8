package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

const insertPending = `
INSERT INTO pending_settlements (workspace_id, request_id, reason, billable_seconds)
SELECT $1, gen_random_uuid(), 'canceled', 0 FROM generate_series(1, $2::integer)`

// insertAndDelete inserts and deletes n pending settlements and reads three times. The second read
// finds the next floor (the lowest id that is read). The third read raises the floor, unless an
// earlier transaction is still running.
func insertAndDelete(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspace uuid.UUID, n int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), insertPending, workspace, n); err != nil {
		t.Fatalf("insert outcomes: %v", err)
	}
	unsettled(t, st)
	if _, err := pool.Exec(t.Context(), "DELETE FROM pending_settlements"); err != nil {
		t.Fatalf("delete outcomes: %v", err)
	}
	unsettled(t, st)
	unsettled(t, st)
}

func unsettled(t *testing.T, st *store.Store) []store.Unsettled {
	t.Helper()
	found, err := st.Unsettled(t.Context())
	if err != nil {
		t.Fatalf("Unsettled: %v", err)
	}
	return found
}

// While a transaction has an old snapshot, vacuum cannot remove deleted pending settlements.
func TestUnsettled_SkipsDeletedRowsDuringAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched)
	workspace := wallettest.Workspace(t, st, 0)
	snapshot, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(t.Context()) }()
	for _, sql := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0",
		"SELECT count(*) FROM pending_settlements"} {
		if _, err := snapshot.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	insertAndDelete(t, pool, st, workspace, 20_000)
	// Transactions of other tests on the same server can delay the increase of the floor.
	testkit.Until(t, "the floor rises", func() bool { unsettled(t, st); return st.SettlementFloor() > 20_000 })
	if _, err := pgtest.Super(t, pool, wallettest.Schema).Exec(t.Context(),
		"VACUUM ANALYZE pending_settlements"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{name: "Unsettled", do: func() { unsettled(t, st) }},
		{name: "Settle", do: func() { settle(t, st, workspace) }},
	} {
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			seen.Forget()
			step.do()
			if got, plans := seen.Pages(t, mode); got > 20 {
				t.Errorf("pages of %s = %d, want at most 20; plans:\n%s", step.name, got, plans)
			}
		}
	}
}

// The transaction that inserted the lowest id is the last one that commits.
func TestUnsettled_FindsARowThatCommitsLate(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, 0)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(t.Context()) }()
	outcome := holds.Outcome{WorkspaceID: workspace, RequestID: wallettest.ID(), Reason: holds.Canceled}
	if err := st.EnqueueOutcome(t.Context(), late, outcome); err != nil {
		t.Fatalf("EnqueueOutcome: %v", err)
	}
	insertAndDelete(t, pool, st, workspace, 2000)
	insertAndDelete(t, pool, st, workspace, 2000)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(unsettled(t, st)); got != 1 {
		t.Fatalf("workspaces with outcomes = %d, want 1", got)
	}
	if got := len(settle(t, st, workspace)); got != 1 {
		t.Errorf("settled outcomes = %d, want 1", got)
	}
}
