// Package store owns every SQL statement of the dialer. A state changes by a guarded UPDATE together with the fact that tells of it; whoever
// finds no row has lost the race. It decides nothing: rules live in the nouns.
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
)

// ErrLost says that the row was not in the state that the caller counted on: somebody else was first.
var ErrLost = errors.New("the row changed meanwhile")

// Timing is the store's part of the configuration.
type Timing struct {
	// InstanceLease is how long after its last sign of life a process counts as gone.
	InstanceLease time.Duration
	// ClaimLease is how long a claimed request is one process's alone.
	ClaimLease time.Duration
	// QueueLimit is the age, from due_at, at which a request that was never dialled ends.
	QueueLimit time.Duration
	// CapacityLimit is how long a due request waits for room; at QueueLimit or beyond, that one says when it ends.
	CapacityLimit time.Duration
	// RingLimit is how long we let it ring.
	RingLimit time.Duration
	// WatchdogGrace is how long after its longest time a call is ended without anybody's news.
	WatchdogGrace time.Duration
}

// Store is the dialer's schema as one process, the instance, works on it.
type Store struct {
	pool     *pgxpool.Pool
	instance uuid.UUID
	timing   Timing
	guard    *serverGuard
}

// New works on the pool as the given instance.
func New(pool *pgxpool.Pool, instance uuid.UUID, timing Timing) *Store {
	return &Store{pool: pool, instance: instance, timing: timing, guard: &serverGuard{}}
}

// On returns the store of the same instance on another pool.
func (s *Store) On(pool *pgxpool.Pool) *Store {
	other := *s
	other.pool = pool
	return &other
}

// inTx runs f in one transaction.
func (s *Store) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.InTx(ctx, s.pool, f)
}

// outgoing is a fact as the outbox takes it.
func outgoing(facts ...callstate.Fact) []outbox.Event {
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

// Heartbeat is this process's sign of life. A process that was silent for half the lease begins anew to judge others: after an
// outage of the database everybody looks dead.
func (s *Store) Heartbeat(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, instanceHeartbeat, pg.Args{"instance": s.instance, "lease": s.timing.InstanceLease}); err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

const takeOver = `
UPDATE calls SET owner = @instance, hangup_at = now(), answer_at = NULL,
	ending = CASE WHEN ending = '' THEN 'recovery' ELSE ending END
WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM calls c
	WHERE c.ended_at IS NULL AND c.owner IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = c.owner AND i.seen_at > now() - @lease::interval)
		AND EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = @instance AND i.steady_since <= now() - @lease::interval)
	LIMIT 500 FOR UPDATE OF c SKIP LOCKED))`

const forgetDead = `
DELETE FROM instances i
WHERE i.seen_at < now() - interval '1 hour' AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.owner = i.instance_id AND c.ended_at IS NULL)`

// TakeOver makes the live calls of processes that are gone ours to hang up, and answers how many. Calls of a living process are never touched, nor
// anything before this process has itself been alive for a whole lease.
func (s *Store) TakeOver(ctx context.Context) (int64, error) {
	taken, err := s.pool.Exec(ctx, takeOver, pg.Args{"instance": s.instance, "lease": s.timing.InstanceLease})
	if err != nil {
		return 0, fmt.Errorf("take over orphans: %w", err)
	}
	if _, err := s.pool.Exec(ctx, forgetDead); err != nil {
		return 0, fmt.Errorf("forget dead instances: %w", err)
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

// HandOver ends this instance in order: its calls go on, under whoever reads the news; only a fence without a dial is left to recovery.
func (s *Store) HandOver(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, handOver, pg.Args{"instance": s.instance}); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return nil
}

const stillFenced = `
SELECT EXISTS (SELECT 1 FROM calls WHERE call_id = @call_id AND owner = @instance AND status = 'fenced' AND ending = '')`

// StillFenced says whether the fence is still this process's to dial.
func (s *Store) StillFenced(ctx context.Context, callID uuid.UUID) (bool, error) {
	var mine bool
	err := s.pool.QueryRow(ctx, stillFenced, pg.Args{"call_id": callID, "instance": s.instance}).Scan(&mine)
	if err != nil {
		return false, fmt.Errorf("look at fence of %s: %w", callID, err)
	}
	return mine, nil
}
