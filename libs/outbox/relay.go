package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/kafka"
)

const (
	batchRows = 2000
	// A row whose wake was lost waits one poll. After quietAfter without rows the leader relies on NOTIFY and polls
	// at the slow pace.
	fastPoll   = 250 * time.Millisecond
	slowPoll   = 2500 * time.Millisecond
	quietAfter = 5 * time.Second
	// lockRetry is how soon another replica takes over from a leader that died.
	lockRetry        = time.Second
	statementTimeout = 15 * time.Second
	// grace is how long a stopping relay goes on publishing.
	grace = 3 * time.Second
)

// Relay publishes one schema's outbox. Only the holder of the schema's advisory lock works; the others wait.
type Relay struct {
	pool    *pgxpool.Pool
	client  *kafka.Client
	wake    chan struct{}
	metrics *relayMetrics
	age     atomic.Pointer[ageSample]
	leads   atomic.Bool
}

// NewRelay makes a relay over the pool's schema.
func NewRelay(pool *pgxpool.Pool, client *kafka.Client, metrics prometheus.Registerer) *Relay {
	r := &Relay{pool: pool, client: client, wake: make(chan struct{}, 1)}
	r.metrics = newRelayMetrics(metrics, r)
	return r
}

// Wake tells the relay, in this process and in the other replicas (coalesced NOTIFY after commit), that rows were
// committed. It never blocks. Calling it late or never costs at most the poll: 250 ms, or 2.5 s once the outbox has
// been empty for a while. A nil relay does nothing.
func (r *Relay) Wake() {
	if r == nil {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // one is waiting already, and it stands for this one too
	}
}

// Run relays until ctx ends, then publishes what it can within a few seconds. It never gives up: while the database or
// Kafka is away it tries again.
func (r *Relay) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.sampleAges(ctx); return nil })
	group.Go(func() error { r.keepRelaying(ctx); return nil })
	return group.Wait()
}

// keepRelaying opens one session after another, with a pause between when they fail.
func (r *Relay) keepRelaying(ctx context.Context) {
	var last string
	for pause := 100 * time.Millisecond; ctx.Err() == nil; {
		started := time.Now()
		err := r.session(ctx)
		r.lead(false)
		if ctx.Err() != nil {
			if err != nil {
				slog.Warn("outbox relay stopped early", "err", err)
			}
			return
		}
		if err != nil && err.Error() != last {
			slog.Warn("outbox relay lost its session and starts another", "err", err)
			last = err.Error()
		}
		if time.Since(started) > 10*time.Second {
			pause, last = 100*time.Millisecond, ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// session is the life of one dedicated connection, which holds the lock, listens and runs the relay's statements: a
// statement that succeeds on it proves that the lock is still held.
type session struct {
	relay *Relay
	conn  *pgx.Conn
}

func (r *Relay) session(ctx context.Context) error {
	pooled, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // lock and LISTEN must never go back into the pool
	s := &session{relay: r, conn: conn}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := s.awaitLeadership(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	r.lead(true)
	return s.relayUntilDone(ctx)
}

const tryLock = `SELECT pg_try_advisory_lock(hashtextextended('outbox relay ' || current_schema(), 0))`

// The payload is empty: a wake says only "look".
const notify = `SELECT pg_notify('outbox_' || current_schema(), '')`

const listen = `SELECT format('LISTEN %I', 'outbox_' || current_schema())`

// awaitLeadership returns when the lock is held or ctx has ended. Until then this process's wakes go to the leader.
func (s *session) awaitLeadership(ctx context.Context) error {
	for {
		var held bool
		err := s.row(tryLock, &held)
		if err != nil {
			return fmt.Errorf("try for the relay's lock: %w", err)
		}
		if held {
			break
		}
		retry := time.NewTimer(lockRetry)
	waiting:
		for {
			select {
			case <-ctx.Done():
				retry.Stop()
				return nil
			case <-retry.C:
				break waiting
			case <-s.relay.wake:
				if err := s.exec(notify); err != nil {
					return fmt.Errorf("wake the leading relay: %w", err)
				}
			}
		}
	}
	var statement string
	if err := s.row(listen, &statement); err != nil {
		return fmt.Errorf("name the wake channel: %w", err)
	}
	if err := s.exec(statement); err != nil {
		return fmt.Errorf("listen for wakes: %w", err)
	}
	return nil
}

// relayUntilDone publishes batch after batch, and waits when it has seen all there was.
func (s *session) relayUntilDone(ctx context.Context) error {
	lastRows := time.Now()
	for ctx.Err() == nil {
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
		// Whoever commits a row tells us, also while we were publishing: that wait ends at once, and no look is for nothing.
		poll := fastPoll
		if time.Since(lastRows) > quietAfter {
			poll = slowPoll
		}
		if err := s.wait(ctx, poll); err != nil {
			return err
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for last.Err() == nil {
		if rows, _, err := s.relayBatch(last); err != nil || rows == 0 {
			return err
		}
	}
	return nil
}

// wait ends at a wake from this process or another, after the poll, or with ctx; only a broken connection is an error.
func (s *session) wait(ctx context.Context, poll time.Duration) error {
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

// exec and row run a statement that shutdown does not cancel: cancelling would break the connection and with it the lock.
func (s *session) exec(statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_, err := s.conn.Exec(ctx, statement, args...)
	return err
}

func (s *session) row(statement string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	return s.conn.QueryRow(ctx, statement).Scan(into)
}

func (r *Relay) lead(leads bool) {
	r.leads.Store(leads)
	if leads {
		r.metrics.leader.Set(1)
		return
	}
	r.metrics.leader.Set(0)
}
