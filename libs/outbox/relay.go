package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

const (
	batchRows = 2000
	// fastPoll and slowPoll are the times between two reads of the outbox if no notification of new
	// rows arrives. slowPoll applies if the leader has found no rows for quietAfter.
	fastPoll   = 250 * time.Millisecond
	slowPoll   = 2500 * time.Millisecond
	quietAfter = 5 * time.Second
	// maxPause is the maximum pause after a batch.
	maxPause         = 20 * time.Millisecond
	statementTimeout = 15 * time.Second
	// ackTimeout is how long a leader waits for the next acknowledgement before it releases the lease.
	// After that, it omits the next skippedAttempts attempts to acquire the lease, so that another
	// replica can acquire it.
	ackTimeout      = 10 * time.Second
	skippedAttempts = 3
	// shutdownGrace is how long a relay continues to publish after its context is canceled.
	shutdownGrace = 3 * time.Second
)

// Relay publishes the outbox of one schema. Only the leader, the relay with the schema's lease,
// publishes. A leader that is killed or halted loses the lease within Config.Lease. A leader that
// cannot reach Kafka releases the lease.
//
// The Kafka client of an earlier leader can still send rows after the next leader has published
// them. A reader receives the events of a key in order, but can receive an event again with the
// same event ID. In a compacted topic the repeated event can replace a newer event until the next
// event of the key, so readers must compare versions.
type Relay struct {
	// id identifies this relay as the owner of the lease. Each process has a new id.
	id      uuid.UUID
	pool    *pgxpool.Pool
	client  *kafka.Client
	wake    chan struct{}
	metrics *relayMetrics
	age     atomic.Pointer[ageSample]
	leads   atomic.Bool
	// openRows is the number of rows that the Kafka client has received and for which it has no result
	// yet.
	openRows atomic.Int64
	lease    leaseTimes
	// ackTimeout differs from the constant ackTimeout only in tests.
	ackTimeout time.Duration
}

// NewRelay returns a relay of the pool's schema. The caller must call Run.
func NewRelay(pool *pgxpool.Pool, client *kafka.Client, metrics prometheus.Registerer, cfg Config) *Relay {
	r := &Relay{
		id: uuid.New(), lease: newLeaseTimes(cfg), ackTimeout: ackTimeout,
		pool: pool, client: client, wake: make(chan struct{}, 1),
	}
	r.metrics = newRelayMetrics(metrics, r)
	return r
}

// Wake notifies the relays of all replicas that rows were committed. It does not block. Without
// Wake, rows wait for the next poll: up to 250 ms, or up to 2.5 s if the outbox was empty for some
// time. On a nil *Relay, Wake does nothing.
func (r *Relay) Wake() {
	if r == nil {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // a wake is already pending
	}
}

// Run publishes rows until ctx is canceled, and then for up to 3 s more. While the database or
// Kafka is unavailable, it retries.
func (r *Relay) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.sampleAges(ctx); return nil })
	group.Go(func() error { r.keepRelaying(ctx); return nil })
	return group.Wait()
}

// keepRelaying runs one session after the other. After an error, it pauses.
func (r *Relay) keepRelaying(ctx context.Context) {
	var last string
	for pause := 100 * time.Millisecond; ctx.Err() == nil; {
		started := time.Now()
		err := r.session(ctx)
		r.lead(false)
		if ctx.Err() != nil {
			if err != nil {
				slog.Warn("outbox relay stopped before the outbox was empty", "error", err)
			}
			return
		}
		if err != nil && err.Error() != last {
			slog.Warn("outbox relay session failed, a new session starts", "error", err)
			last = err.Error()
		}
		if time.Since(started) > 10*time.Second {
			pause, last = 100*time.Millisecond, ""
		}
		if errors.Is(err, errSilent) {
			pause = skippedAttempts * r.lease.acquireInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
		r.waitForResults(ctx)
	}
}

// waitForResults waits until the Kafka client has a result for every row of the earlier session.
// Otherwise the rows of several sessions could accumulate in the client.
func (r *Relay) waitForResults(ctx context.Context) {
	for ctx.Err() == nil && r.openRows.Load() > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(fastPoll):
		}
	}
}

// session is the relay's own database connection, which receives wakes with LISTEN and runs the
// relay's statements. It bypasses a pooler, because a pooler in transaction mode does not support
// LISTEN.
type session struct {
	relay *Relay
	conn  *pgx.Conn
	// acquisitions is the stored number of acquisitions when this session acquired the lease. If the
	// stored number is higher now, another session has acquired the lease.
	acquisitions int64
	renewed      time.Time // just before the last renewal was sent
	// floor is the lowest id from which the session reads. It is stored with the lease.
	floor floor
}

func (r *Relay) session(ctx context.Context) error {
	conn, err := pg.Dedicated(ctx, r.pool)
	if err != nil {
		return err
	}
	s := &session{relay: r, conn: conn}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if held, err := s.awaitLeadership(ctx); err != nil || !held {
		return err
	}
	defer s.giveUpLease()
	r.lead(true)
	if err := s.listen(); err != nil {
		return err
	}
	return s.relayUntilDone(ctx)
}

// The notification has no payload, because the receiver reads the outbox.
const notifyWake = `SELECT pg_notify('outbox_' || current_schema(), '')`

const listen = `SELECT format('LISTEN %I', 'outbox_' || current_schema())`

// awaitLeadership waits until the relay has the lease and then returns true. It returns false if
// ctx ends. While it waits, it forwards this process's wakes to the leader.
func (s *session) awaitLeadership(ctx context.Context) (held bool, err error) {
	ticks := time.NewTicker(s.relay.lease.acquireInterval)
	defer ticks.Stop()
	for {
		if held, err := s.acquire(); err != nil || held {
			if err != nil {
				err = fmt.Errorf("acquire the relay's lease: %w", err)
			}
			return held, err
		}
	waiting:
		for {
			select {
			case <-ctx.Done():
				return false, nil
			case <-ticks.C:
				break waiting
			case <-s.relay.wake:
				if err := s.exec(notifyWake); err != nil {
					return false, fmt.Errorf("wake the leading relay: %w", err)
				}
			}
		}
	}
}

func (s *session) listen() error {
	var statement string
	if err := s.queryRow(listen, &statement); err != nil {
		return fmt.Errorf("name the wake channel: %w", err)
	}
	if err := s.exec(statement); err != nil {
		return fmt.Errorf("listen for wakes: %w", err)
	}
	return nil
}

// relayUntilDone publishes batches until ctx ends. If there are no more rows, it waits.
func (s *session) relayUntilDone(ctx context.Context) error {
	lastRows := time.Now()
	for ctx.Err() == nil {
		began := time.Now()
		rows, all, err := s.relayBatch(ctx)
		if err != nil {
			return err
		}
		if rows > 0 {
			lastRows = time.Now()
		}
		if !all {
			continue
		}
		if rows > 0 {
			pauseAfter(ctx, time.Since(began))
		}
		// Each commit sends a wake. A wake that arrived while rows were published ends this wait
		// immediately.
		if err := s.waitForWake(ctx, s.relay.lease.pollInterval(time.Since(lastRows))); err != nil {
			return err
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	for last.Err() == nil {
		if rows, _, err := s.relayBatch(last); err != nil || rows == 0 {
			return err
		}
	}
	return nil
}

// pauseAfter waits as long as the last batch took, but at most maxPause. Rows that are committed
// during the pause are published in one batch, and readers apply them together. There is no pause
// after an idle time.
func pauseAfter(ctx context.Context, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(min(took, maxPause)):
	}
}

// waitForWake returns after a wake of any replica, after the duration poll, or when ctx is
// canceled. It returns an error only if the connection is broken.
func (s *session) waitForWake(ctx context.Context, poll time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, poll)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		select {
		case <-s.relay.wake:
			cancel()
		case <-waiting.Done():
		}
	}()
	_, err := s.conn.WaitForNotification(waiting)
	interrupted := waiting.Err() != nil
	cancel()
	<-woken
	if err != nil && (!interrupted || s.conn.IsClosed()) {
		return fmt.Errorf("wait for a wake: %w", err)
	}
	return nil
}

// exec and queryRow do not cancel a statement at a shutdown, because a cancellation would break the
// connection.
func (s *session) exec(statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_, err := s.conn.Exec(ctx, statement, args...)
	return err
}

func (s *session) queryRow(statement string, into any, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	return s.conn.QueryRow(ctx, statement, args...).Scan(into)
}

func (r *Relay) lead(leads bool) {
	r.leads.Store(leads)
	if leads {
		r.metrics.leader.Set(1)
		return
	}
	r.metrics.leader.Set(0)
}
