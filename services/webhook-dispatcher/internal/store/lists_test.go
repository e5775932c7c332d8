package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Only the three oldest deliveries have the rare statuses, the rare event type and the searched
// call. A list makes up to 7 index searches in each of 42 partitions, and may read at most maxPages
// pages.
const (
	insertedDeliveries = 30_000
	maxPages           = 3000
)

const seedDeliveries = `
INSERT INTO deliveries (id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status,
    done_at)
SELECT gen_random_uuid(), now() - (@many::int - n) * interval '90 seconds', @workspace, @sub, gen_random_uuid(),
    CASE WHEN n < 4 THEN 'call.busy' ELSE 'call.completed' END,
    CASE WHEN n < 4 THEN @call::uuid ELSE gen_random_uuid() END, 1,
    CASE WHEN n = 1 THEN 'queued' WHEN n = 2 THEN 'failed' WHEN n = 3 THEN 'skipped'
        ELSE 'delivered' END, CASE WHEN n > 1 THEN now() END
FROM generate_series(1, @many::int) n`

func TestDeliveries_EveryFilterReadsFewDatabasePages(t *testing.T) {
	t.Parallel()
	r, ws, call := newFixture(t), uuid.New(), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	if _, err := r.store.AddDays(t.Context(), today.AddDate(0, 0, -38), today.AddDate(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Owner(t, r.pool, schema)
	if _, err := owner.Exec(
		t.Context(),
		seedDeliveries,
		pgx.NamedArgs{"workspace": ws, "sub": sub, "call": call, "many": insertedDeliveries},
	); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) deliveries"); err != nil {
		t.Fatal(err)
	}
	watched, seen := pgtest.Watch(t, r.pool)
	st := store.New(watched, box(t))
	for name, tt := range map[string]struct {
		filter store.Filter
		want   int
	}{
		"nothing":                      {want: 26},
		"the common status":            {store.Filter{Status: deliveries.Delivered}, 26},
		"a rare status":                {store.Filter{Status: deliveries.Failed}, 1},
		"queued":                       {store.Filter{Status: deliveries.Queued}, 1},
		"held":                         {store.Filter{Status: deliveries.Held}, 0},
		"the common type":              {store.Filter{EventType: "call.completed"}, 26},
		"a rare type":                  {store.Filter{EventType: "call.busy"}, 3},
		"a type without deliveries":    {store.Filter{EventType: "webhook.test"}, 0},
		"a rare status of a type":      {store.Filter{EventType: "call.busy", Status: deliveries.Skipped}, 1},
		"a status that a type has not": {store.Filter{EventType: "call.completed", Status: deliveries.Failed}, 0},
		"a call":                       {store.Filter{CallID: &call}, 3},
		"a call and a status":          {store.Filter{CallID: &call, Status: deliveries.Failed}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen.Forget()
			rows, err := st.Deliveries(t.Context(), ws, sub, tt.filter, page.Request{Limit: 25})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "deliveries", len(rows), tt.want)
			if _, err := st.NewestAttempts(t.Context(), false, rows...); err != nil {
				t.Fatal(err)
			}
			for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
				n, _ := seen.Pages(t, mode)
				if n > maxPages {
					t.Errorf("%s: pages = %d, want at most %d", mode, n, maxPages)
				}
			}
		})
	}
}
