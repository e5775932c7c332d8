package reconciling_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/dialer/internal/reconciling"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/migrations"
)

// TestReconcile_LeakIsCounted leaks one slot on purpose: it is given back, counted once, and whoever waits for room is told.
func TestReconcile_LeakIsCounted(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: migrations.FS})
	st := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{ClaimLease: time.Minute})
	metrics, freed := prometheus.NewRegistry(), 0
	r := reconciling.New(st, func() { freed++ }, metrics)
	leaked := func() (n float64) {
		t.Helper()
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "ringfence_dialer_leaked_slots_total" {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
	reconcile := func(want float64, wantFreed int) {
		t.Helper()
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := leaked(); got != want {
			t.Errorf("leaked: got = %v, want %v", got, want)
		} else if freed != wantFreed {
			t.Errorf("leaked: freed = %v, want %v", freed, wantFreed)
		}
	}
	reconcile(0, 0)
	if _, err := pool.Exec(t.Context(), "INSERT INTO slots (call_request_id, workspace_id, trunk) VALUES (gen_random_uuid(), gen_random_uuid(), 'sim')"); err != nil {
		t.Fatal(err)
	}
	reconcile(1, 1)
	reconcile(1, 1)
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM slots").Scan(&n); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if n != 0 {
		t.Errorf("n = %v, want 0", n)
	}
}
