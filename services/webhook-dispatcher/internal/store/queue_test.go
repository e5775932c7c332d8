package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// longQueue inserts deliveries of ten other subscriptions: 8,000 due deliveries, and 4,000
// deliveries that wait for a retry. With so many rows, the test detects a statement that cannot use
// an index.
const longQueue = `
INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence,
                           attempt, is_retry, due_at)
SELECT gen_random_uuid(), now(), gen_random_uuid(), format('00000000-0000-7000-8000-00000000000%s', n % 10)::uuid,
       gen_random_uuid(), 'call.completed', 1, n % 2, n % 3 = 0,
       now() + CASE WHEN n % 3 = 0 THEN 1 ELSE -1 END * interval '1 minute'
FROM generate_series(1, 12000) n`

// rowsRead counts the queue rows that all sessions have read.
const rowsRead = `
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'delivery_queue'`

// meteredStore has one session and counts the queue rows and pages that this session reads.
type meteredStore struct {
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool
}

func newMeteredStore(t *testing.T, of *pgxpool.Pool) *meteredStore {
	t.Helper()
	settings := of.Config()
	settings.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &meteredStore{Store: store.New(pool, box(t)), t: t, pool: pool}
}

// pagesRead counts the pages of the listed tables and of their indexes that all sessions have read.
const pagesRead = `
SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))::bigint
FROM pg_statio_user_tables WHERE relname IN ('delivery_queue', 'subscriptions', 'workspaces', 'subscription_health')`

func (m *meteredStore) pagesBy(action func()) int64 {
	m.t.Helper()
	before := m.read(pagesRead)
	action()
	return m.read(pagesRead) - before
}

// addQueue inserts n deliveries that have been due for an hour.
func addQueue(t *testing.T, pool *pgxpool.Pool, workspace, sub uuid.UUID, n int) {
	t.Helper()
	owner := pgtest.Owner(t, pool, schema)
	const fill = `
		INSERT INTO delivery_queue
		    (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, due_at)
		SELECT gen_random_uuid(), now(), $1, $2, gen_random_uuid(), 'call.completed', 1, now() - interval '1 hour'
		FROM generate_series(1, $3::int)`
	if _, err := owner.Exec(t.Context(), fill, workspace, sub, n); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), `VACUUM (ANALYZE) delivery_queue`); err != nil {
		t.Fatal(err)
	}
}

func (m *meteredStore) read(query string) (n int64) {
	m.t.Helper()
	for range 2 { // a session reports its counters only after the next statement
		if _, err := m.pool.Exec(m.t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.pool.QueryRow(m.t.Context(), query).Scan(&n); err != nil {
		m.t.Fatal(err)
	}
	return n
}

func (m *meteredStore) readBy(action func() error) int64 {
	m.t.Helper()
	before := m.read(rowsRead)
	if err := action(); err != nil {
		m.t.Fatal(err)
	}
	return m.read(rowsRead) - before
}

func fillQueue(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	owner := pgtest.Owner(t, pool, schema)
	for _, sql := range []string{longQueue, "ANALYZE delivery_queue, subscriptions, workspaces"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDropDays_ReadsOnlyTheQueuedDeliveriesOfTheDay(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	day := time.Date(2026, 6, 4, 0, 0, 0, 0, time.UTC)
	if _, err := r.store.AddDays(t.Context(), day, day); err != nil {
		t.Fatal(err)
	}
	sub := r.subscribe(ws, "call.completed")
	var open deliveries.Event
	for range 20 {
		open = event(ws, uuid.New(), 1, "call.completed")
		open.CreatedAt = day.Add(time.Hour)
		r.ingest(nil, open)
	}
	const done = `UPDATE deliveries SET status = 'delivered', done_at = now() WHERE event_id <> $1`
	if _, err := r.pool.Exec(t.Context(), done, open.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), `DELETE FROM delivery_queue WHERE event_id <> $1`, open.ID); err != nil {
		t.Fatal(err)
	}
	fillQueue(t, r.pool)
	m := newMeteredStore(t, r.pool)

	var dropped int
	read := m.readBy(func() (err error) {
		dropped, err = m.DropDays(t.Context(), day.AddDate(0, 0, 1))
		return err
	})
	if dropped != 4 {
		t.Errorf("dropped partitions = %d, want 4", dropped)
	}
	if read > 100 {
		t.Errorf("queue rows read by the drop of a day with one queued delivery = %d, want at most 100", read)
	}
	if events := r.count(`SELECT count(*) FROM events`); events != 1 {
		t.Errorf("events = %d, want 1, that of the queued delivery", events)
	}
	if got := r.statusOf(ws, sub, open.ID); got != deliveries.Queued {
		t.Errorf("status of the queued delivery after the drop = %q, want queued", got)
	}

	// The row is in the default partition now. A later call must find it without a scan of the
	// queue.
	read = m.readBy(func() (err error) {
		_, err = m.DropDays(t.Context(), day.AddDate(0, 0, 2))
		return err
	})
	if read > 100 {
		t.Errorf("queue rows read by the check of the default partition = %d, want at most 100", read)
	}
}
