package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// StreamPosition is the position in a carrier's event stream up to which the events are applied.
type StreamPosition struct {
	Stream string `db:"feed"`
	Cursor int64  `db:"cursor"`
}

// Arrived reports that an inbound call has begun to ring.
type Arrived struct {
	CallID    uuid.UUID
	From, To  string
	RingingAt time.Time
}

const insertCursor = `INSERT INTO carrier_cursors (trunk) VALUES (@trunk) ON CONFLICT (trunk) DO NOTHING`

const claimCursor = `
UPDATE carrier_cursors SET reader = @instance, reader_until = now() + @lease::interval
WHERE trunk = @trunk AND (reader = @instance OR reader_until <= now()) AND ` + onServer + `
RETURNING feed, cursor`

// ClaimEventStream makes this process the reader of a carrier's events for one instance lease,
// which MoveStreamPosition extends. It returns the position from which to read. mine is false if
// another process is the reader.
func (s *Store) ClaimEventStream(ctx context.Context, trunk string) (place StreamPosition, mine bool, err error) {
	args := pg.Args{
		"trunk": trunk, "instance": s.instance, "lease": s.timing.InstanceLease, "server": s.server(),
	}
	for range 2 {
		place, err := pg.One[StreamPosition](ctx, s.pool, claimCursor, args)
		if err == nil {
			return place, true, nil
		}
		if !errors.Is(err, pg.ErrNotFound) {
			return StreamPosition{}, false, fmt.Errorf("read position of carrier %s: %w", trunk, err)
		}
		if _, err := s.pool.Exec(ctx, insertCursor, args); err != nil {
			return StreamPosition{}, false, fmt.Errorf("insert position of carrier %s: %w", trunk, err)
		}
	}
	return StreamPosition{}, false, nil
}

const moveCursor = `
UPDATE carrier_cursors SET feed = @feed, cursor = @cursor, reader_until = now() + @lease::interval
WHERE trunk = @trunk AND reader = @instance AND feed = @was_feed AND cursor = @was_cursor
	AND ` + onServer

// mayAnswer is an SQL condition: the dialer may answer an inbound call to a number n that is
// assigned to the agent a of the workspace w.
const mayAnswer = `NOT coalesce(a.deleted, false) AND w.status IS DISTINCT FROM 'suspended'
	AND (@test::boolean IS NULL OR coalesce(w.test, false) = @test)`

// insertArrival inserts no row if the workspace is suspended, or if the carrier does not place
// calls of the workspace's mode (live or test). The call is then stored as an orphaned call and
// hung up.
const insertArrival = `
INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at, max_call_seconds,
	end_by, deadline_at, answer_at, test, priced)
SELECT @call_id, n.workspace_id, 'inbound', @from, n.phone_e164, n.agent_id, 'ringing', @ringing_at,
	least(coalesce(nullif(a.max_call_seconds, 0), 600), w.inbound_max_call_seconds),
	now() + @ring_limit::interval, now() + @ring_limit::interval + @grace::interval, now(), coalesce(w.test, false),
	coalesce(w.inbound_per_minute_micro, 0) > 0
FROM numbers n LEFT JOIN agents a ON a.agent_id = n.agent_id LEFT JOIN workspaces w ON w.workspace_id = n.workspace_id
WHERE n.phone_e164 = @to AND ` + mayAnswer + `
ON CONFLICT (call_id) DO NOTHING`

const isServed = `
SELECT EXISTS (
	SELECT 1 FROM numbers n LEFT JOIN agents a ON a.agent_id = n.agent_id LEFT
	    JOIN workspaces w ON w.workspace_id = n.workspace_id
	WHERE n.phone_e164 = @to AND ` + mayAnswer + `)`

// Serves reports whether the dialer answers inbound calls to a number. The number must be assigned
// to an agent. The workspace must not be suspended, and its mode (live or test) must be one of the
// store's modes.
func (s *Store) Serves(ctx context.Context, to string) (served bool, err error) {
	if err = s.pool.QueryRow(ctx, isServed, pg.Args{"to": to, "test": s.modes.Test()}).Scan(&served); err != nil {
		return false, fmt.Errorf("look up an inbound number: %w", err)
	}
	return served, nil
}

const insertOrphans = `
INSERT INTO orphaned_calls (call_id, test) SELECT unnest(@call_ids::uuid[]), @test::boolean
ON CONFLICT (call_id) DO NOTHING`

// Folded contains the results of Fold in addition to the changed calls.
type Folded struct {
	// Orphans contains the calls that are live at the carrier, but not in the database. They must be
	// hung up.
	Orphans []uuid.UUID
	// OptOuts contains the opt-outs of calls that have no row.
	OptOuts []*callstate.OptOut
}

// Guard adds a statement to the batch. The statement checks whether the transaction may apply its
// events. If it fails, the transaction applies nothing.
type Guard func(*pgx.Batch)

// RowGuard returns a guard that returns ErrLost if its statement neither changes nor locks a row.
func RowGuard(sql string, args pg.Args) Guard {
	return func(batch *pgx.Batch) {
		batch.Queue(sql, args).Exec(func(did pgconn.CommandTag) error {
			if did.RowsAffected() == 0 {
				return ErrLost
			}
			return nil
		})
	}
}

// MoveStreamPosition returns the guard of a batch of a carrier's events. The guard stores
// newPosition and extends the lease. It returns ErrLost if another process is the reader, or if the
// stored position is not oldPosition.
func (s *Store) MoveStreamPosition(trunk string, oldPosition, newPosition StreamPosition) Guard {
	return RowGuard(moveCursor, pg.Args{
		"trunk": trunk, "instance": s.instance, "feed": newPosition.Stream, "cursor": newPosition.Cursor,
		"was_feed": oldPosition.Stream, "was_cursor": oldPosition.Cursor, "lease": s.timing.InstanceLease,
		"server": s.server(),
	})
}

// Events contains the events that one transaction applies to calls.
type Events struct {
	// Guard is the first statement of the transaction. It is nil if the events are applied without a
	// condition.
	Guard   Guard
	Arrived []Arrived
	// Calls contains the ids of all calls that have events. Fold applies the events to the calls that
	// have a row. If reconciled is false, the reconciliation can still insert missing rows. If Fold
	// returns an error, the transaction stores nothing.
	Calls []uuid.UUID
	Fold  func(calls map[uuid.UUID]*callstate.Call, reconciled bool) (Folded, error)
}

// ApplyEvents applies events in one transaction: the guard, the rows of the calls and their outbox
// rows commit together. It returns ErrLost if the guard returns ErrLost.
func (s *Store) ApplyEvents(ctx context.Context, events Events) error {
	err := pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var batch pgx.Batch
		var reconciled bool
		batch.Queue(checkServer, pg.Args{"server": s.server()}).QueryRow(func(row pgx.Row) error {
			return row.Scan(&reconciled)
		})
		if events.Guard != nil {
			events.Guard(&batch)
		}
		for _, a := range events.Arrived {
			batch.Queue(insertArrival, pg.Args{
				"call_id": a.CallID, "from": a.From, "to": a.To, "ringing_at": a.RingingAt,
				"ring_limit": s.timing.RingLimit, "grace": s.timing.WatchdogGrace,
				"test": s.modes.Test(),
			})
		}
		var locked []*callstate.Call
		s.queueLock(&batch, events.Calls, &locked)
		if err := tx.RunBatch(ctx, &batch); err != nil {
			return err
		}
		var folded Folded
		var fault error
		err := s.changeLocked(ctx, tx, locked, func(calls map[uuid.UUID]*callstate.Call) {
			folded, fault = events.Fold(calls, reconciled)
		})
		if err = errors.Join(err, fault); err != nil {
			return err
		}
		var rest pgx.Batch
		if len(folded.Orphans) > 0 {
			rest.Queue(insertOrphans, pg.Args{"call_ids": folded.Orphans, "test": s.modes == dialqueue.TestMode})
		}
		for _, o := range folded.OptOuts {
			queueOptOut(&rest, o)
		}
		tx.QueueBatch(&rest)
		return nil
	})
	if err != nil {
		return fmt.Errorf("apply events: %w", err)
	}
	return nil
}

const liveCalls = `SELECT call_id FROM calls WHERE ended_at IS NULL AND status <> 'fenced'
	AND (@test::boolean IS NULL OR test = @test)`

// LiveCalls returns the calls that the carrier accepted and that have not ended, according to the
// database.
func (s *Store) LiveCalls(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := pg.Values[uuid.UUID](ctx, s.pool, liveCalls, pg.Args{"test": s.modes.Test()})
	if err != nil {
		return nil, fmt.Errorf("list live calls: %w", err)
	}
	return ids, nil
}
