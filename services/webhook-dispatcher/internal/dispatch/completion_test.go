package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// A delivery is sent again if its result is stored after its lease has ended. Therefore the
// dispatcher must limit the number of results that wait for a slow database.
func TestComplete_SlowDatabaseLimitsTheRequestsInFlight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	hook := newReceiver(t, nil)
	sub, _ := r.subscribe(hook.URL)
	const events = 2000
	all := make([]deliveries.Event, events)
	for i := range all {
		all[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(all...)

	tx, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM subscription_health WHERE subscription_id = $1 FOR UPDATE", sub); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Lease = 2 * time.Second
	r.dispatch(cfg)
	testkit.NoError(t, func() error {
		if n := r.count("SELECT count(*) FROM delivery_queue WHERE attempt > 0 AND due_at <= now()"); n < 200 {
			return fmt.Errorf("ended leases = %d", n)
		}
		return nil
	})
	// at most 256 results are being stored, 256 results wait in the channel, and 64 requests are in
	// flight
	if n := len(hook.all()); n > 2*256+64 {
		t.Errorf("requests without a stored result = %d, want at most 576", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, func() error {
		if n := r.count("SELECT count(*) FROM delivery_queue"); n > 0 {
			return fmt.Errorf("queued deliveries = %d, want 0", n)
		}
		return nil
	})
}

// Another transaction locks the failing subscription until the end of the test. The results of
// other subscriptions must still be stored.
func TestComplete_LockedSubscriptionDelaysOnlyItsOwnResults(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.withoutStatementTimeout()
	bad, good := newReceiver(t, always(500)), newReceiver(t, nil)
	sick, _ := r.subscribe(bad.URL, "call.failed")
	well, _ := r.subscribe(good.URL, "call.completed")
	r.ingest(r.event(uuid.New(), 1, "call.failed"))
	tx, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM subscriptions WHERE id = $1 FOR NO KEY UPDATE", sick); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Rule = subscriptions.FailureRule{Failures: 1}
	d := r.dispatch(cfg)
	bad.await(t, 1)
	r.awaitLocked()
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(well, ev.ID, deliveries.Delivered)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, func() error {
		if sub := r.subscription(sick); sub.Status != subscriptions.Failed {
			return fmt.Errorf("status of the failing subscription = %s", sub.Status)
		}
		return nil
	})
}

// The next event of a call arrives while the result of the previous event is being stored. The
// first claim for the next event returns no delivery, because the previous event has no result yet.
func TestComplete_NextEventOfACallIsSentAfterTheResultIsStored(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	hook := newReceiver(t, nil)
	sub, _ := r.subscribe(hook.URL)
	d := r.dispatch(wakeOnlyConfig())
	tx, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM subscription_health WHERE subscription_id = $1 FOR UPDATE", sub); err != nil {
		t.Fatal(err)
	}
	call := uuid.New()
	r.ingestAndAdd(d, r.event(call, 1, "call.ringing"))
	hook.await(t, 1)
	r.awaitLocked()
	r.ingestAndAdd(d, r.event(call, 2, "call.completed"))
	testkit.NoError(t, func() error {
		if d.claims(t) == 0 {
			return fmt.Errorf("no claim without a delivery was made")
		}
		return nil
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	hook.await(t, 2)
}

func (d runningDispatcher) claims(t *testing.T) (n uint64) {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "ringfence_webhooks_claim_duration_seconds" {
			n += family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

// lossyConn loses the response to a COMMIT. If discardNext is true, it closes the connection after
// the next statement that stores results.
type lossyConn struct {
	net.Conn
	discardNext *atomic.Bool
	lastWrite   atomic.Int64 // the size of the last write in bytes
}

func (c *lossyConn) Write(b []byte) (int, error) {
	c.lastWrite.Store(int64(len(b)))
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// only the statement that stores results has more than 500 bytes
	if n > 0 && c.lastWrite.Load() > 500 && c.discardNext.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func TestComplete_CountsAResultOnceIfTheCommitResponseIsLost(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	hook := newReceiver(t, always(500))
	sub, _ := r.subscribe(hook.URL)
	var lose atomic.Bool
	cfg := r.pool.Config().Copy()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &lossyConn{Conn: conn, discardNext: &lose}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r.store = store.New(pool, r.box)
	tx, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM subscription_health WHERE subscription_id = $1 FOR UPDATE", sub); err != nil {
		t.Fatal(err)
	}
	settings := wakeOnlyConfig()
	settings.RetryDelays = []time.Duration{time.Hour}
	d := r.dispatch(settings)
	r.ingestAndAdd(d, r.event(uuid.New(), 1, "call.completed"))
	r.awaitLocked()
	lose.Store(true)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, func() error {
		if lose.Load() {
			return errors.New("the response of the database was not lost yet")
		}
		if r.count(`SELECT count(*) FROM attempts`) == 0 {
			return errors.New("no attempt is stored")
		}
		return nil
	})
	d.stopAndWait() // the result is stored when stopAndWait returns
	wantEqual(t, "consecutive failures", r.subscription(sub).ConsecutiveFailures, 1)
	wantEqual(t, "requests", len(hook.all()), 1)
}
