package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/fact"
	"ringfence.dev/services/dialer/internal/request"
)

const enqueue = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, variables,
	schedule_if_outside_hours, max_call_seconds, queued_at, due_at, look_at, traceparent)
VALUES (@call_request_id, @workspace_id, 'queued', @to_e164, @agent_id, @contact_id, @variables,
	@schedule_if_outside_hours, @max_call_seconds, @queued_at, @due_at, @due_at, @traceparent)
ON CONFLICT (call_request_id) DO NOTHING`

// Enqueue puts a request into the dial queue, once: for an id that was ever here, withdrawn before it came or long ended, it changes
// nothing and comes to known, a skip.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, r request.Request, known error) error {
	err := pg.Later(ctx, tx, enqueue, pg.Args{
		"call_request_id": r.CallRequestID, "workspace_id": r.WorkspaceID, "to_e164": string(r.To), "agent_id": r.AgentID,
		"contact_id": r.ContactID, "variables": r.Variables, "schedule_if_outside_hours": r.ScheduleIfOutsideHours,
		"max_call_seconds": r.MaxCallSeconds, "queued_at": r.QueuedAt, "due_at": r.DueAt, "traceparent": r.Traceparent,
	}, known)
	if err != nil {
		return fmt.Errorf("enqueue request %s: %w", r.CallRequestID, err)
	}
	return nil
}

const withdraw = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, ended_at)
VALUES (@call_request_id, @workspace_id, 'withdrawn', now())
ON CONFLICT (call_request_id) DO UPDATE SET state = 'withdrawn', claimed_by = NULL, ended_at = now()
	WHERE dial_queue.state = 'queued' AND dial_queue.workspace_id = @workspace_id
RETURNING ended_at`

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
	args := pgx.NamedArgs{"call_request_id": id, "workspace_id": workspaceID}
	var at time.Time
	err = tx.QueryRow(ctx, withdraw, args).Scan(&at)
	if err == nil {
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
UPDATE dial_queue SET claimed_by = NULL, look_at = now() + @wait::interval, looks = looks + @looked::integer
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance`

// PutBack gives a claimed request back to the queue, to be looked at after wait. looked counts towards the patience with an unknown agent.
// One that is no longer ours is left alone.
func (s *Store) PutBack(ctx context.Context, id uuid.UUID, wait time.Duration, looked int) error {
	_, err := s.pool.Exec(ctx, putBack, pgx.NamedArgs{"call_request_id": id, "wait": wait, "looked": looked, "instance": s.instance})
	if err != nil {
		return fmt.Errorf("put back request %s: %w", id, err)
	}
	return nil
}

const reschedule = `
UPDATE dial_queue SET due_at = @until, look_at = @until, claimed_by = NULL
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance
RETURNING now()`

// Reschedule moves a claimed request to its next window. ErrLost: it was withdrawn.
func (s *Store) Reschedule(ctx context.Context, r request.Request, until time.Time) error {
	args := pgx.NamedArgs{"call_request_id": r.CallRequestID, "until": until, "instance": s.instance}
	return s.tell(ctx, reschedule, args, func(at time.Time) fact.Fact {
		return request.NewRescheduled(r.CallRequestID, r.WorkspaceID, until, at)
	})
}

const block = `
UPDATE dial_queue SET state = 'blocked', claimed_by = NULL, ended_at = now()
WHERE call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance
RETURNING now()`

// Block ends a claimed request that may not be dialled. ErrLost: it was withdrawn.
func (s *Store) Block(ctx context.Context, r request.Request, why request.Refusal) error {
	args := pgx.NamedArgs{"call_request_id": r.CallRequestID, "instance": s.instance}
	return s.tell(ctx, block, args, func(at time.Time) fact.Fact {
		return request.NewBlocked(r.CallRequestID, r.WorkspaceID, why, at)
	})
}

// tell runs a guarded update of one row and publishes the fact of it.
func (s *Store) tell(ctx context.Context, update string, args pgx.NamedArgs, of func(at time.Time) fact.Fact) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var at time.Time
		err := tx.QueryRow(ctx, update, args).Scan(&at)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrLost
		}
		if err != nil {
			return fmt.Errorf("change request %s: %w", args["call_request_id"], err)
		}
		return outbox.Put(ctx, tx, outgoing(of(at))...)
	})
}

const expire = `
UPDATE dial_queue q SET state = 'failed', claimed_by = NULL, ended_at = now()
WHERE q.call_request_id = ANY (ARRAY(
	SELECT e.call_request_id FROM dial_queue e
	WHERE e.state = 'queued' AND e.due_at < now() - @queue_limit::interval AND (e.claimed_by IS NULL OR e.look_at <= now())
	ORDER BY e.due_at LIMIT 200 FOR UPDATE SKIP LOCKED))
RETURNING q.call_request_id, q.workspace_id, q.traceparent, now() AS at,
	(SELECT count(*) FROM calls c WHERE c.workspace_id = q.workspace_id AND c.ended_at IS NULL AND c.direction = 'outbound')
	>= coalesce((SELECT w.max_live_calls FROM workspaces w WHERE w.workspace_id = q.workspace_id), @max_live) AS no_room`

// expiredRow is a request that reached the age limit.
type expiredRow struct {
	CallRequestID uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID `db:"workspace_id"`
	Traceparent   string    `db:"traceparent"`
	At            time.Time `db:"at"`
	NoRoom        bool      `db:"no_room"`
}

// Expire ends up to 200 requests that were never dialled within the age limit and answers how many.
func (s *Store) Expire(ctx context.Context, maxLive int32) (int, error) {
	ended := 0
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, expire, pgx.NamedArgs{"queue_limit": s.timing.QueueLimit, "max_live": maxLive})
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
