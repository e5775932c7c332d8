package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// longQueue adds 12,000 open deliveries of ten other subscriptions: 4,000 are held, 4,000 are due and
// 4,000 wait for a retry. Postgres scans the table if no index serves a statement.
const longQueue = `
INSERT INTO webhook_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence,
                           attempt, is_retry, due_at, held)
SELECT gen_random_uuid(), now(), gen_random_uuid(), format('00000000-0000-7000-8000-00000000000%s', n % 10)::uuid,
       gen_random_uuid(), 'call.completed', 1, n % 2, n % 3 = 0,
       now() + CASE WHEN n % 3 = 0 THEN 1 ELSE -1 END * interval '1 minute', n % 3 = 1
FROM generate_series(1, 12000) n`

// rowsRead is the number of rows of the queue that all sessions have read.
const rowsRead = `
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'webhook_queue'`

// meteredStore is a store on one session, which counts the rows of the queue that it reads.
type meteredStore struct {
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool
}

func newMeteredStore(r *rig) *meteredStore {
	r.t.Helper()
	settings := r.pool.Config()
	settings.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(r.t.Context(), settings)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	return &meteredStore{Store: store.New(pool, box(r.t)), t: r.t, pool: pool}
}

func (m *meteredStore) total() (rows int64) {
	m.t.Helper()
	for range 2 { // a session reports its numbers when the statement after the request ends
		if _, err := m.pool.Exec(m.t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.pool.QueryRow(m.t.Context(), rowsRead).Scan(&rows); err != nil {
		m.t.Fatal(err)
	}
	return rows
}

// readBy returns how many rows of the queue the action reads.
func (m *meteredStore) readBy(action func() error) int64 {
	m.t.Helper()
	before := m.total()
	if err := action(); err != nil {
		m.t.Fatal(err)
	}
	return m.total() - before
}

func fillQueue(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	owner := pgtest.Owner(t, pool, schema)
	for _, sql := range []string{longQueue, "ANALYZE webhook_queue, webhook_subscription, workspace"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueue_ChangesReadOnlyTheDeliveriesOfTheirSubscription(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	for range 3 {
		r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	}
	fillQueue(t, r.pool)
	m := newMeteredStore(r)
	version := int64(0)
	setStatus := func(status subscription.Status) func() error {
		return func() error {
			_, err := m.Change(t.Context(), ws, sub, store.Change{Status: &status})
			return err
		}
	}
	setSuspended := func(suspended bool) func() error {
		return func() error {
			version++
			w := store.Workspace{ID: ws, Version: version, Suspended: suspended, Webhooks: true}
			return pg.InTx(t.Context(), m.pool, func(tx pgx.Tx) error {
				_, err := m.SetWorkspace(t.Context(), tx, w)
				return err
			})
		}
	}
	steps := []struct {
		name     string
		action   func() error
		wantHeld int
		wantOpen int
	}{
		{name: "pause", action: setStatus(subscription.Paused), wantHeld: 3, wantOpen: 3},
		{name: "resume", action: setStatus(subscription.Active), wantHeld: 0, wantOpen: 3},
		{name: "suspend the workspace", action: setSuspended(true), wantHeld: 3, wantOpen: 3},
		{name: "end the suspension", action: setSuspended(false), wantHeld: 0, wantOpen: 3},
		{name: "delete", action: func() error { return m.Delete(t.Context(), ws, sub) }, wantHeld: 0, wantOpen: 0},
	}
	for _, step := range steps {
		if read := m.readBy(step.action); read > 100 {
			t.Errorf("%s reads %d rows of the queue for 3 deliveries, want at most 100", step.name, read)
		}
		const open = `SELECT count(*) FROM webhook_queue WHERE subscription_id = $1`
		wantEqual(t, "held deliveries after "+step.name, r.count(open+` AND held`, sub), step.wantHeld)
		wantEqual(t, "open deliveries after "+step.name, r.count(open, sub), step.wantOpen)
	}
}

func TestDepth_CountsByStateAtABoundedCost(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	m := newMeteredStore(r)
	depth := func(limit int) store.Depth {
		t.Helper()
		got, err := m.Depth(t.Context(), 5, limit)
		if err != nil {
			t.Fatalf("Depth: %v", err)
		}
		return got
	}
	if got := depth(10); got != (store.Depth{}) {
		t.Errorf("Depth of an empty queue = %+v, want zero", got)
	}

	r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	const age = `UPDATE webhook_queue SET due_at = now() - interval '90 seconds', attempt = 5 WHERE subscription_id = $1`
	if _, err := r.pool.Exec(t.Context(), age, sub); err != nil {
		t.Fatal(err)
	}
	fillQueue(t, r.pool)
	got := depth(50_000)
	want := store.Depth{Due: 4001, Future: 4000, Held: 4000, Lost: 1, OldestDue: got.OldestDue}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Depth (-want +got):\n%s", diff)
	}
	if got.OldestDue < 90 {
		t.Errorf("OldestDue = %f s, want the oldest delivery's 90 s", got.OldestDue)
	}
	lost, err := m.Lost(t.Context(), 5)
	if err != nil {
		t.Fatalf("Lost: %v", err)
	}
	if len(lost) != 1 {
		t.Fatalf("Lost returned %d deliveries, want 1", len(lost))
	}
	if lost[0].Attempt != 5 {
		t.Errorf("attempt of the lost delivery = %d, want 5", lost[0].Attempt)
	}

	const limit = 500
	read := m.readBy(func() error { got = depth(limit); return nil })
	if read > 4*limit {
		t.Errorf("Depth up to %d reads %d rows of the queue, want at most %d", limit, read, 4*limit)
	}
	want = store.Depth{Due: limit, Future: limit, Held: limit, Lost: 1, OldestDue: got.OldestDue}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Depth up to %d (-want +got):\n%s", limit, diff)
	}
	if read := m.readBy(func() error { _, err := m.Lost(t.Context(), 5); return err }); read > 1000 {
		t.Errorf("Lost read %d rows, want at most 1000", read)
	}
}

func TestLost_ReturnsAHeldDeliveryAfterItsRelease(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	const claimed = `UPDATE webhook_queue SET attempt = 5, due_at = now() - interval '1 second'`
	if _, err := r.pool.Exec(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		status subscription.Status
		want   int
	}{
		{status: subscription.Paused, want: 0},
		{status: subscription.Active, want: 1},
	} {
		if err := r.setStatus(ws, sub, step.status); err != nil {
			t.Fatal(err)
		}
		lost, err := r.store.Lost(t.Context(), 5)
		if err != nil {
			t.Fatalf("Lost: %v", err)
		}
		if len(lost) != step.want {
			t.Errorf("Lost of a subscription that is %s = %d deliveries, want %d", step.status, len(lost), step.want)
		}
	}
}

func TestDropDays_ReadsOnlyTheOpenDeliveriesOfTheDay(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	day := time.Date(2026, 6, 4, 0, 0, 0, 0, time.UTC)
	if _, err := r.store.AddDays(t.Context(), day, day); err != nil {
		t.Fatal(err)
	}
	sub := r.subscribe(ws, "call.completed")
	var open delivery.Event
	for range 20 {
		open = event(ws, uuid.New(), 1, "call.completed")
		open.CreatedAt = day.Add(time.Hour)
		r.ingest(nil, open)
	}
	const done = `UPDATE webhook_delivery SET status = 'delivered', done_at = now() WHERE event_id <> $1`
	if _, err := r.pool.Exec(t.Context(), done, open.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), `DELETE FROM webhook_queue WHERE event_id <> $1`, open.ID); err != nil {
		t.Fatal(err)
	}
	fillQueue(t, r.pool)
	m := newMeteredStore(r)

	var dropped int
	read := m.readBy(func() (err error) {
		dropped, err = m.DropDays(t.Context(), day.AddDate(0, 0, 1))
		return err
	})
	if dropped != 3 {
		t.Errorf("dropped %d partitions, want 3", dropped)
	}
	if read > 100 {
		t.Errorf("dropping a day with one open delivery reads %d rows of the queue, want at most 100", read)
	}
	if events := r.count(`SELECT count(*) FROM webhook_event`); events != 1 {
		t.Errorf("events left = %d, want the one of the open delivery", events)
	}
	if got := r.statusOf(ws, sub, open.ID); got != delivery.Queued {
		t.Errorf("open delivery after its day was dropped = %q, want queued", got)
	}

	// The open row is in the default partition now. A later call must not scan the queue for it.
	read = m.readBy(func() (err error) {
		_, err = m.DropDays(t.Context(), day.AddDate(0, 0, 2))
		return err
	})
	if read > 100 {
		t.Errorf("looking into the default partition reads %d rows of the queue, want at most 100", read)
	}
}
