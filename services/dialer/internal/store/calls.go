package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

const callColumns = `call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, status, ending,
	hangup_cause, disposition, error_code, error_detail, queued_at, dialed_at, ringing_at, answered_at, ended_at, turns,
	max_call_seconds, traceparent, version, erased, outcome, recording_key, time_zone, disclosure,
	analyse_at IS NOT NULL AS analysing, priced, admitted`

const lockCalls = `SELECT ` + callColumns + ` FROM calls
WHERE call_id = ANY (@ids) AND (@test::boolean IS NULL OR test = @test) ORDER BY call_id FOR UPDATE`

const saveCall = `
UPDATE calls SET contact_id = @contact_id, time_zone = @time_zone, status = @status, ending = @ending, hangup_cause = @hangup_cause,
	disposition = @disposition, error_code = @error_code, error_detail = @error_detail, dialed_at = @dialed_at,
	ringing_at = @ringing_at, answered_at = @answered_at, ended_at = @ended_at, turns = @turns, version = @version,
	outcome = @outcome, recording_key = @recording_key, disclosure = @disclosure, admitted = @admitted,
	analyse_at = CASE WHEN @analysing::boolean THEN coalesce(analyse_at, now()) END,
	variables = CASE WHEN @ended_at::timestamptz IS NULL THEN variables END,
	hangup_at = CASE WHEN ending = '' AND @ending <> '' OR ending = 'requested' AND status = 'fenced' THEN now()
		ELSE hangup_at END,
	answer_at = CASE WHEN @answered_at::timestamptz IS NULL THEN answer_at END,
	end_by = CASE
		WHEN answered_at IS NULL AND @answered_at::timestamptz IS NOT NULL THEN now() + make_interval(secs => max_call_seconds)
		WHEN status = 'fenced' THEN now() + @ring_limit::interval
		ELSE end_by END,
	deadline_at = CASE
		WHEN answered_at IS NULL AND @answered_at::timestamptz IS NOT NULL
		THEN now() + make_interval(secs => max_call_seconds) + @grace::interval
		ELSE deadline_at END
WHERE call_id = @call_id`

const endRequests = `
WITH over AS (
	UPDATE dial_queue SET state = 'ended', ended_at = now(), variables = NULL WHERE call_request_id = ANY (@ids) AND state = 'dialing'
	RETURNING call_request_id, workspace_id, to_e164
)` + releaseHeld

// Change locks the rows of the calls with these ids and passes the calls that exist to changeCalls.
// It stores the changes and the events of these calls in one transaction.
func (s *Store) Change(ctx context.Context, ids []uuid.UUID, changeCalls func(map[uuid.UUID]*callstate.Call)) error {
	return s.changeIf(ctx, func(*pgx.Batch) {}, ids, changeCalls)
}

// ChangeOnServer does the same as Change, but only on the database server that was set with
// UseServer. On another server, it returns ErrServerChanged and changes nothing.
func (s *Store) ChangeOnServer(
	ctx context.Context, ids []uuid.UUID, changeCalls func(map[uuid.UUID]*callstate.Call),
) error {
	guard := func(batch *pgx.Batch) {
		batch.Queue(checkServer, pg.Args{"server": s.server()}).QueryRow(sameServer)
	}
	return s.changeIf(ctx, guard, ids, changeCalls)
}

func (s *Store) changeIf(
	ctx context.Context, guard Guard, ids []uuid.UUID, changeCalls func(map[uuid.UUID]*callstate.Call),
) error {
	return pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var locked []*callstate.Call
		var batch pgx.Batch
		guard(&batch)
		s.queueLock(&batch, ids, &locked)
		if err := tx.RunBatch(ctx, &batch); err != nil {
			return fmt.Errorf("lock calls: %w", err)
		}
		return s.changeLocked(ctx, tx, locked, changeCalls)
	})
}

// Record stores the storage key of an ended call's recording and publishes an event with this key.
// An empty key means that the recording was deleted. A repeated call of Record has no further
// effect.
func (s *Store) Record(ctx context.Context, callID uuid.UUID, key string, at time.Time) error {
	return s.Change(ctx, []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		if c := calls[callID]; c != nil {
			c.Record(key, at)
		}
	})
}

func (s *Store) queueLock(batch *pgx.Batch, ids []uuid.UUID, locked *[]*callstate.Call) {
	batch.Queue(lockCalls, pg.Args{"ids": ids, "test": s.modes.Test()}).Query(func(rows pgx.Rows) (err error) {
		*locked, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[callstate.Call])
		return err
	})
}

const insertOptOut = `
INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at)
VALUES (@call_id, @workspace_id, @phone_e164, @evidence, @heard_at)
ON CONFLICT (call_id) DO NOTHING`

// queueOptOut stores an opt-out unless one is already stored for the call.
func queueOptOut(batch *pgx.Batch, o *callstate.OptOut) {
	batch.Queue(insertOptOut, pg.Args{
		"call_id": o.CallID, "workspace_id": o.WorkspaceID, "phone_e164": o.PhoneE164,
		"evidence": o.Evidence, "heard_at": o.HeardAt,
	})
}

// changeLocked sends the changed rows, the opt-outs and the events in one round trip, together with
// the commit.
func (s *Store) changeLocked(
	ctx context.Context, tx *pg.Pipeline, locked []*callstate.Call,
	changeCalls func(map[uuid.UUID]*callstate.Call),
) error {
	byID := make(map[uuid.UUID]*callstate.Call, len(locked))
	before := make(map[uuid.UUID]callstate.Call, len(locked))
	for _, c := range locked {
		byID[c.CallID], before[c.CallID] = c, *c
	}
	changeCalls(byID)
	var batch pgx.Batch
	var ended []uuid.UUID
	for _, c := range locked {
		was := before[c.CallID]
		if c.Version == was.Version && c.Ending == was.Ending && len(c.Turns) == len(was.Turns) &&
			c.Admitted == was.Admitted {
			continue
		}
		batch.Queue(saveCall, s.callArgs(c))
		if was.Live() && !c.Live() && c.CallRequestID != nil {
			ended = append(ended, *c.CallRequestID)
		}
	}
	if len(ended) > 0 {
		slices.SortFunc(ended, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		batch.Queue(endRequests, pg.Args{"ids": ended})
	}
	for _, c := range locked {
		if o := c.OptOut(); o != nil {
			queueOptOut(&batch, o)
		}
		if err := queueTraced(ctx, &batch, "call events", c.Traceparent, c.Facts()...); err != nil {
			return err
		}
	}
	tx.QueueBatch(&batch)
	return nil
}

func (s *Store) callArgs(c *callstate.Call) pg.Args {
	return pg.Args{
		"call_id": c.CallID, "contact_id": c.ContactID, "time_zone": c.TimeZone, "status": string(c.Status), "ending": string(c.Ending),
		"hangup_cause": string(c.HangupCause), "disposition": c.Disposition, "error_code": c.ErrorCode, "error_detail": c.ErrorDetail,
		"dialed_at": c.DialedAt, "ringing_at": c.RingingAt, "answered_at": c.AnsweredAt, "ended_at": c.EndedAt,
		"turns": append([]agent.Turn{}, c.Turns...), "version": c.Version, "outcome": c.Outcome,
		"recording_key": c.RecordingKey, "analysing": c.Analysing, "disclosure": c.Disclosure,
		"admitted":   c.Admitted,
		"ring_limit": s.timing.RingLimit, "grace": s.timing.WatchdogGrace,
	}
}

// queueTraced adds events to the batch. The events continue the trace in traceparent, which is
// stored with their call or call request.
func queueTraced(ctx context.Context, batch *pgx.Batch, name, traceparent string, facts ...callstate.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	if traceparent != "" {
		event := facts[0].Event
		spanCtx, span := telemetry.Continue(ctx, name, traceparent, 0,
			telemetry.CallRequestID(event.GetCallRequestId()), telemetry.CallID(event.GetCall().GetCallId()))
		defer span.End()
		ctx = spanCtx
	}
	return outbox.Queue(ctx, batch, outboxEvents(facts...)...)
}

func sendBatch(ctx context.Context, tx pgx.Tx, batch *pgx.Batch) error {
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store changes: %w", err)
	}
	return nil
}

// refreshPeriod is how long the processes may take, after a reconciliation, to store the events of
// their calls again. Each process checks once a second whether the database server has changed.
const refreshPeriod = 10 * time.Second

// refreshed is an SQL condition. It is true if no database server was set with UseServer. It is
// also true if the database is the server that was set, and the reconciliation of this server ended
// more than refreshPeriod ago. It needs the arguments @server and @refresh_period.
const refreshed = `(@server::text = '' OR EXISTS (SELECT FROM reconciled_servers
	WHERE server = @server::text AND server = server_identity() AND reconciled_at <= now() - @refresh_period::interval))`

const sweepLongest = `
UPDATE calls SET hangup_at = now(), ending = CASE WHEN answered_at IS NULL THEN 'ring_timeout' ELSE 'max_duration' END
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND ending = '' AND end_by <= now() AND ` + refreshed + `
	ORDER BY end_by LIMIT 500 FOR UPDATE SKIP LOCKED))`

const sweepDeadline = `
UPDATE calls SET hangup_at = now(),
	ending = CASE WHEN ending IN ('recovery', 'dial_unknown') OR status = 'fenced' THEN 'lost' ELSE 'watchdog' END
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND deadline_at <= now()
		AND ending NOT IN ('watchdog', 'lost', 'busy') AND ` + refreshed + `
	ORDER BY deadline_at LIMIT 500 FOR UPDATE SKIP LOCKED))`

// Sweep marks calls that must be hung up, because they rang or lasted too long, or because their
// end was not reported. It returns how many calls it marked. A call that is refused as busy keeps
// this ending.
//
// After a failover, Sweep marks no calls for refreshPeriod, because the answer or the end of a
// call can still be missing in the database.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	args := pg.Args{"server": s.server(), "refresh_period": refreshPeriod}
	longest, err := s.pool.Exec(ctx, sweepLongest, args)
	if err != nil {
		return 0, fmt.Errorf("mark calls that rang or lasted too long: %w", err)
	}
	overdue, err := s.pool.Exec(ctx, sweepDeadline, args)
	if err != nil {
		return 0, fmt.Errorf("mark calls without an end event: %w", err)
	}
	return longest.RowsAffected() + overdue.RowsAffected(), nil
}

const dueHangups = `
WITH ours AS (
	UPDATE calls SET hangup_at = now() + interval '2 seconds'
	WHERE call_id = ANY (ARRAY(
		SELECT call_id FROM calls WHERE ended_at IS NULL AND ending <> '' AND hangup_at <= now()
		ORDER BY hangup_at LIMIT 100 FOR UPDATE SKIP LOCKED))
	RETURNING call_id, ending, deadline_at <= now() AS overdue, test
), orphaned AS (
	UPDATE orphaned_calls SET hangup_at = now() + interval '2 seconds'
	WHERE call_id = ANY (ARRAY(
		SELECT call_id FROM orphaned_calls WHERE hangup_at <= now() ORDER BY hangup_at LIMIT 100 FOR UPDATE SKIP LOCKED))
	RETURNING call_id, test
)
SELECT call_id, ending, overdue, test, false AS orphan FROM ours
UNION ALL SELECT call_id, '', false, test, true FROM orphaned`

// Hangup is a call that must be hung up.
type Hangup struct {
	CallID uuid.UUID        `db:"call_id"`
	Ending callstate.Ending `db:"ending"`
	// Overdue is true if the end of the call should have been reported by now.
	Overdue bool `db:"overdue"`
	// Orphan is true if the call is live at the carrier, but has ended or does not exist in the
	// database.
	Orphan bool `db:"orphan"`
	// Test is true if the call is at the carrier of the test workspaces.
	Test bool `db:"test"`
}

// HangupBatch is the maximum number of live calls, and the maximum number of orphaned calls, that
// DueHangups returns.
const HangupBatch = 100

// DueHangups claims the calls that must be hung up now. A claimed call is due again after 2 s,
// unless the call has ended or ForgetOrphan was called for it.
func (s *Store) DueHangups(ctx context.Context) ([]Hangup, error) {
	due, err := pg.Many[Hangup](ctx, s.pool, dueHangups, nil)
	if err != nil {
		return nil, fmt.Errorf("claim hang-ups: %w", err)
	}
	return due, nil
}

const forgetOrphan = `DELETE FROM orphaned_calls WHERE call_id = @call_id`

// ForgetOrphan deletes the row of an orphaned call. It is called after the carrier has hung up the
// call.
func (s *Store) ForgetOrphan(ctx context.Context, callID uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, forgetOrphan, pg.Args{"call_id": callID}); err != nil {
		return fmt.Errorf("delete orphaned call %s: %w", callID, err)
	}
	return nil
}

const dueAnswers = `
UPDATE calls SET owner = @instance, answer_at = now() + interval '3 seconds'
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND ending = '' AND answer_at <= now() AND priced = @priced
	ORDER BY admitted, answer_at LIMIT @limit FOR UPDATE SKIP LOCKED))
RETURNING call_id, workspace_id, from_number, traceparent, test`

// Arrival is an inbound call that rings.
type Arrival struct {
	CallID      uuid.UUID `db:"call_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	From        string    `db:"from_number"`
	Traceparent string    `db:"traceparent"`
	// Test is true if the call is at the carrier of the test workspaces.
	Test bool `db:"test"`
}

// DueAnswers claims up to limit inbound calls that the dialer must answer now: calls with a price
// if priced is true, otherwise calls without a price. This process becomes the owner of these
// calls. New calls come before admitted calls, which already waited for a hold. A claimed call is
// due again after 3 s, unless it was answered or is being ended.
func (s *Store) DueAnswers(ctx context.Context, priced bool, limit int) ([]Arrival, error) {
	args := pg.Args{"instance": s.instance, "priced": priced, "limit": limit}
	due, err := pg.Many[Arrival](ctx, s.pool, dueAnswers, args)
	if err != nil {
		return nil, fmt.Errorf("claim arrivals: %w", err)
	}
	return due, nil
}

const dueReports = `
UPDATE opt_outs SET report_at = now() + interval '3 seconds'
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM opt_outs WHERE acknowledged_at IS NULL AND report_at <= now()
	ORDER BY report_at LIMIT 50 FOR UPDATE SKIP LOCKED))
RETURNING call_id, workspace_id, phone_e164, evidence, heard_at`

// DueReports claims the opt-outs that must be reported to contacts-compliance now. A claimed
// opt-out is due again after 3 s, unless Acknowledged was called for it.
func (s *Store) DueReports(ctx context.Context) ([]callstate.OptOut, error) {
	due, err := pg.Many[callstate.OptOut](ctx, s.pool, dueReports, nil)
	if err != nil {
		return nil, fmt.Errorf("claim opt-out reports: %w", err)
	}
	return due, nil
}

const acknowledge = `UPDATE opt_outs SET acknowledged_at = now(), evidence = '' WHERE call_id = @call_id AND acknowledged_at IS NULL`

// Acknowledged records that contacts-compliance has stored an opt-out and its evidence, and deletes
// the evidence from this database. The opt-out gate of contacts-compliance now refuses calls to the
// number.
func (s *Store) Acknowledged(ctx context.Context, callID uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, acknowledge, pg.Args{"call_id": callID}); err != nil {
		return fmt.Errorf("acknowledge opt-out of call %s: %w", callID, err)
	}
	return nil
}
