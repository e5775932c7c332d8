package store_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/seal"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/migrations"
)

const schema = "webhook_dispatcher"

// crowd adds @subs subscriptions with @each open deliveries each. Four of five subscriptions are paused
// and theirs are held. Every second call has an event that waits for an earlier one.
const crowd = `
WITH sub AS (
    INSERT INTO webhook_subscription (id, workspace_id, name, url, events, status, secret_sealed, secret_last4)
    SELECT format('00000000-0000-7000-8000-%s', lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'a',
           format('https://example.com/%s', n), '{call.completed}',
           CASE WHEN n % 5 = 0 THEN 'active' ELSE 'paused' END, 'x', 'aaaa'
    FROM generate_series(1, @subs::int) n
    RETURNING id, workspace_id, status
), event AS (
    INSERT INTO webhook_event (id, created_at, workspace_id, type, sequence, body)
    SELECT sub.id, now(), sub.workspace_id, 'call.completed', 1, '{}' FROM sub
    RETURNING id, created_at
)
INSERT INTO webhook_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, attempt, is_retry, due_at, held)
SELECT gen_random_uuid(), event.created_at, sub.workspace_id, sub.id, event.id, 'call.completed',
       format('00000000-0000-7000-a000-%s', lpad(to_hex(n / 2), 12, '0'))::uuid, n, 0, n % 10 = 0,
       now() - n * interval '1 second', sub.status = 'paused'
FROM sub JOIN event USING (id) CROSS JOIN generate_series(1, @each::int) n`

func crowded(t *testing.T, subs, each int) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: migrations.FS})
	owner := pgtest.Owner(t, pool, schema)
	if _, err := owner.Exec(t.Context(), crowd, pgx.NamedArgs{"subs": subs, "each": each}); err != nil {
		t.Fatal(err)
	}
	const analyze = `VACUUM (ANALYZE) webhook_queue, webhook_subscription, webhook_event`
	if _, err := owner.Exec(t.Context(), analyze); err != nil {
		t.Fatal(err)
	}
	return pool
}

func box(t *testing.T) *seal.Box {
	t.Helper()
	keys, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func mustClaim(t testing.TB, st *store.Store, claim store.Claim) []delivery.Work {
	t.Helper()
	work, err := st.ClaimDue(t.Context(), claim)
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	return work
}

// What a look and a claim read follows from what they ask for, however much waits behind it and is held.
func TestClaim_ReadsWhatItTakesAndLittleMore(t *testing.T) {
	t.Parallel()
	pool := crowded(t, 5000, 16)
	told, seen := pgtest.Watch(t, pool)
	st := store.New(told, box(t))
	bounded := func(what string, most int) {
		t.Helper()
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			pages, plans := seen.Pages(t, mode)
			if pages == 0 {
				t.Errorf("%s, %s: 0 pages were read, want some", what, mode)
			}
			if pages > most {
				t.Errorf("%s, %s: %d pages were read, want at most %d\n%s", what, mode, pages, most, plans)
			}
			if strings.Contains(plans, `"Seq Scan"`) {
				t.Errorf("%s, %s: sequential scan, want none\n%s", what, mode, plans)
			}
		}
		seen.Forget()
	}
	lanes, next, err := st.DueLanes(t.Context(), uuid.Nil, 256, 5)
	if err != nil {
		t.Fatalf("DueLanes: %v", err)
	}
	if len(lanes) != 256 {
		t.Fatalf("lanes = %d, want 256", len(lanes))
	}
	wantEqual(t, "where the walk goes on", next, lanes[255].SubscriptionID)
	wantEqual(t, "first attempts of the first lane are due", lanes[0].First, true)
	wantEqual(t, "retries of the first lane are due", lanes[0].Retry, true)
	bounded("a look at 256 subscriptions", 256*20)

	claim := store.Claim{Lease: time.Minute, Attempts: 5, Room: []store.Room{{SubscriptionID: lanes[100].SubscriptionID, Total: 1, Retries: 1}}}
	wantEqual(t, "deliveries of a claim of one", len(mustClaim(t, st, claim)), 1)
	bounded("a claim of one", 60)

	claim.Room = nil
	for _, lane := range lanes[:32] {
		claim.Room = append(claim.Room, store.Room{SubscriptionID: lane.SubscriptionID, Total: 8, Retries: 4})
	}
	wantEqual(t, "deliveries of a claim of 32 windows", len(mustClaim(t, st, claim)), 256)
	bounded("a claim of 256", 256*35)
}

// left are first tries of one subscription: many that were due an hour ago, one a minute ago, and those of the last moment.
const left = `
INSERT INTO webhook_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, due_at)
SELECT gen_random_uuid(), now(), @ws, @sub, gen_random_uuid(), 'call.completed', 1, now() - age
FROM (SELECT interval '1 hour' + n * interval '1 ms' FROM generate_series(1, 20000) n
      UNION ALL SELECT interval '1 minute'
      UNION ALL SELECT n * interval '1 ms' FROM generate_series(1, 64) n) AS due (age)`

// What was claimed stays in the index until a vacuum.
func TestClaim_StepsOverWhatEarlierOnesLeft(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	told, seen := pgtest.Watch(t, r.pool)
	st, sub := store.New(told, box(t)), r.subscribe(ws, "call.completed")
	if _, err := pgtest.Owner(t, r.pool, schema).Exec(t.Context(), "ALTER TABLE webhook_queue SET (autovacuum_enabled = false)"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{left, "DELETE FROM webhook_queue WHERE workspace_id = @ws AND subscription_id = @sub AND due_at < now() - interval '50 minutes'"} {
		if _, err := r.pool.Exec(t.Context(), sql, pgx.NamedArgs{"ws": ws, "sub": sub}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(within time.Duration) (pages int) {
		t.Helper()
		seen.Forget()
		room := store.Room{SubscriptionID: sub, Total: 1, Within: within}
		work := mustClaim(t, st, store.Claim{Lease: time.Minute, Attempts: 5, Room: []store.Room{room}})
		wantEqual(t, "deliveries of a claim of one", len(work), 1)
		pages, _ = seen.Pages(t, pgtest.GenericPlan)
		return pages
	}
	const old = "SELECT count(*) FROM webhook_queue WHERE due_at < now() - interval '30 seconds'"
	near := claim(30 * time.Second)
	if n := r.count(old); n != 1 {
		t.Errorf("a claim within half a minute left %d of the one older", n)
	}
	far := claim(0)
	if n := r.count(old); n != 0 {
		t.Errorf("a claim from the beginning left %d of the oldest", n)
	}
	if near == 0 {
		t.Error("a claim within half a minute reads 0 pages, want some")
	}
	if far < 4*near {
		t.Errorf("a claim within half a minute reads %d pages, want at most a fourth of %d", near, far)
	}
}

func TestClaim_WalksEverySubscriptionOnce(t *testing.T) {
	t.Parallel()
	st := store.New(crowded(t, 5000, 2), box(t))
	var seen []uuid.UUID
	var after uuid.UUID
	for steps := 1; ; steps++ {
		lanes, next, err := st.DueLanes(t.Context(), after, 256, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, lane := range lanes {
			seen = append(seen, lane.SubscriptionID)
		}
		if after = next; next == uuid.Nil {
			if steps != 4 {
				t.Errorf("%d looks, want 4 of 256 steps each", steps)
			}
			break
		}
	}
	sorted := slices.IsSortedFunc(seen, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	wantEqual(t, "the walk is sorted", sorted, true)
	wantEqual(t, "subscriptions in the walk", len(seen), 1000)
	wantEqual(t, "different subscriptions in the walk", len(slices.Compact(seen)), 1000)
}

func TestRelease_CountsNoAttemptAndKeepsItsPlace(t *testing.T) {
	t.Parallel()
	pool := crowded(t, 5, 12)
	st := store.New(pool, box(t))
	lanes, _, err := st.DueLanes(t.Context(), uuid.Nil, 1, 5)
	if err != nil {
		t.Fatalf("DueLanes: %v", err)
	}
	if len(lanes) != 1 {
		t.Fatalf("lanes = %d, want 1", len(lanes))
	}
	claim := store.Claim{Lease: time.Minute, Attempts: 5, Room: []store.Room{{SubscriptionID: lanes[0].SubscriptionID, Total: 3, Retries: 1}}}
	first := mustClaim(t, st, claim)
	if len(first) != 3 {
		t.Fatalf("claimed deliveries = %d, want 3", len(first))
	}
	if _, err := pool.Exec(t.Context(), `UPDATE webhook_queue SET attempt = 2 WHERE delivery_id = @id`, pgx.NamedArgs{"id": first[0].DeliveryID}); err != nil {
		t.Fatal(err)
	}
	if err := st.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	claim.Room[0].Total = 2
	again := mustClaim(t, st, claim)
	ids := func(work []delivery.Work) (ids []string) {
		for _, w := range work {
			ids = append(ids, w.DeliveryID.String())
			if w.Attempt != 1 {
				t.Errorf("attempt %d of %s, want 1", w.Attempt, w.DeliveryID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	if want, got := ids(first[1:]), ids(again); !slices.Equal(want, got) {
		t.Errorf("claimed again %v, want %v: what was given back, less what somebody else has", got, want)
	}
}

// A row that slipped in unheld beside a pause is found by nobody, whatever its held says.
func TestClaim_AsksAgainWhoMayReceive(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{
		"paused":    `UPDATE webhook_subscription SET status = 'paused'`,
		"failed":    `UPDATE webhook_subscription SET status = 'failed', failed_at = now(), failed_reason = 'x'`,
		"deleted":   `UPDATE webhook_subscription SET deleted_at = now()`,
		"suspended": `INSERT INTO workspace (id, version, suspended) SELECT workspace_id, 1, true FROM webhook_subscription`,
		"active":    `INSERT INTO workspace (id, version, suspended) SELECT workspace_id, 1, false FROM webhook_subscription`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ws := newRig(t), uuid.New()
			sub, want := r.subscribe(ws, "call.completed"), 0
			if name == "active" {
				want = 1
			}
			r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
			if _, err := r.pool.Exec(t.Context(), stop); err != nil {
				t.Fatal(err)
			}
			lanes, _, err := r.store.DueLanes(t.Context(), uuid.Nil, 256, 5)
			if err != nil {
				t.Fatalf("DueLanes: %v", err)
			}
			wantEqual(t, "lanes", len(lanes), want)
			claim := store.Claim{Lease: time.Minute, Attempts: 5, Room: []store.Room{{SubscriptionID: sub, Total: 8, Retries: 4}}}
			wantEqual(t, "claimed deliveries", len(mustClaim(t, r.store, claim)), want)
		})
	}
}
