package store_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

type fixture struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *store.Store
	trips atomic.Int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	r := &fixture{t: t}
	cfg := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations}).Config().Copy()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &countingConn{Conn: conn, trips: &r.trips}, err
	}
	cfg.MaxConns = 4
	var err error
	if r.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.pool.Close)
	r.store = store.New(r.pool, box(t))
	return r
}

// countingConn counts round trips. A round trip is a read that follows a write.
type countingConn struct {
	net.Conn
	trips *atomic.Int64
	sent  atomic.Bool
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.sent.Swap(false) {
		c.trips.Add(1)
	}
	return n, err
}

func (r *fixture) subscribe(workspace uuid.UUID, events ...openapi.EventType) uuid.UUID {
	r.t.Helper()
	sub := subscriptions.Subscription{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, Name: "a", URL: "https://example.com/", Events: events}
	if err := r.store.Create(r.t.Context(), sub, "whsec_"+sub.ID.String()); err != nil {
		r.t.Fatal(err)
	}
	return sub.ID
}

func (r *fixture) setStatus(workspace, id uuid.UUID, status subscriptions.Status) error {
	_, err := r.store.Change(context.WithoutCancel(r.t.Context()), workspace, id, store.Change{Status: &status})
	return err
}

func (r *fixture) suspend(workspace uuid.UUID) {
	r.t.Helper()
	if err := pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		w := store.Workspace{ID: workspace, Version: 1, Suspended: true, Webhooks: true}
		_, err := r.store.SetWorkspace(r.t.Context(), tx, w)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
}

// ingest stores events as the consumer does. If beforeCommit is not nil, ingest calls it directly
// before the COMMIT.
func (r *fixture) ingest(beforeCommit func(), events ...deliveries.Event) (done store.Ingested) {
	r.t.Helper()
	err := pg.InPipeline(r.t.Context(), r.pool, func(tx *pg.Pipeline) (err error) {
		var claim pgx.Batch // the first statements of the inbox, which are sent together with BEGIN
		claim.Queue("SELECT 1")
		if err := tx.RunBatch(r.t.Context(), &claim); err != nil {
			return err
		}
		done, err = r.store.Ingest(r.t.Context(), tx, events...)
		if beforeCommit != nil {
			beforeCommit()
		}
		return err
	})
	if err != nil {
		r.t.Fatalf("Ingest: %v", err)
	}
	return done
}

func (r *fixture) count(sql string, args ...any) (n int) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func event(workspace, call uuid.UUID, sequence int32, kind string) deliveries.Event {
	return deliveries.Event{
		ID: uuid.NewSHA1(call, []byte(kind)), WorkspaceID: workspace, ObjectID: &call, Type: kind, Sequence: sequence,
		Body: fmt.Appendf(nil, `{"call":%q,"type":%q}`, call, kind), CreatedAt: time.Unix(1780574400, 0).UTC(), Traceparent: "00-" + call.String(),
	}
}

func TestIngest_HundredEventsTakeFourRoundTrips(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	busy, still, silent := uuid.New(), uuid.New(), uuid.New()
	all := r.subscribe(busy, "call.ringing", "call.completed")
	ends := r.subscribe(busy, "call.completed")
	paused, failed := r.subscribe(busy, "call.completed"), r.subscribe(busy, "call.ringing")
	held := r.subscribe(still, "call.completed")
	r.subscribe(silent, "call.failed")
	if err := r.setStatus(busy, paused, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), `UPDATE subscriptions SET status = 'failed', failed_at = now(), failed_reason = 'x' WHERE id = $1`, failed); err != nil {
		t.Fatal(err)
	}
	r.suspend(still)
	batch := func() (events []deliveries.Event) {
		for range 20 {
			call := uuid.New()
			events = append(events, event(busy, call, 1, "call.ringing"), event(busy, call, 2, "call.completed"),
				event(still, uuid.New(), 1, "call.completed"), event(silent, uuid.New(), 1, "call.completed"))
		}
		return append(events, events[:20]...)
	}
	r.ingest(nil, batch()...) // later calls do not have to prepare statements
	warm := r.count(`SELECT count(*) FROM deliveries`)
	events := batch()
	before := r.trips.Load()
	done := r.ingest(nil, events...)
	if n := r.trips.Load() - before; n != 4 {
		t.Errorf("round trips of a hundred events = %d, want 4: claim, match, inserts, COMMIT", n)
	}
	// call.ringing matches the subscriptions `all` and `failed`; call.completed matches `all`,
	// `ends` and `paused`
	for i, want := range []int{2, 3, 1, 0} {
		wantEqual(t, fmt.Sprintf("subscriptions of event %d", i), done.Matched[i], want)
		wantEqual(t, fmt.Sprintf("subscriptions of event %d", 80+i), done.Matched[80+i], want)
	}
	if len(done.Due) != 3 {
		t.Errorf("subscriptions with due deliveries = %d, want 3", len(done.Due))
	}
	const open = `SELECT count(*) FROM delivery_queue WHERE subscription_id = $1`
	wantEqual(t, "deliveries", r.count(`SELECT count(*) FROM deliveries`)-warm, 20*6)
	wantEqual(t, "queued for all events", r.count(open+` AND attempt = 0`, all), 2*40)
	wantEqual(t, "queued for terminal events", r.count(open, ends), 2*20)
	wantEqual(t, "queued in a suspended workspace", r.count(open, held), 2*20)
	wantEqual(t, "open deliveries", r.count(`SELECT count(*) FROM delivery_queue`), 2*80)
	const skipped = `SELECT count(*) FROM deliveries WHERE status = 'skipped' AND done_at IS NOT NULL`
	wantEqual(t, "skipped", r.count(skipped), 2*40)
	wantEqual(t, "stored bodies", r.count(`SELECT count(*) FROM events`), 2*80)
	wantEqual(t, "events in streams", r.count(`SELECT count(*) FROM stream_events`), 2*80)
	wantEqual(t, "deliveries that match their event", r.count(`
		SELECT count(*) FROM deliveries d
		JOIN events e ON e.id = d.event_id AND e.created_at = d.created_at AND e.call_id = d.call_id
		     AND e.sequence = d.sequence AND e.type = d.event_type AND e.workspace_id = d.workspace_id
		WHERE d.traceparent = format('00-%s', d.call_id)
		  AND position(d.call_id::text IN convert_from(e.body, 'UTF8')) > 0`), warm+120)
	again := slices.Clone(events)
	slices.Reverse(again)
	r.ingest(nil, again...)
	if n := r.count(`SELECT count(*) FROM delivery_queue`); n != 160 {
		t.Errorf("queue rows after the same events again = %d, want 160", n)
	}
}

// The service `calls` publishes an event again with another time after its database was restored.
// Such an event must not cause an error, which would stop the Kafka partition.
func TestIngest_EventRepublishedWithAnotherTimeIsQueuedOnce(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	r.subscribe(ws, "call.completed")
	ev := event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, ev)
	ev.CreatedAt = ev.CreatedAt.Add(time.Minute)
	r.ingest(nil, ev)
	wantEqual(t, "open deliveries", r.count(`SELECT count(*) FROM delivery_queue`), 1)
	wantEqual(t, "events in the stream", r.count(`SELECT count(*) FROM stream_events`), 1)
}

// A change of the subscription must wait until the batch that matched the subscription is
// committed.
func TestIngest_ChangeOfASubscriptionWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(r *fixture, ws, sub uuid.UUID) error{
		"pause": func(r *fixture, ws, sub uuid.UUID) error { return r.setStatus(ws, sub, subscriptions.Paused) },
		"delete": func(r *fixture, ws, sub uuid.UUID) error {
			return r.store.Delete(context.WithoutCancel(r.t.Context()), ws, sub)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ws := newFixture(t), uuid.New()
			sub := r.subscribe(ws, "call.completed")
			if err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
				_, err := r.store.SetWorkspace(t.Context(), tx, store.Workspace{ID: ws, Version: 1, Webhooks: true})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			r.ingest(func() {
				go func() { answered <- stop(r, ws, sub) }()
				for r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
					select {
					case err := <-answered:
						t.Fatalf("the change returned %v before the commit, want it to wait", err)
					case <-time.After(time.Millisecond):
					}
				}
			}, event(ws, uuid.New(), 1, "call.completed"), event(ws, uuid.New(), 1, "call.completed"))
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
			if work := r.claimAll(sub); len(work) != 0 {
				t.Errorf("deliveries claimed after the change = %d, want 0", len(work))
			}
			before := r.count(`SELECT count(*) FROM delivery_queue`)
			r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
			if n := r.count(`SELECT count(*) FROM delivery_queue`); n != before {
				t.Errorf("deliveries queued after the change = %d, want 0", n-before)
			}
		})
	}
}
