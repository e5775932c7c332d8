package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pgtest"
)

const manyScheduled = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, max_call_seconds, queued_at, due_at, look_at)
SELECT gen_random_uuid(), $1, 'queued', '+1415' || lpad((n % 9999999)::text, 7, '0'), $1, 600, now(),
	now() + interval '1 day' + n * interval '1 second', now() + interval '1 day' + n * interval '1 second'
FROM generate_series($2::integer, $2::integer + 9999) n`

// TestClaim_ScheduledAheadCostsNothing claims beside 200 000 requests of the same workspace that are not due.
func TestClaim_ScheduledAheadCostsNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	workspace := uuid.Must(uuid.NewV7())
	median := func(first int) time.Duration {
		var took []time.Duration
		for i := range 15 {
			enqueue(t, pool, st, aRequest(workspace, first+i))
			for begun := time.Now(); ; { // the pace of the workspace may make it wait
				start := time.Now()
				if got := claim(t, st, 1); len(got) == 1 {
					took = append(took, time.Since(start))
					break
				}
				if time.Since(begun) > 10*time.Second {
					t.Fatal("nothing was claimed")
				}
			}
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	alone := median(0)
	for from := 1; from <= 200_000; from += 10_000 { // all at once meets the statement timeout on a busy machine
		if _, err := pool.Exec(t.Context(), manyScheduled, workspace, from); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pgtest.Super(t, pool, "dialer").Exec(t.Context(), "ANALYZE dial_queue"); err != nil { // autovacuum's work
		t.Fatal(err)
	}
	beside := median(1000)
	t.Logf("claim alone %s, beside 200 000 scheduled %s", alone, beside)
	if beside > 20*alone+20*time.Millisecond { // a scan would cost far more; a busy machine may double it
		t.Errorf("claim took %s, and %s beside 200 000 scheduled requests", alone, beside)
	}
}
