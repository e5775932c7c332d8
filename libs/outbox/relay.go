package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
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
	// A leader that says nothing for this long (bindSession) loses its session, and the lock with it: the server sees to it, so it holds for
	// a process that was stopped, too.
	lease = 5 * time.Second
	// A leader whose last statement is this old asks the server whether it leads still, before it hands Kafka another row.
	doubt = 4 * time.Second
	// beat is how often a leader that waits for Kafka says that it is there.
	beat = time.Second
	// patience is how long a leader waits for Kafka's next acknowledgement before it lets another replica try, and standBack how long it
	// leaves the lock to that one.
	patience  = 10 * time.Second
	standBack = 3 * lockRetry
	// grace is how long a stopping relay goes on publishing.
	grace = 3 * time.Second
)

// Relay publishes one schema's outbox. Only the holder of the schema's advisory lock works; the others wait. A holder that hangs, is
// stopped or cannot reach Kafka loses the lock within seconds. What such a one had handed to its Kafka client may still go out, behind what its successor
// publishes: each row that it had read was in the outbox still, so the successor publishes it too, in order. A reader sees every fact first in its key's
// order, and again at worst, by the same event ID. In a compacted topic the repeated one may outlive a newer one: who reads that from the beginning has the older version then,
// until the key's next.
type Relay struct {
	pool    *pgxpool.Pool
	client  *kafka.Client
	wake    chan struct{}
	metrics *relayMetrics
	age     atomic.Pointer[ageSample]
	leads   atomic.Bool
	// open counts the rows that the Kafka client has and has not answered.
	open atomic.Int64
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
		if errors.Is(err, errSilent) {
			pause = standBack
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
		r.settle(ctx)
	}
}

// settle waits until Kafka has answered for every row of an earlier session: two of its rounds in the client at once would grow without bound.
func (r *Relay) settle(ctx context.Context) {
	for ctx.Err() == nil && r.open.Load() > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(fastPoll):
		}
	}
}

// session is the life of one dedicated connection, which holds the lock, listens and runs the relay's statements: a
// statement that succeeds on it proves that the lock is still held, and will be for the lease.
type session struct {
	relay *Relay
	conn  *pgx.Conn
	// said is when the last statement that succeeded began.
	said time.Time
}

// bindSession ends the session, when its process is silent for the lease or reads no answer for that long. Both are milliseconds.
const bindSession = `SELECT set_config('idle_session_timeout', $1, false), set_config('tcp_user_timeout', $1, false)`

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
	// Before the lock: a process stopped between the two would hold it for good.
	if err := s.exec(bindSession, strconv.FormatInt(lease.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("bind the session: %w", err)
	}
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
	return s.say(statementTimeout, func(ctx context.Context) error {
		_, err := s.conn.Exec(ctx, statement, args...)
		return err
	})
}

func (s *session) row(statement string, into any) error {
	return s.say(statementTimeout, func(ctx context.Context) error { return s.conn.QueryRow(ctx, statement).Scan(into) })
}

// say runs a statement and remembers when it began: the server counts the lease from later.
func (s *session) say(within time.Duration, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	began := time.Now()
	if err := statement(ctx); err != nil {
		return err
	}
	s.said = began
	return nil
}

const stillThere = `SELECT`

// sure fails unless the lock was ours less than age ago; when that is not known, the server is asked.
func (s *session) sure(age time.Duration) error {
	if time.Since(s.said) < age {
		return nil
	}
	err := s.say(doubt, func(ctx context.Context) error {
		_, err := s.conn.Exec(ctx, stillThere)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errDeposed, err)
	}
	return nil
}

func (r *Relay) lead(leads bool) {
	r.leads.Store(leads)
	if leads {
		r.metrics.leader.Set(1)
		return
	}
	r.metrics.leader.Set(0)
}
