package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

const enqueue = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, variables,
	schedule_if_outside_hours, max_call_seconds, queued_at, due_at, look_at, traceparent, by_person)
VALUES (@call_request_id, @workspace_id, 'queued', @to_e164, @agent_id, @contact_id, @variables,
	@schedule_if_outside_hours, @max_call_seconds, @queued_at, @due_at,
	greatest(@due_at::timestamptz, ` + frontOf + `@workspace_id::uuid` + newest + `), @traceparent, @by_person)
ON CONFLICT (call_request_id) DO NOTHING`

// Enqueue adds requests to the dial queue, and returns for each request whether it was added. A
// request is not added if the queue already has a row with its id, even if that row is withdrawn or
// has ended. Rows are deleted 60 days after their end (ADR 12).
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, requests ...dialqueue.Request) (added []bool, err error) {
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

func enqueueArgs(r dialqueue.Request) pg.Args {
	return pg.Args{
		"call_request_id": r.CallRequestID, "workspace_id": r.WorkspaceID, "to_e164": string(r.To), "agent_id": r.AgentID,
		"contact_id": r.ContactID, "variables": r.Variables, "schedule_if_outside_hours": r.ScheduleIfOutsideHours,
		"max_call_seconds": r.MaxCallSeconds, "queued_at": r.QueuedAt, "due_at": r.DueAt, "traceparent": r.Traceparent,
		"by_person": r.ByPerson,
	}
}

const selectEnd = `
SELECT q.state, q.workspace_id, q.ended_at, q.ended_at < @before AS late, c.call_id
FROM dial_queue q
LEFT JOIN LATERAL (
	SELECT call_id FROM calls WHERE call_request_id = q.call_request_id AND ended_at IS NOT NULL AND status <> 'void'
	ORDER BY call_id DESC LIMIT 1
) c ON q.state = 'ended'
WHERE q.call_request_id = @call_request_id AND q.ended_at IS NOT NULL`

type endedRow struct {
	State       dialqueue.State `db:"state"`
	WorkspaceID uuid.UUID       `db:"workspace_id"`
	EndedAt     time.Time       `db:"ended_at"`
	Late        bool            `db:"late"`
	CallID      *uuid.UUID      `db:"call_id"` // nil if the request ended without a call
}

// EnqueueOverdue handles a request that the service `calls` published again at reportedAt because
// it had received no end. If the request is not in the queue and endOnly is false, EnqueueOverdue
// adds it. If the request ended more than dialqueue.MaxEndDelay before reportedAt, EnqueueOverdue
// publishes its terminal event again.
func (s *Store) EnqueueOverdue(
	ctx context.Context, tx pgx.Tx, r dialqueue.Request, reportedAt time.Time, endOnly bool,
) (found dialqueue.Found, err error) {
	if !endOnly {
		added, err := s.Enqueue(ctx, tx, r)
		if err != nil {
			return "", err
		}
		if added[0] {
			return dialqueue.Lost, nil
		}
	}
	args := pg.Args{"call_request_id": r.CallRequestID, "before": reportedAt.Add(-dialqueue.MaxEndDelay)}
	ended, err := pg.One[endedRow](ctx, tx, selectEnd, args)
	if errors.Is(err, pg.ErrNotFound) || err == nil && !ended.Late {
		return dialqueue.Waiting, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the end of request %s: %w", r.CallRequestID, err)
	}
	again, err := s.endAgain(ctx, tx, r.CallRequestID, ended)
	if err != nil {
		return "", fmt.Errorf("publish the end of request %s again: %w", r.CallRequestID, err)
	}
	return dialqueue.Over, outbox.Put(ctx, tx, again)
}

// endAgain returns the terminal event of an ended request. If the request had no call, the event
// has the same id as the first terminal event. The reason of a blocked or failed request is not
// stored, so the event has the error dial_state_unknown.
func (s *Store) endAgain(ctx context.Context, tx pgx.Tx, id uuid.UUID, ended endedRow) (outbox.Event, error) {
	var again callstate.Fact
	switch {
	case ended.State == dialqueue.Withdrawn:
		again = dialqueue.NewWithdrawn(id, ended.WorkspaceID, ended.EndedAt)
	case ended.CallID == nil:
		again = dialqueue.NewFailed(id, ended.WorkspaceID, dialqueue.EndUnknown(), ended.EndedAt)
	default:
		var locked []*callstate.Call
		var batch pgx.Batch
		s.queueLock(&batch, []uuid.UUID{*ended.CallID}, &locked)
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return outbox.Event{}, err
		}
		again = locked[0].EndedAgain()
	}
	event := outboxEvents(again)[0]
	event.Time = ended.EndedAt
	return event, nil
}

const withdraw = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, ended_at)
VALUES (@call_request_id, @workspace_id, 'withdrawn', now())
ON CONFLICT (call_request_id) DO UPDATE SET state = 'withdrawn', claimed_by = NULL, ended_at = now(), variables = NULL
	WHERE dial_queue.state = 'queued' AND dial_queue.workspace_id = @workspace_id
RETURNING ended_at`

const withdrawnBefore = `
SELECT state = 'withdrawn' FROM dial_queue WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id`

// WithdrawNow runs Withdraw in its own transaction. On a database server that is not reconciled, it
// returns ErrServerChanged, because a request that is queued there can have been dialed before the
// failover.
func (s *Store) WithdrawNow(ctx context.Context, id, workspaceID uuid.UUID) (withdrawn bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := sameServer(tx.QueryRow(ctx, checkServer, pg.Args{"server": s.server()})); err != nil {
			return err
		}
		if withdrawn, err = s.Withdraw(ctx, tx, id, workspaceID); err != nil {
			return err
		}
		failpoint.Inject("dialer: in withdraw, before commit")
		return nil
	})
	return withdrawn, err
}

// Withdraw takes a request out of the queue and publishes the event `withdrawn`. If the request has
// not arrived yet, it will not be queued when it arrives. Withdraw returns false if the request was
// dialed or ended in another way. A repeated call returns the same result.
func (s *Store) Withdraw(ctx context.Context, tx pgx.Tx, id, workspaceID uuid.UUID) (withdrawn bool, err error) {
	args := pg.Args{"call_request_id": id, "workspace_id": workspaceID}
	at, err := pg.Value[time.Time](ctx, tx, withdraw, args)
	if err == nil {
		return true, outbox.Put(ctx, tx, outboxEvents(dialqueue.NewWithdrawn(id, workspaceID, at))...)
	}
	if !errors.Is(err, pg.ErrNotFound) {
		return false, fmt.Errorf("withdraw request %s: %w", id, err)
	}
	withdrawn, err = pg.Value[bool](ctx, tx, withdrawnBefore, args)
	if errors.Is(err, pg.ErrNotFound) {
		return false, nil // the id belongs to a request of another workspace
	}
	if err != nil {
		return false, fmt.Errorf("read state of request %s: %w", id, err)
	}
	return withdrawn, nil
}

// ofClaim is an SQL condition: the request still has the given claim. The end time of a claim
// distinguishes it from a later claim by the same process.
const ofClaim = `call_request_id = @call_request_id AND state = 'queued' AND claimed_by = @instance
	AND coalesce(look_at, 'infinity') = @claimed_until`

func (s *Store) claimArgs(r dialqueue.Request) pg.Args {
	return pg.Args{
		"call_request_id": r.CallRequestID, "instance": s.instance, "claimed_until": r.ClaimedUntil,
	}
}

const putBack = `
UPDATE dial_queue q SET claimed_by = NULL, looks = looks + @looked::integer,
	look_at = CASE WHEN due_at > now() THEN due_at
		WHEN @wait::interval <= interval '0' THEN greatest(due_at, ` + frontOf + `q.workspace_id` + newest + `)
		ELSE now() + @wait::interval END
WHERE ` + ofClaim

// PutBack returns a claimed request to the queue. The request can be claimed again after delay, but
// not before its due time. If delay is zero, the request keeps its position in the queue.
// agentLooks is added to the count of checks that did not find the agent. If this process has lost
// the claim, PutBack does nothing.
func (s *Store) PutBack(ctx context.Context, r dialqueue.Request, delay time.Duration, agentLooks int) error {
	args := s.claimArgs(r)
	args["wait"], args["looked"] = delay, agentLooks
	if _, err := s.pool.Exec(ctx, putBack, args); err != nil {
		return fmt.Errorf("put back request %s: %w", r.CallRequestID, err)
	}
	return nil
}

// @until comes from the clock of contacts-compliance, so it can be in the past on this database
// server. Without the minimum of one second, the request would be claimed and checked again without
// a pause.
const rescheduleRequest = `
WITH next AS (SELECT greatest(@until::timestamptz, now() + interval '1 second') AS at)
UPDATE dial_queue SET due_at = next.at, look_at = next.at, expire_at = NULL, claimed_by = NULL FROM next
WHERE ` + ofClaim + ` RETURNING now(), next.at`

// Reschedule moves a claimed request to its next calling window, at least one second ahead. It
// returns ErrLost if the request was withdrawn or the claim is lost.
func (s *Store) Reschedule(ctx context.Context, r dialqueue.Request, windowStart time.Time) error {
	args := s.claimArgs(r)
	args["until"] = windowStart
	return s.endClaim(ctx, rescheduleRequest, args, func(at time.Time) callstate.Fact {
		return dialqueue.NewRescheduled(r.CallRequestID, r.WorkspaceID, windowStart, at)
	}, &windowStart)
}

const endRequest = `
UPDATE dial_queue SET state = @state, claimed_by = NULL, ended_at = now(), variables = NULL
WHERE ` + ofClaim + ` RETURNING now()`

// Block ends a claimed request that may not be dialed. It returns ErrLost if the request was
// withdrawn or the claim is lost.
func (s *Store) Block(ctx context.Context, r dialqueue.Request, why dialqueue.Refusal) error {
	args := s.claimArgs(r)
	args["state"] = string(dialqueue.Blocked)
	return s.endClaim(ctx, endRequest, args, func(at time.Time) callstate.Fact {
		return dialqueue.NewBlocked(r.CallRequestID, r.WorkspaceID, why, at)
	})
}

// Fail ends a claimed request that cannot be dialed. It returns ErrLost if the request was
// withdrawn or the claim is lost.
func (s *Store) Fail(ctx context.Context, r dialqueue.Request, why dialqueue.Refusal) error {
	args := s.claimArgs(r)
	args["state"] = string(dialqueue.Failed)
	return s.endClaim(ctx, endRequest, args, func(at time.Time) callstate.Fact {
		return dialqueue.NewFailed(r.CallRequestID, r.WorkspaceID, why, at)
	})
}

// endClaim runs an UPDATE that ends the claim of a request, and publishes the event of newFact.
// The first value that the UPDATE returns is the current time. The other values are scanned into
// columns.
func (s *Store) endClaim(ctx context.Context, update string, args pg.Args, newFact func(at time.Time) callstate.Fact,
	columns ...any) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var at time.Time
		err := tx.QueryRow(ctx, update, args).Scan(append([]any{&at}, columns...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrLost
		}
		if err != nil {
			return fmt.Errorf("change request %s: %w", args["call_request_id"], err)
		}
		return outbox.Put(ctx, tx, outboxEvents(newFact(at))...)
	})
}

// expireOld ends requests that are older than the age limit. Time in which dialing was paused does
// not count. no_capacity is true if the workspace lacked capacity while the request waited.
//
// If a pause postpones the end of a request, the request is checked again at the postponed end,
// but at the earliest after one minute (or after a sixtieth of a limit below one hour).
const expireOld = `
WITH old AS MATERIALIZED (
	SELECT e.call_request_id, NOT e.held AND e.claimed_by IS NULL AND e.look_at <= now() AS waited,
		e.due_at + @queue_limit::interval + paused_time(e.workspace_id, e.agent_id, e.due_at) AS expire_at
	FROM dial_queue e
	WHERE e.state = 'queued' AND e.due_at < now() - @queue_limit::interval AND (e.claimed_by IS NULL OR e.look_at <= now())
		AND coalesce(e.expire_at, '-infinity') <= now() AND ` + onServer + `
	ORDER BY e.due_at LIMIT 200 FOR UPDATE SKIP LOCKED
), postponed AS (
	UPDATE dial_queue q
	SET expire_at = greatest(old.expire_at, now() + least(interval '1 minute', @queue_limit::interval / 60)) FROM old
	WHERE q.call_request_id = old.call_request_id AND old.expire_at > now()
), expired AS (
	UPDATE dial_queue q SET state = 'failed', claimed_by = NULL, ended_at = now(), variables = NULL FROM old
	WHERE q.call_request_id = old.call_request_id AND old.expire_at <= now()
	RETURNING q.call_request_id, q.workspace_id, q.traceparent, old.waited, q.look_at
)
SELECT e.call_request_id, e.workspace_id, e.traceparent, now() AS at,
	coalesce(e.waited AND (SELECT b.no_capacity_at FROM rate_buckets b WHERE b.scope = e.workspace_id::text
		ORDER BY b.version DESC LIMIT 1) >= e.look_at, false) AS no_capacity
FROM expired e`

// expireWaiting ends the oldest requests of each workspace for which a claim found no capacity in
// the last minute. Time in which dialing was paused does not count.
const expireWaiting = `
UPDATE dial_queue q SET state = 'failed', ended_at = now(), variables = NULL
WHERE q.call_request_id = ANY (ARRAY(
	SELECT e.call_request_id FROM workspaces w
	CROSS JOIN LATERAL (SELECT b.no_capacity_at, b.scan_from FROM rate_buckets b WHERE b.scope = w.workspace_id::text
		ORDER BY b.version DESC LIMIT 1) b
	CROSS JOIN LATERAL (
		SELECT r.call_request_id, r.due_at, r.agent_id FROM dial_queue r
		WHERE r.workspace_id = w.workspace_id AND r.state = 'queued' AND r.claimed_by IS NULL
			AND r.look_at >= coalesce(b.scan_from, '-infinity') AND r.look_at <= b.no_capacity_at
		ORDER BY r.look_at LIMIT 200 FOR UPDATE SKIP LOCKED) e
	WHERE b.no_capacity_at > now() - interval '1 minute' AND CASE WHEN e.due_at < now() - @capacity_limit::interval
		THEN e.due_at + paused_time(w.workspace_id, e.agent_id, e.due_at) < now() - @capacity_limit::interval
		ELSE false END AND ` + onServer + ` LIMIT 200))
RETURNING q.call_request_id, q.workspace_id, q.traceparent, now() AS at, true AS no_capacity`

type expiredRow struct {
	CallRequestID uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID `db:"workspace_id"`
	Traceparent   string    `db:"traceparent"`
	At            time.Time `db:"at"`
	NoCapacity    bool      `db:"no_capacity"`
}

// Expire ends requests that were never dialed: up to 200 that have waited for capacity for longer
// than CapacityLimit, and up to 200 that are older than QueueLimit. It returns how many requests it
// ended. On a database server that was not set with UseServer it ends none, because that server can
// lack the fence of a request.
func (s *Store) Expire(ctx context.Context) (ended int, err error) {
	if s.timing.CapacityLimit < s.timing.QueueLimit {
		if ended, err = s.expireRequests(ctx, expireWaiting, pg.Args{"capacity_limit": s.timing.CapacityLimit}); err != nil {
			return ended, err
		}
	}
	old, err := s.expireRequests(ctx, expireOld, pg.Args{"queue_limit": s.timing.QueueLimit})
	return ended + old, err
}

func (s *Store) expireRequests(ctx context.Context, statement string, args pg.Args) (ended int, err error) {
	args["server"] = s.server()
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		expired, err := pg.Many[expiredRow](ctx, tx, statement, args)
		if err != nil {
			return fmt.Errorf("expire requests: %w", err)
		}
		ended = len(expired)
		var batch pgx.Batch
		for _, row := range expired {
			failed := dialqueue.NewFailed(row.CallRequestID, row.WorkspaceID, dialqueue.Expired(row.NoCapacity), row.At)
			if err := queueTraced(ctx, &batch, "queue expired", row.Traceparent, failed); err != nil {
				return err
			}
		}
		return sendBatch(ctx, tx, &batch)
	})
	return ended, err
}

// frontOf + id of a workspace + newest is an SQL expression for the front of the workspace's queue,
// the earliest look_at that a due request may have. Claims read the queue only from
// rate_buckets.scan_from onwards. So a request that becomes due again or arrives late must not get
// an earlier look_at. The front is NULL if no request of the workspace was claimed yet.
const (
	frontOf = `(SELECT b.next_scan_from FROM rate_buckets b WHERE b.scope = `
	newest  = `::text ORDER BY b.version DESC LIMIT 1)`
)

// returnStrays changes requests whose look_at is before the scan position of their workspace, where
// no claim reads them. A transaction that takes more than ten seconds can leave a request there.
const returnStrays = `
UPDATE dial_queue q SET look_at = ` + frontOf + `q.workspace_id` + newest + `
WHERE q.call_request_id = ANY (ARRAY(
	SELECT r.call_request_id FROM workspaces w
	CROSS JOIN LATERAL (SELECT b.scan_from FROM rate_buckets b WHERE b.scope = w.workspace_id::text
		ORDER BY b.version DESC LIMIT 1) b
	CROSS JOIN LATERAL (SELECT r.call_request_id FROM dial_queue r
		WHERE r.workspace_id = w.workspace_id AND r.state = 'queued' AND r.look_at < b.scan_from
		ORDER BY r.look_at LIMIT 100 FOR UPDATE SKIP LOCKED) r
	LIMIT 1000))`

// ReturnStrays moves queued requests that no claim reads to the front of their workspace's queue.
// It returns how many requests it moved, at most 1,000. It also reads all dead rows of the queue,
// so it must not run often.
func (s *Store) ReturnStrays(ctx context.Context) (int64, error) {
	moved, err := s.pool.Exec(ctx, returnStrays)
	if err != nil {
		return 0, fmt.Errorf("move requests before the scan position: %w", err)
	}
	return moved.RowsAffected(), nil
}

// moveLongCalls sets look_at to the current time in requests of live calls whose look_at is more
// than five minutes ago.
const moveLongCalls = `
UPDATE dial_queue q SET look_at = now()
WHERE q.call_request_id = ANY (ARRAY(
	SELECT l.call_request_id FROM dial_queue l
	WHERE l.state = 'dialing' AND l.look_at < now() - interval '5 minutes'
		AND l.look_at >= coalesce((SELECT b.scan_from FROM rate_buckets b WHERE b.scope = @total
			ORDER BY b.version DESC LIMIT 1), '-infinity')
	ORDER BY l.look_at LIMIT 10000 FOR UPDATE SKIP LOCKED))`

// moveLegs and moveInbound change live legs and live inbound calls whose counted_at is more than
// five minutes ago.
const (
	moveLegs = `
UPDATE sip_legs SET counted_at = now() WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM sip_legs WHERE ended_at IS NULL AND counted_at < now() - interval '5 minutes'
	LIMIT 10000 FOR UPDATE SKIP LOCKED))`
	moveInbound = `
UPDATE calls SET counted_at = now() WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls
	WHERE ended_at IS NULL AND direction = 'inbound' AND counted_at < now() - interval '5 minutes'
	LIMIT 10000 FOR UPDATE SKIP LOCKED))`
)

// MoveLongCalls sets the indexed columns look_at and counted_at of long calls to the current time,
// so that the counts for the limits stay fast and complete. It returns how many rows it changed, at
// most 10,000 of each table.
//
// The count of requests in use reads all rows since the oldest live call, so one long call would
// make every count slow. The counts of legs and inbound calls read only the last ten minutes, so
// MoveLongCalls must run at least every four minutes.
func (s *Store) MoveLongCalls(ctx context.Context) (moved int64, err error) {
	for _, statement := range []string{moveLegs, moveInbound, moveLongCalls} {
		tag, err := s.pool.Exec(ctx, statement, pg.Args{"total": totalScope})
		if err != nil {
			return moved, fmt.Errorf("move long calls: %w", err)
		}
		moved += tag.RowsAffected()
	}
	return moved, nil
}
