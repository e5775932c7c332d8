package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// fenceRequest identifies a claim by the time at which it ends, look_at. The coalesce prevents the
// planner from using an index on look_at, because all requests of a claim have the same value.
const fenceRequest = `
UPDATE dial_queue q SET state = 'dialing', claimed_by = NULL, traceparent = @traceparent
WHERE q.call_request_id = @call_request_id AND q.state = 'queued' AND q.claimed_by = @instance
	AND coalesce(q.look_at, 'infinity') = @claimed_until AND @claimed_until::timestamptz > clock_timestamp()
	AND q.due_at <= now() AND ` + onServer + `
	AND NOT EXISTS (SELECT 1 FROM opt_outs o WHERE o.workspace_id = q.workspace_id AND o.phone_e164 = q.to_e164
		AND (o.acknowledged_at IS NULL OR o.acknowledged_at > now() - interval '5 seconds'))
RETURNING now(), (SELECT count(*) + 1 FROM fences f WHERE f.call_request_id = q.call_request_id)`

const insertFence = `
INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id)
VALUES (@call_id, @call_request_id, (SELECT count(*) + 1 FROM fences f WHERE f.call_request_id = @call_request_id), @trunk, @instance)`

const insertFenced = `
INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, variables,
	status, queued_at, max_call_seconds, deadline_at, owner, traceparent, time_zone, test)
SELECT @call_id, q.call_request_id, q.workspace_id, 'outbound', @from, q.to_e164, q.agent_id, q.contact_id, q.variables,
	'fenced', q.queued_at, q.max_call_seconds, now() + make_interval(secs => q.max_call_seconds) + @grace::interval,
	@instance, @traceparent, @time_zone, @trunk = '` + dialqueue.TestCarrier + `'
FROM dial_queue q WHERE q.call_request_id = @call_request_id`

// boundFenceLocks limits how long the commit of fences waits for a lock. Without this limit, a
// transaction that withdraws many requests could delay a group of fences until their claims expire.
const boundFenceLocks = `SET LOCAL lock_timeout = '500ms'`

// lockNotAvailable is the SQLSTATE of the error after lock_timeout. Postgres then rolls the
// transaction back.
const lockNotAvailable = "55P03"

// oneLiveCallIndex is the unique index that permits only one live call of a workspace to a number.
const oneLiveCallIndex = "calls_one_live"

// Fence is the row that permits a process to dial a claimed request once.
type Fence struct {
	Request dialqueue.Request
	CallID  uuid.UUID
	// From is the caller number. Trunk is the name of the carrier.
	From, Trunk string
	// Trace is the parent span of the call and of its events.
	Trace trace.SpanContext
}

// Fences commits a group of fences in one transaction. For each fence whose conditions are met, it
// changes the request's row to dialing, and inserts the fence and the call.
//
// The result ErrLost means that a fence may not be committed:
//   - The request was withdrawn or is not due.
//   - The claim has expired, or a later claim exists.
//   - The number is in another call of this workspace, or has just opted out.
//   - Another transaction keeps the row locked.
//   - The database server is not the one that was set with UseServer.
//
// After any other error it is unknown whether the fence was committed.
func (s *Store) Fences(ctx context.Context, fences []Fence) (results []error) {
	results = make([]error, len(fences))
	err := pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		clear(results)
		return s.fenceGroup(ctx, tx, fences, results)
	})
	var fault *pgconn.PgError
	busy := errors.As(err, &fault) && (fault.ConstraintName == oneLiveCallIndex || fault.Code == lockNotAvailable)
	var alone errgroup.Group
	alone.SetLimit(fencesAlone)
	for i, f := range fences {
		switch {
		case err == nil || errors.Is(results[i], ErrLost):
		case busy && len(fences) == 1:
			results[i] = ErrLost
		case busy: // one fence failed, so no fence of the group was committed
			alone.Go(func() error {
				results[i] = s.Fences(ctx, fences[i:i+1])[0]
				return nil
			})
		default:
			results[i] = fmt.Errorf("fence request %s with call %s: %w", f.Request.CallRequestID, f.CallID, err)
		}
	}
	_ = alone.Wait()
	return results
}

// After a group of fences has failed, each of its fences is tried again in its own transaction. At
// most fencesAlone of these transactions run concurrently.
const fencesAlone = 8

// Fence does the same as Fences for a single request.
func (s *Store) Fence(ctx context.Context, r dialqueue.Request, callID uuid.UUID, from, trunk string) error {
	fence := Fence{Request: r, CallID: callID, From: from, Trunk: trunk, Trace: trace.SpanContextFromContext(ctx)}
	return s.Fences(ctx, []Fence{fence})[0]
}

// fenceGroup changes the requests in the order of their ids, so that two transactions cannot
// deadlock. It inserts the fences and calls of the changed requests in the same round trip as the
// commit.
func (s *Store) fenceGroup(ctx context.Context, tx *pg.Pipeline, fences []Fence, results []error) error {
	order := make([]int, len(fences))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return bytes.Compare(fences[a].Request.CallRequestID[:], fences[b].Request.CallRequestID[:])
	})
	var guards, inserts pgx.Batch
	guards.Queue(boundFenceLocks)
	for _, i := range order {
		f := fences[i]
		traced := trace.ContextWithSpanContext(ctx, f.Trace)
		args := pg.Args{
			"call_request_id": f.Request.CallRequestID, "call_id": f.CallID, "from": f.From, "trunk": f.Trunk,
			"instance": s.instance, "grace": s.timing.RingLimit + s.timing.WatchdogGrace,
			"traceparent": telemetry.Carrier(traced), "time_zone": f.Request.TimeZone, "server": s.server(),
			"claimed_until": f.Request.ClaimedUntil,
		}
		guards.Queue(fenceRequest, args).QueryRow(func(row pgx.Row) error {
			var at time.Time
			var attempt int32
			err := row.Scan(&at, &attempt)
			if errors.Is(err, pgx.ErrNoRows) {
				results[i] = ErrLost
				return nil
			}
			if err != nil {
				return err
			}
			inserts.Queue(insertFence, args)
			inserts.Queue(insertFenced, args)
			dialing := dialqueue.NewDialing(f.Request.CallRequestID, f.Request.WorkspaceID, attempt, at)
			return outbox.Queue(traced, &inserts, outboxEvents(dialing)...)
		})
	}
	if err := tx.RunBatch(ctx, &guards); err != nil {
		return err
	}
	tx.QueueBatch(&inserts)
	return nil
}

// Releases returns how often the call request was queued again because of a dial with this cause.
func (s *Store) Releases(ctx context.Context, id uuid.UUID, cause callstate.Cause) (releases int, err error) {
	const query = `SELECT count(*) FROM calls
WHERE call_request_id = @call_request_id AND status = 'void' AND hangup_cause = @cause`
	args := pg.Args{"call_request_id": id, "cause": string(cause)}
	if err := s.pool.QueryRow(ctx, query, args).Scan(&releases); err != nil {
		return 0, fmt.Errorf("count the releases of request %s: %w", id, err)
	}
	return releases, nil
}

const voidCall = `
UPDATE calls SET status = 'void', ended_at = now(), variables = NULL, hangup_cause = @cause
WHERE call_id = @call_id AND status = 'fenced' AND owner = @instance AND ending IN ('', 'requested')`

// voidRequest ends a request whose call will not be dialed. It makes requests due again that were
// held for this call.
const voidRequest = `
WITH over AS (
	UPDATE dial_queue SET state = @state, ended_at = now(), variables = NULL
	WHERE call_request_id = @call_request_id AND state = 'dialing'
	RETURNING call_request_id, workspace_id, to_e164
), called_up AS (` + releaseHeld + `)
SELECT now() FROM over`

// releaseHeld makes requests due again that were held for an ended call, up to 100 requests per
// number. The first of them is dialed, and the others are held again.
const releaseHeld = `
	UPDATE dial_queue d SET held = false,
		look_at = greatest(least(due_at, now()), ` + frontOf + `d.workspace_id` + newest + `)
	WHERE call_request_id = ANY (ARRAY(
		SELECT h.call_request_id FROM over o, LATERAL (
			SELECT q.call_request_id FROM dial_queue q
			WHERE q.workspace_id = o.workspace_id AND q.to_e164 = o.to_e164 AND q.state = 'queued' AND q.held
			ORDER BY q.due_at LIMIT 100 FOR UPDATE SKIP LOCKED) h))`

const fenceAgain = `
UPDATE dial_queue q SET traceparent = @traceparent
WHERE q.call_request_id = @call_request_id AND q.state = 'dialing' AND ` + onServer + `
	AND NOT EXISTS (SELECT 1 FROM opt_outs o WHERE o.workspace_id = q.workspace_id AND o.phone_e164 = q.to_e164
		AND (o.acknowledged_at IS NULL OR o.acknowledged_at > now() - interval '5 seconds'))`

const insertFencedAgain = `
INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, variables,
	status, queued_at, max_call_seconds, deadline_at, owner, traceparent, erased, time_zone,
	ending, hangup_at, hangup_requested_at, hangup_requested_by, test)
SELECT @call_id, q.call_request_id, q.workspace_id, 'outbound', @from, q.to_e164, q.agent_id, q.contact_id, q.variables,
	'fenced', q.queued_at, q.max_call_seconds, now() + make_interval(secs => q.max_call_seconds) + @grace::interval,
	@instance, @traceparent, c.erased, c.time_zone, c.ending, c.hangup_at, c.hangup_requested_at, c.hangup_requested_by,
	c.test
FROM dial_queue q JOIN calls c ON c.call_id = @refused WHERE q.call_request_id = @call_request_id`

// FenceAgain commits another fence for a request after a trunk refused the call, so that the dialer
// can use another trunk. The refused call becomes void, and the fence belongs to a new call. If a
// hang-up of the refused call was requested, the new call is hung up.
//
// FenceAgain returns ErrLost if this process does not own the refused call any more, if the request
// has ended, if the person has just opted out, or if the database server is not the one that was
// set with UseServer.
func (s *Store) FenceAgain(ctx context.Context, r dialqueue.Request, refused, callID uuid.UUID, from, trunk string) error {
	args := pg.Args{
		"call_request_id": r.CallRequestID, "refused": refused, "call_id": callID, "from": from, "trunk": trunk, "instance": s.instance,
		"grace": s.timing.RingLimit + s.timing.WatchdogGrace, "traceparent": telemetry.Carrier(ctx), "server": s.server(),
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		for _, guarded := range []struct {
			sql  string
			args pg.Args
		}{{voidCall, pg.Args{"call_id": refused, "instance": s.instance, "cause": ""}}, {fenceAgain, args}} {
			done, err := tx.Exec(ctx, guarded.sql, guarded.args)
			if err != nil {
				return err
			}
			if done.RowsAffected() == 0 {
				return ErrLost
			}
		}
		for _, sql := range []string{insertFence, insertFencedAgain} {
			if _, err := tx.Exec(ctx, sql, args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("fence request %s again with call %s: %w", r.CallRequestID, callID, err)
	}
	return err
}

// Void ends a request whose fence is committed but whose call is not dialed. The caller must not
// have sent a message to the carrier for this fence, and must never send one. state is blocked if a
// gate refused the call, otherwise failed. Void returns ErrLost if this process does not own the
// fence any more.
func (s *Store) Void(ctx context.Context, r dialqueue.Request, callID uuid.UUID, state dialqueue.State, why dialqueue.Refusal) error {
	args := pg.Args{
		"call_id": callID, "call_request_id": r.CallRequestID, "instance": s.instance, "state": string(state), "cause": "",
	}
	return s.inTx(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, voidCall, args)
		if err != nil {
			return fmt.Errorf("void call %s: %w", callID, err)
		}
		var at time.Time
		if done.RowsAffected() == 0 {
			return ErrLost
		}
		if err := tx.QueryRow(ctx, voidRequest, args).Scan(&at); err != nil {
			return fmt.Errorf("end request %s of void call: %w", r.CallRequestID, err)
		}
		event := dialqueue.NewBlocked(r.CallRequestID, r.WorkspaceID, why, at)
		if state == dialqueue.Failed {
			event = dialqueue.NewFailed(r.CallRequestID, r.WorkspaceID, why, at)
		}
		return outbox.Put(ctx, tx, outboxEvents(event)...)
	})
}

const releaseRequest = `
WITH over AS (
	UPDATE dial_queue SET state = 'queued', claimed_by = NULL, held = false,
		look_at = now() + @wait::interval * least(8, power(2, (SELECT count(*) - 1 FROM fences f
			WHERE f.call_request_id = dial_queue.call_request_id)))
	WHERE call_request_id = @call_request_id AND state = 'dialing'
	RETURNING call_request_id, workspace_id, to_e164, due_at
), called_up AS (` + releaseHeld + `)
SELECT now(), o.due_at, (SELECT count(*) FROM fences f WHERE f.call_request_id = o.call_request_id) FROM over o`

// Release makes the call of an attempt void, because no phone rang, and queues the request again.
// The request waits for minDelay. The delay doubles with each fence of the request, up to 8 times
// minDelay. The void call stores the cause, which can be empty, so that Releases can count it. If
// another process has taken over the call, Release returns ErrLost and changes nothing.
func (s *Store) Release(
	ctx context.Context, r dialqueue.Request, callID uuid.UUID, cause callstate.Cause, minDelay time.Duration,
) error {
	args := pg.Args{
		"call_id": callID, "call_request_id": r.CallRequestID, "instance": s.instance,
		"cause": string(cause), "wait": minDelay,
	}
	return s.inTx(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, voidCall, args)
		if err != nil {
			return fmt.Errorf("void call %s: %w", callID, err)
		}
		if done.RowsAffected() == 0 {
			return ErrLost
		}
		var at, dueAt time.Time
		var attempt int32
		if err := tx.QueryRow(ctx, releaseRequest, args).Scan(&at, &dueAt, &attempt); err != nil {
			return fmt.Errorf("queue request %s again: %w", r.CallRequestID, err)
		}
		return outbox.Put(ctx, tx, outboxEvents(dialqueue.NewReleased(r.CallRequestID, r.WorkspaceID, attempt, dueAt, at))...)
	})
}
