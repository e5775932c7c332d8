package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/fact"
	"ringfence.dev/services/dialer/internal/request"
)

const enqueue = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, variables,
	schedule_if_outside_hours, max_call_seconds, queued_at, due_at, look_at, ready, traceparent)
VALUES (@call_request_id, @workspace_id, 'queued', @to_e164, @agent_id, @contact_id, @variables,
	@schedule_if_outside_hours, @max_call_seconds, @queued_at, @due_at, @due_at, @due_at <= now(), @traceparent)
ON CONFLICT (call_request_id) DO NOTHING`

// Enqueue puts requests into the dial queue and returns for each whether it was added. A request whose id
// was in the queue before, even if it was withdrawn before it arrived or ended long ago, is not added again.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, requests ...request.Request) (added []bool, err error) {
	var batch pgx.Batch
	added = make([]bool, len(requests))
	for i, r := range requests {
		batch.Queue(enqueue, enqueueArgs(r)).Exec(func(tag pgconn.CommandTag) error {
			added[i] = tag.RowsAffected() == 1
			return nil
		})
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("enqueue %d requests: %w", len(requests), err)
	}
	return added, nil
}

func enqueueArgs(r request.Request) pg.Args {
	return pg.Args{
		"call_request_id": r.CallRequestID, "workspace_id": r.WorkspaceID, "to_e164": string(r.To), "agent_id": r.AgentID,
		"contact_id": r.ContactID, "variables": r.Variables, "schedule_if_outside_hours": r.ScheduleIfOutsideHours,
		"max_call_seconds": r.MaxCallSeconds, "queued_at": r.QueuedAt, "due_at": r.DueAt, "traceparent": r.Traceparent,
	}
}

const endedBefore = `SELECT coalesce(ended_at < @before, false) FROM dial_queue WHERE call_request_id = @call_request_id`

// EnqueueOverdue is Enqueue for an order that comes again at a time because the request is held for queued long after it was due, and says how it was found.
func (s *Store) EnqueueOverdue(ctx context.Context, tx pgx.Tx, r request.Request, at time.Time) (found request.Found, err error) {
	did, err := tx.Exec(ctx, enqueue, enqueueArgs(r))
	if err != nil {
		return "", fmt.Errorf("enqueue request %s: %w", r.CallRequestID, err)
	}
	if did.RowsAffected() == 1 {
		return request.Lost, nil
	}
	var over bool
	err = tx.QueryRow(ctx, endedBefore, pg.Args{"call_request_id": r.CallRequestID, "before": at.Add(-request.Telling)}).Scan(&over)
	switch {
	case err != nil:
		return "", fmt.Errorf("look at request %s: %w", r.CallRequestID, err)
	case over:
		return request.Over, nil
	}
	return request.Waiting, nil
}

const withdraw = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, ended_at)
VALUES (@call_request_id, @workspace_id, 'withdrawn', now())
ON CONFLICT (call_request_id) DO UPDATE SET state = 'withdrawn', claimed_by = NULL, ended_at = now(), variables = NULL
	WHERE dial_queue.state = 'queued' AND dial_queue.workspace_id = @workspace_id
RETURNING ended_at`

// A statement of its own, behind the row's lock: the slot of a claim that the row's change had to wait for is younger than what the change itself sees.
const giveBackSlot = `DELETE FROM slots WHERE call_request_id = @call_request_id`

const withdrawnBefore = `
SELECT state = 'withdrawn' FROM dial_queue WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id`

// WithdrawNow is Withdraw in a transaction of its own.
func (s *Store) WithdrawNow(ctx context.Context, id, workspaceID uuid.UUID) (withdrawn bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if withdrawn, err = s.Withdraw(ctx, tx, id, workspaceID); err != nil {
			return err
		}
		crash.Point("dialer: in withdraw, before commit")
		return nil
	})
	return withdrawn, err
}

// Withdraw takes a request out of the queue, or makes sure that it never gets in when it has not come yet, and tells so in the same
// transaction. False: it was dialled or has ended. Again: the same answer.
func (s *Store) Withdraw(ctx context.Context, tx pgx.Tx, id, workspaceID uuid.UUID) (withdrawn bool, err error) {
	args := pg.Args{"call_request_id": id, "workspace_id": workspaceID}
	var at time.Time
	err = tx.QueryRow(ctx, withdraw, args).Scan(&at)
	if err == nil {
		if _, err := tx.Exec(ctx, giveBackSlot, args); err != nil {
			return false, fmt.Errorf("give back the slot of request %s: %w", id, err)
		}
		return true, outbox.Put(ctx, tx, outgoing(request.NewWithdrawn(id, workspaceID, at))...)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("withdraw request %s: %w", id, err)
	}
	err = tx.QueryRow(ctx, withdrawnBefore, args).Scan(&withdrawn)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // another workspace's
	}
	if err != nil {
		return false, fmt.Errorf("look at request %s: %w", id, err)
	}
	return withdrawn, nil
}

const putBack = `
UPDATE dial_queue SET claimed_by = NULL, looks = looks + @looked::integer,
	ready = due_at <= now() AND @wait::interval <= interval '0',
	look_at = CASE WHEN due_at > now() OR @wait::interval <= interval '0' THEN due_at ELSE now() + @wait::interval END
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance`

// PutBack returns a claimed request to the queue and frees its slot. The request is looked at after wait; if wait is
// zero it keeps its place in the queue. A request that is not due is looked at when it is due. looked counts the
// looks that found no agent. If the claim is lost, PutBack does nothing.
func (s *Store) PutBack(ctx context.Context, id uuid.UUID, wait time.Duration, looked int) error {
	args := pg.Args{"call_request_id": id, "wait": wait, "looked": looked, "instance": s.instance}
	err := pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var batch pgx.Batch
		batch.Queue(putBack, args).Exec(func(did pgconn.CommandTag) error {
			if did.RowsAffected() == 1 {
				tx.Later(giveBackSlot, args, nil)
			}
			return nil
		})
		return tx.Ask(ctx, &batch)
	})
	if err != nil {
		return fmt.Errorf("put back request %s: %w", id, err)
	}
	return nil
}

// The time comes from the clock of contacts-compliance. If that clock is behind, the time can be past
// here, and the request would be claimed and checked again without a pause.
const reschedule = `
WITH next AS (SELECT greatest(@until::timestamptz, now() + interval '1 second') AS at)
UPDATE dial_queue SET due_at = next.at, look_at = next.at, claimed_by = NULL FROM next
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance
RETURNING now(), next.at`

// Reschedule moves a claimed request to its next calling window, at least one second ahead. It returns
// ErrLost if the request was withdrawn.
func (s *Store) Reschedule(ctx context.Context, r request.Request, until time.Time) error {
	args := pg.Args{"call_request_id": r.CallRequestID, "until": until, "instance": s.instance}
	return s.tell(ctx, reschedule, args, func(at time.Time) fact.Fact {
		return request.NewRescheduled(r.CallRequestID, r.WorkspaceID, until, at)
	}, &until)
}

const block = `
UPDATE dial_queue SET state = 'blocked', claimed_by = NULL, ended_at = now(), variables = NULL
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance
RETURNING now()`

// Block ends a claimed request that may not be dialled. ErrLost: it was withdrawn.
func (s *Store) Block(ctx context.Context, r request.Request, why request.Refusal) error {
	args := pg.Args{"call_request_id": r.CallRequestID, "instance": s.instance}
	return s.tell(ctx, block, args, func(at time.Time) fact.Fact {
		return request.NewBlocked(r.CallRequestID, r.WorkspaceID, why, at)
	})
}

// tell runs the guarded update that ends the claim of one row, gives back its slot and publishes the event
// that of returns. The update returns the time, and further columns for also.
func (s *Store) tell(ctx context.Context, update string, args pg.Args, of func(at time.Time) fact.Fact,
	also ...any) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var at time.Time
		err := tx.QueryRow(ctx, update, args).Scan(append([]any{&at}, also...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrLost
		}
		if err != nil {
			return fmt.Errorf("change request %s: %w", args["call_request_id"], err)
		}
		var batch pgx.Batch
		batch.Queue(giveBackSlot, args)
		if err := outbox.Queue(ctx, &batch, outgoing(of(at))...); err != nil {
			return err
		}
		return send(ctx, tx, &batch)
	})
}

// What was ready, and its workspace's due work left for want of room since it was, found no room.
const expire = `
WITH expired AS (
	UPDATE dial_queue q SET state = 'failed', claimed_by = NULL, ended_at = now(), variables = NULL
	WHERE q.call_request_id = ANY (ARRAY(
		SELECT e.call_request_id FROM dial_queue e
		WHERE e.state = 'queued' AND e.due_at < now() - @queue_limit::interval AND (e.claimed_by IS NULL OR e.look_at <= now())
		ORDER BY e.due_at LIMIT 200 FOR UPDATE SKIP LOCKED))
	RETURNING q.call_request_id, q.workspace_id, q.traceparent, q.ready, q.look_at
), given_back AS (
	DELETE FROM slots WHERE call_request_id = ANY (ARRAY(SELECT e.call_request_id FROM expired e))
)
SELECT e.call_request_id, e.workspace_id, e.traceparent, now() AS at,
	e.ready AND EXISTS (SELECT 1 FROM paces p WHERE p.workspace_id = e.workspace_id AND p.crowded_at >= e.look_at) AS no_room
FROM expired e`

// The oldest of each workspace that lately found no room.
const expireCrowded = `
UPDATE dial_queue q SET state = 'failed', ended_at = now(), variables = NULL
WHERE q.call_request_id = ANY (ARRAY(
	SELECT e.call_request_id FROM paces p, LATERAL (
		SELECT r.call_request_id FROM dial_queue r
		WHERE r.workspace_id = p.workspace_id AND r.state = 'queued' AND r.ready AND r.look_at < now() - @capacity_limit::interval
			AND r.look_at <= p.crowded_at
		ORDER BY r.look_at LIMIT 200 FOR UPDATE SKIP LOCKED) e
	WHERE p.crowded_at > now() - interval '1 minute' LIMIT 200))
RETURNING q.call_request_id, q.workspace_id, q.traceparent, now() AS at, true AS no_room`

// expiredRow is a request that reached the age limit.
type expiredRow struct {
	CallRequestID uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID `db:"workspace_id"`
	Traceparent   string    `db:"traceparent"`
	At            time.Time `db:"at"`
	NoRoom        bool      `db:"no_room"`
}

// Expire ends requests that were never dialled: up to 200 that have waited for room longer than the capacity limit, and up to 200 past the age limit. It
// answers how many.
func (s *Store) Expire(ctx context.Context) (ended int, err error) {
	if s.timing.CapacityLimit < s.timing.QueueLimit {
		if ended, err = s.expire(ctx, expireCrowded, pg.Args{"capacity_limit": s.timing.CapacityLimit}); err != nil {
			return ended, err
		}
	}
	old, err := s.expire(ctx, expire, pg.Args{"queue_limit": s.timing.QueueLimit})
	return ended + old, err
}

func (s *Store) expire(ctx context.Context, which string, args pg.Args) (ended int, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, which, args)
		if err != nil {
			return fmt.Errorf("expire requests: %w", err)
		}
		expired, err := pgx.CollectRows(rows, pgx.RowToStructByName[expiredRow])
		if err != nil {
			return fmt.Errorf("expire requests: %w", err)
		}
		ended = len(expired)
		var batch pgx.Batch
		for _, row := range expired {
			failed := request.NewFailed(row.CallRequestID, row.WorkspaceID, request.Expired(row.NoRoom), row.At)
			if err := queueTraced(ctx, &batch, "queue expired", row.Traceparent, failed); err != nil {
				return err
			}
		}
		return send(ctx, tx, &batch)
	})
	return ended, err
}

// Slot is one request's place in what the limits count.
type Slot struct {
	CallRequestID uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID `db:"workspace_id"`
	Trunk         string    `db:"trunk"`
}

// Requests whose time has come, oldest first, whatever they waited for. A claim that ran out gives its slot back.
const comeOldest = `
WITH come AS (
	UPDATE dial_queue SET ready = true, held = false, claimed_by = NULL
	WHERE call_request_id = ANY (ARRAY(
		SELECT q.call_request_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.look_at <= now()
		ORDER BY q.look_at LIMIT @most FOR UPDATE SKIP LOCKED))
	RETURNING call_request_id
), given_back AS (
	DELETE FROM slots WHERE call_request_id = ANY (ARRAY(SELECT c.call_request_id FROM come c))
)
SELECT count(*) FROM come`

// The same by workspaces in turn, a few of each.
const comeInTurn = `
WITH RECURSIVE turn AS MATERIALIZED (
	SELECT coalesce((SELECT t.workspace_id FROM turns t WHERE t.round = 'come'), '00000000-0000-0000-0000-000000000000') AS last
), hop AS (
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.claimed_by IS NULL AND q.workspace_id > turn.last
		ORDER BY q.workspace_id LIMIT 1) AS workspace_id, 1 AS step FROM turn
	UNION ALL
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.claimed_by IS NULL AND q.workspace_id > hop.workspace_id
		ORDER BY q.workspace_id LIMIT 1), hop.step + 1
	FROM hop WHERE hop.workspace_id IS NOT NULL AND hop.step < @steps::integer
), come AS (
	UPDATE dial_queue SET ready = true, held = false WHERE call_request_id = ANY (ARRAY(
		SELECT due.call_request_id FROM hop, LATERAL (
			SELECT q.call_request_id FROM dial_queue q WHERE q.workspace_id = hop.workspace_id AND q.state = 'queued' AND NOT q.ready
				AND q.claimed_by IS NULL AND q.look_at <= now() ORDER BY q.look_at LIMIT @each::bigint FOR UPDATE SKIP LOCKED) due))
)
INSERT INTO turns (round, workspace_id)
SELECT 'come', coalesce((SELECT hop.workspace_id FROM hop ORDER BY hop.step DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')
ON CONFLICT (round) DO UPDATE SET workspace_id = EXCLUDED.workspace_id`

// A slot belongs to a request that is claimed or in a call. Claim and slot commit together, and so do the end of either and the slot's, so one statement
// sees both or none. The queue is read by id, a slot at a time: a join would read all that is scheduled ahead.
const giveBackLeaked = `
DELETE FROM slots s
WHERE NOT coalesce((SELECT q.state = 'dialing' OR q.state = 'queued' AND q.claimed_by IS NOT NULL
	FROM dial_queue q WHERE q.call_request_id = s.call_request_id), false)
RETURNING s.call_request_id, s.workspace_id, s.trunk`

// The lock keeps the call from ending before its slot is there to be given back.
const takeMissing = `
INSERT INTO slots (call_request_id, workspace_id, trunk)
SELECT c.call_request_id, c.workspace_id, f.trunk
FROM (SELECT l.call_id, l.call_request_id, l.workspace_id FROM calls l
	WHERE l.ended_at IS NULL AND l.direction = 'outbound' AND NOT EXISTS (SELECT 1 FROM slots s WHERE s.call_request_id = l.call_request_id)
	LIMIT 1000 FOR SHARE SKIP LOCKED) c
JOIN fences f ON f.call_id = c.call_id
ON CONFLICT (call_request_id) DO NOTHING`

// ReconcileSlots holds the slots against the truth, the claims and calls that there are. Leaked slots, which outlived both, are given back and answered;
// missing counts calls that had none and have one now, as those of a build that knew no slots.
func (s *Store) ReconcileSlots(ctx context.Context) (leaked []Slot, missing int64, err error) {
	var ready int64
	if err := s.pool.QueryRow(ctx, comeOldest, pg.Args{"most": come}).Scan(&ready); err != nil {
		return nil, 0, fmt.Errorf("give back claims that ran out: %w", err)
	}
	rows, err := s.pool.Query(ctx, giveBackLeaked)
	if err != nil {
		return nil, 0, fmt.Errorf("give back leaked slots: %w", err)
	}
	if leaked, err = pgx.CollectRows(rows, pgx.RowToStructByName[Slot]); err != nil {
		return nil, 0, fmt.Errorf("give back leaked slots: %w", err)
	}
	did, err := s.pool.Exec(ctx, takeMissing)
	if err != nil {
		return leaked, 0, fmt.Errorf("take missing slots: %w", err)
	}
	return leaked, did.RowsAffected(), nil
}
