package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/store"
)

// insertTalkedCalls inserts ended calls of one workspace. The first $2 of these calls wait for
// their analysis. The other calls are already analysed.
const insertTalkedCalls = `
INSERT INTO calls (call_id, call_request_id, workspace_id, agent_id, direction, from_number, to_e164, status, max_call_seconds, deadline_at, answered_at, ended_at, disposition, analyse_at)
SELECT id, id, $1, $1, 'outbound', '+15005550006', '+14155550101', 'completed', 60, now(), now(), now(), 'human', CASE WHEN n <= $2 THEN now() - n * interval '1 ms' END
FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, $2::integer + $3::integer) n) made`

func talk(t *testing.T, pool *pgxpool.Pool, workspace uuid.UUID, due, done int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), insertTalkedCalls, workspace, due, done); err != nil {
		t.Fatal(err)
	}
}

func roomFor(most int, full ...uuid.UUID) store.AnalysisLimits {
	room := store.AnalysisLimits{Total: most, PerWorkspace: 32, Ongoing: map[uuid.UUID]int{}}
	for _, workspace := range full {
		room.Ongoing[workspace] = room.PerWorkspace
	}
	return room
}

func TestDueAnalyses_CostDoesNotGrowWithTheBacklogOfOneWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watchedPool, seen := pgtest.Watch(t, pool)
	st, super := newStore(watchedPool), pgtest.Super(t, pool, "dialer")
	hanging, other := uuid.UUID{1}, uuid.UUID{2}
	pages := func() (most int) {
		t.Helper()
		talk(t, pool, other, 3, 1000)
		if _, err := super.Exec(t.Context(), "VACUUM ANALYZE calls"); err != nil {
			t.Fatal(err)
		}
		seen.Forget()
		due, next, err := st.DueAnalyses(t.Context(), uuid.Nil, roomFor(1, hanging))
		switch {
		case err != nil:
			t.Fatalf("error = %v, want none", err)
		case len(due) != 1:
			t.Fatalf("length of due = %v, want 1", len(due))
		case due[0].WorkspaceID != other:
			t.Fatalf("due[0].WorkspaceID = %v, want %v", due[0].WorkspaceID, other)
		case next != other:
			t.Fatalf("next = %v, want %v", next, other)
		}
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			n, plans := seen.Pages(t, mode)
			if n == 0 {
				t.Fatal("Pages: n = 0, want more")
			}
			if !strings.Contains(plans, "SKIP LOCKED") {
				t.Fatalf(`Pages: plans = %q, want it to contain "SKIP LOCKED"`, plans)
			}
			most = max(most, n)
		}
		return most
	}
	talk(t, pool, hanging, 10, 0)
	few := pages()
	for range 3 {
		talk(t, pool, hanging, 10_000, 0)
	}
	lot := pages()
	t.Logf("a look touches %d pages beside ten calls of a workspace that hangs, %d beside 30 000", few, lot)
	if float64(lot) > 1.5*float64(few) {
		t.Errorf("pages read by DueAnalyses = %d with 10 waiting calls, and %d with 30,000", few, lot)
	}
}

func TestDueAnalyses_OneRoundServesEveryWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	const workspaces, most = 150, 16
	for n := range workspaces {
		talk(t, pool, uuid.UUID{byte(n + 1)}, 1, 0)
	}
	talk(t, pool, uuid.UUID{1}, 2*most, 0)
	var turn uuid.UUID
	var got []byte
	for looks := 0; ; looks++ {
		due, next, err := st.DueAnalyses(t.Context(), turn, roomFor(most))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range due {
			got = append(got, one.WorkspaceID[0])
		}
		if turn = next; turn == uuid.Nil {
			break
		}
		if looks > workspaces {
			t.Fatal("DueAnalyses never returned next = uuid.Nil")
		}
	}
	switch slices.Sort(got); {
	case len(got) != most+workspaces-1:
		t.Errorf("length of got = %v, want %v", len(got), most+workspaces-1)
	case len(slices.Compact(slices.Clone(got))) != workspaces:
		t.Errorf("length of slices.Compact(slices.Clone(got)) = %v, want %v",
			len(slices.Compact(slices.Clone(got))), workspaces)
	case got[most] == 1:
		t.Error("got[most] = 1, want another value")
	}
}
