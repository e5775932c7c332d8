// Package store contains every SQL statement of the dialer. A state changes by an UPDATE whose
// condition is the expected state. If the UPDATE finds no row, another process changed the state
// first. The event of the change is stored in the same transaction. The rules about states are in
// packages callstate and dialqueue.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// ErrLost is returned if a row is not in the expected state, because another process has changed
// it.
var ErrLost = errors.New("the row changed meanwhile")

// Timing contains the timing settings of the store.
type Timing struct {
	// InstanceLease is how long a process counts as alive after its last heartbeat.
	InstanceLease time.Duration
	// ClaimLease is how long a process owns a request that it claimed.
	ClaimLease time.Duration
	// QueueLimit is how long a request may be due before it ends without a dial.
	QueueLimit time.Duration
	// CapacityLimit is how long a due request waits for capacity before it ends. It has an effect
	// only if it is less than QueueLimit.
	CapacityLimit time.Duration
	// RingLimit is how long a call may ring.
	RingLimit time.Duration
	// WatchdogGrace is added to the longest duration of a call. If the carrier has not reported the
	// end of the call by then, the dialer ends the call.
	WatchdogGrace time.Duration
}

// Store runs the SQL statements of one process. In the tables, a process is called an instance. The
// methods are safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	instance uuid.UUID
	timing   Timing
	guard    *serverGuard
	modes    dialqueue.Modes
}

// New returns a store that uses the pool, for the process with the id instance.
func New(pool *pgxpool.Pool, instance uuid.UUID, timing Timing) *Store {
	return &Store{pool: pool, instance: instance, timing: timing, guard: &serverGuard{}}
}

// Of returns a store for the given modes (live or test). Its methods Due, Claim, ApplyEvents,
// Serves, LiveCalls, OwnFences and Change read and change only workspaces and calls of these modes.
func (s *Store) Of(modes dialqueue.Modes) *Store {
	some := *s
	some.modes = modes
	return &some
}

// Modes returns the modes that were passed to Of, or dialqueue.AllModes.
func (s *Store) Modes() dialqueue.Modes { return s.modes }

// On returns a store for the same process that uses another pool.
func (s *Store) On(pool *pgxpool.Pool) *Store {
	other := *s
	other.pool = pool
	return &other
}

func (s *Store) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.InTx(ctx, s.pool, f)
}

func outboxEvents(facts ...callstate.Fact) []outbox.Event {
	events := make([]outbox.Event, 0, len(facts))
	for _, f := range facts {
		events = append(events, outbox.Event{
			ID: f.ID, Topic: kafka.DialEvents, Key: f.Key, WorkspaceID: f.WorkspaceID, Message: f.Event,
		})
	}
	return events
}

const instanceHeartbeat = `
INSERT INTO instances (instance_id) VALUES (@instance)
ON CONFLICT (instance_id) DO UPDATE SET
	seen_at = now(),
	steady_since = CASE WHEN instances.seen_at < now() - @lease::interval / 2 THEN now() ELSE instances.steady_since END`

// Heartbeat stores the heartbeat of this process. If the previous heartbeat is older than half a
// lease, the process takes over no calls for the next lease, because the heartbeats of other live
// processes are probably late too.
func (s *Store) Heartbeat(ctx context.Context) error {
	args := pg.Args{"instance": s.instance, "lease": s.timing.InstanceLease}
	if _, err := s.pool.Exec(ctx, instanceHeartbeat, args); err != nil {
		return fmt.Errorf("store heartbeat: %w", err)
	}
	return nil
}

// The second condition on this process's own heartbeat matters after a failover. The new database
// server can lack the last heartbeats of all processes. Until this process has stored a heartbeat
// there, its own row does not show this gap, and all processes seem to be dead.
const takeOver = `
UPDATE calls SET owner = @instance, hangup_at = now(), answer_at = NULL,
	ending = CASE WHEN ending = '' OR ending = 'requested' AND status = 'fenced' THEN 'recovery' ELSE ending END
WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM calls c
	WHERE c.ended_at IS NULL AND c.owner IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = c.owner AND i.seen_at > now() - @lease::interval)
		AND EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = @instance
			AND i.steady_since <= now() - @lease::interval AND i.seen_at > now() - @lease::interval / 2)
	LIMIT 500 FOR UPDATE OF c SKIP LOCKED))`

const forgetDead = `
DELETE FROM instances i
WHERE i.seen_at < now() - interval '1 hour' AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.owner = i.instance_id AND c.ended_at IS NULL)`

// TakeOver makes this process the owner of live calls of dead processes, and marks these calls to
// be hung up. It returns the number of calls. It takes over no calls until this process has sent
// heartbeats for a whole lease, and while its last heartbeat is older than half a lease.
func (s *Store) TakeOver(ctx context.Context) (int64, error) {
	taken, err := s.pool.Exec(ctx, takeOver, pg.Args{"instance": s.instance, "lease": s.timing.InstanceLease})
	if err != nil {
		return 0, fmt.Errorf("take over calls: %w", err)
	}
	if _, err := s.pool.Exec(ctx, forgetDead); err != nil {
		return 0, fmt.Errorf("delete dead instances: %w", err)
	}
	return taken.RowsAffected(), nil
}

const handOver = `
WITH released AS (
	UPDATE calls SET owner = NULL
	WHERE owner = @instance AND ended_at IS NULL AND status <> 'fenced'
), unread AS (
	UPDATE carrier_cursors SET reader = NULL, reader_until = now() WHERE reader = @instance
)
DELETE FROM instances WHERE instance_id = @instance`

// HandOver removes this process, which is stopping, from the table instances. The reader of the
// carrier's events then continues the calls of the process. Calls that only have a fence keep their
// owner, and the recovery job ends them.
func (s *Store) HandOver(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, handOver, pg.Args{"instance": s.instance}); err != nil {
		return fmt.Errorf("release the calls of this instance: %w", err)
	}
	return nil
}

const stillFenced = `
SELECT EXISTS (SELECT 1 FROM calls WHERE call_id = @call_id AND owner = @instance AND status = 'fenced'
	AND ending IN ('', 'requested'))`

// StillFenced reports whether the call has the status fenced and this process still owns it. Only
// then may this process dial the call.
func (s *Store) StillFenced(ctx context.Context, callID uuid.UUID) (bool, error) {
	var mine bool
	err := s.pool.QueryRow(ctx, stillFenced, pg.Args{"call_id": callID, "instance": s.instance}).Scan(&mine)
	if err != nil {
		return false, fmt.Errorf("read fence of call %s: %w", callID, err)
	}
	return mine, nil
}
