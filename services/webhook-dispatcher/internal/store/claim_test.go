package store_test

import (
	"context"
	"encoding/base64"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const schema = "webhook_dispatcher"

var large = flag.Bool("large", false, "test with queues of 1,000,000 deliveries, as in make test-nightly")

func queueLength() int {
	if *large {
		return 1_000_000
	}
	return 20_000
}

// insertCrowd inserts @subs subscriptions with @each due deliveries each. Four of five
// subscriptions are paused. Each pair of consecutive deliveries belongs to one call, so the second
// delivery of a pair waits for the first delivery.
const insertCrowd = `
WITH sub AS (
    INSERT INTO subscriptions (id, workspace_id, name, url, events, status, secret_sealed, secret_last4)
    SELECT format('00000000-0000-7000-8000-%s', lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'a',
           format('https://example.com/%s', n), '{call.completed}',
           CASE WHEN n % 5 = 0 THEN 'active' ELSE 'paused' END, 'x', 'aaaa'
    FROM generate_series(1, @subs::int) n
    RETURNING id, workspace_id, status
), event AS (
    INSERT INTO events (id, created_at, workspace_id, type, sequence, body)
    SELECT sub.id, now(), sub.workspace_id, 'call.completed', 1, '{}' FROM sub
    RETURNING id, created_at
)
INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id,
	sequence,
                           attempt, is_retry, due_at)
SELECT gen_random_uuid(), event.created_at, sub.workspace_id, sub.id, event.id, 'call.completed',
       format('00000000-0000-7000-a000-%s', lpad(to_hex(n / 2), 12, '0'))::uuid, n, 0, n % 10 = 0,
       now() - @age::interval - n * interval '1 second'
FROM sub JOIN event USING (id) CROSS JOIN generate_series(1, @each::int) n`

func newCrowd(t *testing.T, subs, each int, age string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	owner := pgtest.Owner(t, pool, schema)
	if _, err := owner.Exec(t.Context(), insertCrowd, pgx.NamedArgs{"subs": subs, "each": each, "age": age}); err != nil {
		t.Fatal(err)
	}
	const analyze = `VACUUM (ANALYZE) delivery_queue, subscriptions, events`
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

func mustClaim(t testing.TB, st *store.Store, claim store.Claim) []deliveries.Work {
	t.Helper()
	claimed, err := st.ClaimDue(t.Context(), claim)
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	return claimed.Work
}

func claimOf(sub uuid.UUID, n int) store.Claim {
	quota := store.Quota{SubscriptionID: sub, Total: n, Retries: n}
	return store.Claim{Lease: time.Minute, Attempts: 5, Quotas: []store.Quota{quota}}
}

func wantAtMost(t testing.TB, what string, got, most int64) {
	t.Helper()
	if got > most {
		t.Errorf("%s = %d, want at most %d", what, got, most)
	}
}

func (m *meteredStore) listDue(after uuid.UUID, limit int) []store.Due {
	m.t.Helper()
	due, _, err := m.ListDue(m.t.Context(), after, limit)
	if err != nil {
		m.t.Fatalf("ListDue: %v", err)
	}
	return due
}

func (m *meteredStore) poll(after time.Time) store.Polled {
	m.t.Helper()
	polled, err := m.PollDue(m.t.Context(), store.Poll{
		After: store.Position{DueAt: after}, ChangedSince: after, Limit: 1000,
	})
	if err != nil {
		m.t.Fatalf("PollDue: %v", err)
	}
	return polled
}

func TestClaim_ReadsFewDatabasePagesPerDelivery(t *testing.T) {
	t.Parallel()
	m := newMeteredStore(t, newCrowd(t, 5000, 16, "0 s"))
	var due []store.Due
	wantAtMost(t, "pages read to list 256 subscriptions", m.pagesBy(func() { due = m.listDue(uuid.Nil, 256) }), 256*20)
	// each subscription is listed once for its first attempts and once for its retries
	wantEqual(t, "listed kinds of due deliveries", len(due), 512)
	wantEqual(t, "url of the first subscription", due[0].URL, "https://example.com/5")

	one := m.pagesBy(func() {
		claim := claimOf(due[200].SubscriptionID, 1)
		wantEqual(t, "deliveries of a claim of one", len(mustClaim(t, m.Store, claim)), 1)
	})
	wantAtMost(t, "pages read by a claim of one delivery", one, 120)

	claim := store.Claim{Lease: time.Minute, Attempts: 5}
	for i := range 32 {
		claim.Quotas = append(claim.Quotas, store.Quota{SubscriptionID: due[2*i].SubscriptionID, Total: 8, Retries: 4})
	}
	many := m.pagesBy(func() {
		wantEqual(t, "deliveries of a claim of 32 subscriptions", len(mustClaim(t, m.Store, claim)), 256)
	})
	wantAtMost(t, "pages read by a claim of 256 deliveries", many, 256*60)
}

// Of 10,000 subscriptions with due deliveries, one is active and the others are paused.
func TestPoll_DoesNotReadDeliveriesOfPausedSubscriptions(t *testing.T) {
	t.Parallel()
	pool := newCrowd(t, 10_000, 2, "1 hour")
	const rest = `UPDATE subscriptions SET status = 'paused' WHERE id > '00000000-0000-7000-8000-000000000005'`
	if _, err := pgtest.Owner(t, pool, schema).Exec(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	m := newMeteredStore(t, pool)
	now, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.poll(now) // the first poll also reads the catalog of Postgres, so this poll is not measured
	idle := m.pagesBy(func() { wantEqual(t, "due subscriptions", len(m.poll(now.Add(-5*time.Second)).Due), 0) })
	wantAtMost(t, "pages read by a poll", idle, 40)
	list := m.pagesBy(func() {
		wantEqual(t, "listed kinds of due deliveries of the active subscription", len(m.listDue(uuid.Nil, 256)), 1)
	})
	// The index of active subscriptions may still contain entries of the 1,999 subscriptions that
	// this test paused.
	wantAtMost(t, "pages read by a list of the active subscriptions", list, 2200)
}

func TestSubscriptionStatus_ChangesDoNotReadTheQueue(t *testing.T) {
	t.Parallel()
	r, ws, other := newFixture(t), uuid.New(), uuid.New()
	sub, neighbor := r.subscribe(ws, "call.completed"), r.subscribe(other, "call.completed")
	r.setWorkspace(store.Workspace{ID: ws, Version: 1, Webhooks: true})
	addQueue(t, r.pool, ws, sub, queueLength())
	m := newMeteredStore(t, r.pool)
	version := int64(1)
	setStatus := func(status subscriptions.Status) func() {
		return func() {
			if _, err := m.Change(t.Context(), ws, sub, store.Change{Status: &status}); err != nil {
				t.Errorf("Change to %s: %v", status, err)
			}
		}
	}
	setSuspended := func(suspended bool) func() {
		return func() {
			version++
			w := store.Workspace{ID: ws, Version: version, Suspended: suspended, Webhooks: true}
			if err := m.ApplyWorkspace(t.Context(), w); err != nil {
				t.Errorf("ApplyWorkspace(%+v): %v", w, err)
			}
		}
	}
	disable := func() {
		if _, _, err := m.Disable(t.Context(), sub, subscriptions.FailureRule{}); err != nil {
			t.Errorf("Disable: %v", err)
		}
	}
	claims := func(want int) func() {
		return func() { wantEqual(t, "claimed deliveries", len(mustClaim(t, m.Store, claimOf(sub, 4))), want) }
	}
	ingest := func() {
		err := pg.InPipeline(t.Context(), m.pool, func(tx *pg.Pipeline) error {
			_, err := m.Ingest(t.Context(), tx,
				event(ws, uuid.New(), 1, "call.completed"), event(other, uuid.New(), 1, "call.completed"))
			return err
		})
		if err != nil {
			t.Errorf("Ingest: %v", err)
		}
	}
	// the first ingest also prepares statements and reads the catalog of Postgres, so it is not
	// measured
	ingest()
	for _, step := range []struct {
		name   string
		action func()
		most   int64
	}{
		{name: "pause", action: setStatus(subscriptions.Paused), most: 60},
		{name: "ingest while paused", action: ingest, most: 100},
		{name: "claim while paused", action: claims(0), most: 60},
		{name: "resume", action: setStatus(subscriptions.Active), most: 60},
		{name: "claim after the resumption", action: claims(4), most: 200},
		{name: "suspend", action: setSuspended(true), most: 60},
		{name: "claim while suspended", action: claims(0), most: 60},
		{name: "ingest while suspended", action: ingest, most: 100},
		{name: "end of the suspension", action: setSuspended(false), most: 60},
		{name: "claim after the suspension", action: claims(4), most: 200},
		{name: "disable", action: disable, most: 60},
		{name: "claim while failed", action: claims(0), most: 60},
	} {
		wantAtMost(t, "pages read by "+step.name, m.pagesBy(step.action), step.most)
	}
	const queued = `SELECT count(*) FROM delivery_queue WHERE subscription_id = $1`
	wantEqual(t, "queued deliveries of the neighbor", r.count(queued, neighbor), 3)
}

// Another transaction locks every queued delivery of the subscription. If a change of the status
// waited for such a lock, the statement timeout would cancel the change.
func TestSubscriptionStatus_ChangeDoesNotWaitForLockedDeliveries(t *testing.T) {
	t.Parallel()
	r, ws, other := newFixture(t), uuid.New(), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	r.subscribe(other, "call.completed")
	addQueue(t, r.pool, ws, sub, 1000)
	lock, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), `SELECT FROM delivery_queue FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	set := func(status subscriptions.Status) func() error {
		return func() error { return r.setStatus(ws, sub, status) }
	}
	for _, step := range []struct {
		name   string
		action func() error
	}{
		{name: "pause", action: set(subscriptions.Paused)},
		{name: "resume", action: set(subscriptions.Active)},
		{name: "suspend", action: func() error {
			return r.store.ApplyWorkspace(t.Context(), store.Workspace{ID: ws, Version: 1, Suspended: true, Webhooks: true})
		}},
		{name: "disable", action: func() error {
			_, disabled, err := r.store.Disable(t.Context(), sub, subscriptions.FailureRule{})
			wantEqual(t, "disabled", disabled, true)
			return err
		}},
		{name: "delete", action: func() error { return r.store.Delete(t.Context(), ws, sub) }},
	} {
		if err := step.action(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"), event(other, uuid.New(), 1, "call.completed"))
	}
}

// entriesRead counts the index entries of the queue that all sessions have read, including entries
// of deleted rows.
const entriesRead = `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'delivery_queue'`

// A vacuum does not remove the queue rows of sent deliveries while another transaction has an old
// snapshot. After 4,000 sent deliveries, a poll and a claim must not read more than after 400.
func TestClaim_DoesNotReadMoreWithMoreDeadRows(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	snapshot, err := pgtest.Owner(t, r.pool, schema).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := snapshot.Exec(t.Context(), `SELECT FROM delivery_queue`); err != nil {
		t.Fatal(err)
	}
	m := newMeteredStore(t, r.pool)
	polledTo, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const batch = 40
	round := func() (entries int64) {
		t.Helper()
		var events []deliveries.Event
		for range batch {
			events = append(events, event(ws, uuid.New(), 1, "call.completed"))
		}
		r.ingest(nil, events...)
		before := m.read(entriesRead)
		polled := m.poll(polledTo)
		polledTo = polled.Next.DueAt
		if len(polled.Due) != 1 {
			t.Fatalf("due subscriptions = %d, want 1", len(polled.Due))
		}
		claim := claimOf(sub, batch)
		claim.Quotas[0].FirstFrom = polled.Due[0].From
		claimed, err := m.ClaimDue(t.Context(), claim)
		if err != nil {
			t.Fatalf("ClaimDue: %v", err)
		}
		entries = m.read(entriesRead) - before
		if len(claimed.Work) != batch {
			t.Fatalf("claimed deliveries = %d, want %d", len(claimed.Work), batch)
		}
		results := make([]deliveries.Result, batch)
		for i, w := range claimed.Work {
			results[i] = deliveries.Result{
				DeliveryID: w.DeliveryID, Attempt: w.Attempt, Outcome: deliveries.OutcomeDelivered,
				Response: deliveries.Response{Code: 200, At: time.Now()},
			}
		}
		done, err := m.Complete(t.Context(), results)
		if err != nil {
			t.Fatalf("Complete: %v", err)
		}
		wantEqual(t, "settled results", done.Settled, batch)
		return entries
	}
	var early, late int64
	for i := range 100 {
		if i == 50 { // new statistics must not change the plan
			if _, err := pgtest.Owner(t, r.pool, schema).Exec(t.Context(), "ANALYZE delivery_queue"); err != nil {
				t.Fatalf("analyze the queue: %v", err)
			}
		}
		entries := round()
		if i < 10 {
			early = max(early, entries)
		}
		if i >= 90 {
			late = max(late, entries)
		}
	}
	wantAtMost(t, "index entries read by a poll and a claim after 4,000 deliveries", late, 2*early)
}

// The process that claimed the last attempt ended without a result.
func TestClaim_ReturnsALostDeliveryUnlessItsSubscriptionIsPaused(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	const last = `UPDATE delivery_queue SET attempt = 5, due_at = now() - interval '1 second'`
	if _, err := r.pool.Exec(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := r.setStatus(ws, sub, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "claimed deliveries while paused", len(r.claimAll(sub)), 0)
	if err := r.setStatus(ws, sub, subscriptions.Active); err != nil {
		t.Fatal(err)
	}
	work := r.claimAll(sub)
	if len(work) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(work))
	}
	wantEqual(t, "the delivery is lost", work[0].Lost, true)
	wantEqual(t, "attempt", work[0].Attempt, 5)
}

func TestClaim_ReturnsTheRemainingDueDeliveries(t *testing.T) {
	t.Parallel()
	r, ws, call := newFixture(t), uuid.New(), uuid.New()
	sub, empty := r.subscribe(ws, "call.ringing", "call.completed"), r.subscribe(uuid.New(), "call.completed")
	r.ingest(nil, event(ws, call, 1, "call.ringing"), event(ws, call, 2, "call.completed"))
	claim := claimOf(sub, 8)
	claim.Quotas = append(claim.Quotas, store.Quota{SubscriptionID: empty, Total: 8})
	claimed, err := r.store.ClaimDue(t.Context(), claim)
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	wantEqual(t, "claimed deliveries: the second event waits for the first", len(claimed.Work), 1)
	left := map[uuid.UUID]store.Remaining{}
	for _, of := range claimed.Remaining {
		left[of.SubscriptionID] = of
	}
	wantEqual(t, "a first attempt is left", left[sub].First != nil, true)
	wantEqual(t, "a retry is left", left[sub].Retry != nil, false)
	wantEqual(t, "a first attempt of the other subscription is left", left[empty].First != nil, false)
}

func TestListDue_ReturnsEveryActiveSubscriptionOnce(t *testing.T) {
	t.Parallel()
	st := store.New(newCrowd(t, 5000, 2, "0 s"), box(t))
	seen := map[uuid.UUID]int{}
	calls := 0
	for after, more := uuid.Nil, true; more; calls++ {
		due, next, err := st.ListDue(t.Context(), after, 256)
		if err != nil {
			t.Fatalf("ListDue: %v", err)
		}
		for _, d := range due {
			seen[d.SubscriptionID]++
		}
		after, more = next, next != uuid.Nil
	}
	wantEqual(t, "calls of 256 subscriptions each", calls, 4)
	wantEqual(t, "active subscriptions", len(seen), 1000)
	for id, n := range seen {
		if n != 1 {
			t.Errorf("subscription %s was listed %d times, want 1", id, n)
		}
	}
}

// When the statistics were collected, the queue contained only retries of one subscription. So the
// planner expects these retries at the start of the index that polls use. But that index now starts
// with 4,000 retries of other subscriptions.
func TestDueStatements_UseTheIndexOfTheSubscription(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	owner := pgtest.Owner(t, r.pool, schema)
	const retries = `
		INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence,
		                           is_retry, due_at)
		SELECT gen_random_uuid(), now(), gen_random_uuid(), $1, gen_random_uuid(), 'call.completed', 1, true,
		       now() - interval '2 hours' + n * interval '1 second'
		FROM generate_series(1, $2::int) n`
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{sql: retries, args: []any{sub, 100}},
		{sql: `ANALYZE delivery_queue`},
		{sql: `DELETE FROM delivery_queue`},
		{sql: retries, args: []any{uuid.New(), 4000}},
		{sql: retries, args: []any{sub, 10}},
		{sql: `UPDATE delivery_queue SET due_at = now() WHERE subscription_id = $1`, args: []any{sub}},
	} {
		if _, err := owner.Exec(t.Context(), step.sql, step.args...); err != nil {
			t.Fatalf("%s: %v", step.sql, err)
		}
	}
	m := newMeteredStore(t, r.pool)
	before := m.read(entriesRead)
	due := m.listDue(uuid.Nil, 256)
	wantAtMost(t, "index entries read by ListDue", m.read(entriesRead)-before, 400)
	wantEqual(t, "listed kinds of due deliveries", len(due), 1)

	before = m.read(entriesRead)
	backlog, err := m.CountBacklog(t.Context(), []store.Quota{{SubscriptionID: sub}}, 1000)
	if err != nil {
		t.Fatalf("CountBacklog: %v", err)
	}
	wantAtMost(t, "index entries read by CountBacklog", m.read(entriesRead)-before, 400)
	wantEqual(t, "counted deliveries", backlog.Rows, 10)
}

// The statements must not read deliveries of the same subscription that are due later.
func TestDueStatements_DoNotReadDeliveriesThatAreDueLater(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	const later = `
		INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence,
		                           is_retry, due_at)
		SELECT gen_random_uuid(), now(), $1, $2, gen_random_uuid(), 'call.completed', 1, n % 2 = 0,
		       now() + interval '1 day'
		FROM generate_series(1, $3::int) n`
	if _, err := pgtest.Owner(t, r.pool, schema).Exec(t.Context(), later, ws, sub, queueLength()); err != nil {
		t.Fatal(err)
	}
	addQueue(t, r.pool, ws, sub, 10)
	m := newMeteredStore(t, r.pool)
	quotas := []store.Quota{{SubscriptionID: sub, Total: 5, Retries: 5}}
	wantAtMost(t, "pages read by ListDue", m.pagesBy(func() {
		wantEqual(t, "listed kinds of due deliveries", len(m.listDue(uuid.Nil, 256)), 1)
	}), 40)
	wantAtMost(t, "pages read by CountBacklog", m.pagesBy(func() {
		backlog, err := m.CountBacklog(t.Context(), quotas, 1000)
		if err != nil {
			t.Fatalf("CountBacklog: %v", err)
		}
		wantEqual(t, "counted deliveries", backlog.Rows, 10)
	}), 40)
	wantAtMost(t, "pages read by ClaimDue", m.pagesBy(func() {
		claimed, err := m.ClaimDue(t.Context(), store.Claim{Quotas: quotas, Lease: time.Minute, Attempts: 5})
		if err != nil {
			t.Fatalf("ClaimDue: %v", err)
		}
		wantEqual(t, "claimed deliveries", len(claimed.Work), 5)
		wantEqual(t, "subscriptions with deliveries left", len(claimed.Remaining), 1)
	}), 150)
}

func TestPoll_LongQueueIsReadInSeveralPolls(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	addQueue(t, r.pool, ws, sub, 25)
	var position store.Position
	polls, found := 0, 0
	for more := true; more; polls++ {
		polled, err := r.store.PollDue(t.Context(), store.Poll{
			After: position, ChangedSince: time.Now().Add(time.Hour), Limit: 10,
		})
		if err != nil {
			t.Fatalf("PollDue: %v", err)
		}
		found += len(polled.Due)
		position, more = polled.Next, polled.More
	}
	wantEqual(t, "polls of 10 of 25 deliveries", polls, 3)
	wantEqual(t, "polls that returned the subscription", found, 3)
}

func TestPoll_FindsResumedSubscriptionsAndWorkspaces(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	addQueue(t, r.pool, ws, sub, 1)
	if err := r.setStatus(ws, sub, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}
	m := newMeteredStore(t, r.pool)
	begin, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "due kinds while paused", len(m.poll(begin).Due), 0)
	if err := r.setStatus(ws, sub, subscriptions.Active); err != nil {
		t.Fatal(err)
	}
	resumed := m.poll(begin).Due
	// a resumed subscription is listed for its first attempts and for its retries, without a due
	// time
	if len(resumed) != 2 {
		t.Fatalf("due kinds after the resumption = %d, want 2", len(resumed))
	}
	wantEqual(t, "ResumedAt is set", resumed[0].ResumedAt != nil, true)

	r.setWorkspace(store.Workspace{ID: ws, Version: 1, Suspended: true, Webhooks: true})
	if begin, err = m.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "due kinds while suspended", len(m.poll(begin).Due), 0)
	r.setWorkspace(store.Workspace{ID: ws, Version: 2, Webhooks: true})
	wantEqual(t, "due kinds after the suspension", len(m.poll(begin).Due), 2)
}

func TestCountBacklog_DoesNotCountPausedSubscriptions(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub, paused := r.subscribe(ws, "call.completed"), r.subscribe(ws, "call.completed")
	addQueue(t, r.pool, ws, sub, 30)
	addQueue(t, r.pool, ws, paused, 30)
	if err := r.setStatus(ws, paused, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}
	quotas := []store.Quota{{SubscriptionID: sub}, {SubscriptionID: paused}}
	backlog := func(limit int) store.Backlog {
		t.Helper()
		got, err := r.store.CountBacklog(t.Context(), quotas, limit)
		if err != nil {
			t.Fatalf("CountBacklog: %v", err)
		}
		return got
	}
	got := backlog(1000)
	wantEqual(t, "due deliveries", got.Rows, 30)
	if got.Oldest < 3600 {
		t.Errorf("oldest due delivery has waited %f s, want at least 3600", got.Oldest)
	}
	wantEqual(t, "due deliveries up to a limit", backlog(10).Rows, 10)
	if err := r.setStatus(ws, paused, subscriptions.Active); err != nil {
		t.Fatal(err)
	}
	quotas = quotas[1:]
	got = backlog(1000)
	wantEqual(t, "due deliveries after the resumption", got.Rows, 30)
	if got.Oldest >= 3600 {
		t.Errorf("oldest delivery after the resumption has waited %f s, want the time since then", got.Oldest)
	}
}

func TestRelease_RestoresTheAttemptNumberAndTheDueTime(t *testing.T) {
	t.Parallel()
	pool := newCrowd(t, 5, 12, "0 s")
	m := newMeteredStore(t, pool)
	due := m.listDue(uuid.Nil, 256)
	if len(due) != 2 {
		t.Fatalf("due kinds of deliveries = %d, want 2", len(due))
	}
	first := mustClaim(t, m.Store, claimOf(due[0].SubscriptionID, 3))
	if len(first) != 3 {
		t.Fatalf("claimed deliveries = %d, want 3", len(first))
	}
	if _, err := pool.Exec(t.Context(), `UPDATE delivery_queue SET attempt = 2 WHERE delivery_id = @id`,
		pgx.NamedArgs{"id": first[0].DeliveryID}); err != nil {
		t.Fatal(err)
	}
	if err := m.Release(t.Context(), first); err != nil {
		t.Fatalf("Release: %v", err)
	}
	again := mustClaim(t, m.Store, claimOf(due[0].SubscriptionID, 2))
	ids := func(work []deliveries.Work) (ids []string) {
		for _, w := range work {
			ids = append(ids, w.DeliveryID.String())
			wantEqual(t, "attempt", w.Attempt, 1)
		}
		slices.Sort(ids)
		return ids
	}
	// The first delivery is not released, because another process has claimed it.
	if diff := cmp.Diff(ids(first[1:]), ids(again)); diff != "" {
		t.Errorf("deliveries that were claimed again (-want +got):\n%s", diff)
	}
}

func TestClaim_ObeysTheStatusOfSubscriptionAndWorkspace(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{
		"paused":    `UPDATE subscriptions SET status = 'paused'`,
		"failed":    `UPDATE subscriptions SET status = 'failed', failed_at = now(), failed_reason = 'x'`,
		"deleted":   `UPDATE subscriptions SET deleted_at = now()`,
		"suspended": `INSERT INTO workspaces (id, version, suspended) SELECT workspace_id, 1, true FROM subscriptions`,
		"active":    `INSERT INTO workspaces (id, version, suspended) SELECT workspace_id, 1, false FROM subscriptions`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ws := newFixture(t), uuid.New()
			sub, want := r.subscribe(ws, "call.completed"), 0
			if name == "active" {
				want = 1
			}
			r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
			if _, err := r.pool.Exec(t.Context(), stop); err != nil {
				t.Fatal(err)
			}
			m := newMeteredStore(t, r.pool)
			wantEqual(t, "listed subscriptions", len(m.listDue(uuid.Nil, 256)), want)
			wantEqual(t, "claimed deliveries", len(mustClaim(t, r.store, claimOf(sub, 8))), want)
		})
	}
}
