package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/calls/internal/callstate"
)

const callColumns = `id, workspace_id, call_request_id, direction, from_number, to_e164, agent_id, contact_id, external_ref, status,
    hangup_cause, disposition, queued_at, dialed_at, ringing_at, answered_at, ended_at, ring_seconds, talk_seconds, total_seconds,
    billable_seconds, version, analysed, outcome, summary, charge_settled, credits_micro, sequence, closed, end_learned_at,
    completes_at, traceparent, erased_at, recording_key, disclosure, recording_announced`

// transcriptOf selects the transcript if the workspace shows transcripts.
const transcriptOf = `CASE WHEN (SELECT w.transcripts FROM workspaces w WHERE w.id = workspace_id) THEN transcript END AS transcript`

// foldedCallColumns lists the columns that events change. The transcript is read until the terminal
// event and call.recording_ready are both published.
const foldedCallColumns = callColumns + `,
    CASE WHEN NOT (closed AND recording_announced)
            AND (SELECT w.transcripts FROM workspaces w WHERE w.id = workspace_id)
        THEN transcript END AS transcript`

const callByID = `SELECT ` + callColumns + `, ` + transcriptOf + ` FROM calls WHERE workspace_id = @workspace_id AND id = @id`

// Call reads one call of the workspace. It returns pg.ErrNotFound if the call does not exist.
func (s *Store) Call(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Call, error) {
	c, err := pg.One[callstate.Call](ctx, s.pool, callByID, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return callstate.Call{}, fmt.Errorf("read call %s: %w", id, err)
	}
	return c, nil
}

const recordingOf = `
SELECT recording_key FROM calls
WHERE workspace_id = @workspace_id AND id = @id AND recording_key IS NOT NULL AND (SELECT w.recordings FROM workspaces w WHERE w.id = workspace_id)`

// Recording returns the key of a call's recording. It returns pg.ErrNotFound if there is no
// recording, or if the workspace does not show recordings.
func (s *Store) Recording(ctx context.Context, workspaceID, id uuid.UUID) (key string, err error) {
	key, err = pg.Value[string](ctx, s.pool, recordingOf, pg.Args{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return "", fmt.Errorf("read recording key of call %s: %w", id, err)
	}
	return key, nil
}

// CallFilter filters a list of calls. A zero value does not filter. From and Until filter by
// creation time, which is part of the id: From is the first id that matches, Until is the first id
// after the range.
type CallFilter struct {
	Status    string
	Direction string
	AgentID   *uuid.UUID
	ContactID *uuid.UUID
	// CallRequestID matches at most one call.
	CallRequestID *uuid.UUID
	To            phone.Number
	Outcome       *string
	ExternalRef   *string
	From          *uuid.UUID
	Until         *uuid.UUID
}

// listedCallColumns lists the columns that a list of calls shows. All other fields of a listed
// callstate.Call are zero.
const listedCallColumns = `id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, external_ref,
    status, outcome, talk_seconds`

const callsOfWorkspace = `SELECT ` + listedCallColumns + ` FROM calls WHERE workspace_id = @workspace_id`

// callsOfPartitions selects the newest calls of each combination of direction and list status
// (callstate.ListStatus). An outer SELECT merges these results.
const callsOfPartitions = `
SELECT ` + listedCallColumns + ` FROM unnest(@directions::text[], @list_statuses::text[]) AS pair (pair_direction,
	pair_status) CROSS JOIN LATERAL (
    SELECT ` + listedCallColumns + ` FROM calls
    WHERE workspace_id = @workspace_id AND direction = pair_direction AND list_status = pair_status`

const (
	inDirection   = ` AND direction = @direction`
	inStatus      = ` AND status = @status`
	ofAgent       = ` AND agent_id = @agent_id`
	ofContact     = ` AND contact_id = @contact_id`
	ofExternalRef = ` AND external_ref = @external_ref`
	ofRequest     = ` AND call_request_id = @call_request_id`
	toNumber      = ` AND to_e164 = @to`
	ofOutcome     = ` AND outcome = @outcome`
	createdWithin = ` AND uuid_send(id) >= uuid_send(@from::uuid) AND uuid_send(id) < uuid_send(@below::uuid)`
)

const callExists = `SELECT EXISTS (SELECT FROM calls WHERE workspace_id = @workspace_id AND id = @after)`

// Calls lists calls with the columns of listedCallColumns, newest first. It returns one row more
// than the page has.
func (s *Store) Calls(ctx context.Context, workspaceID uuid.UUID, p page.Request, f CallFilter) ([]callstate.Call, error) {
	args := pageArgs(workspaceID, p)
	if err := s.knownCursor(ctx, callExists, p, args); err != nil {
		return nil, err
	}
	args["status"], args["direction"], args["external_ref"] = f.Status, f.Direction, f.ExternalRef
	args["agent_id"], args["contact_id"] = f.AgentID, f.ContactID
	args["call_request_id"], args["to"], args["outcome"] = f.CallRequestID, f.To, f.Outcome
	addCreated(args, p, f.From, f.Until)
	args["directions"], args["list_statuses"] = callstate.ListPartitions(f.Direction, callstate.Status(f.Status))
	given := []any{args}
	if f.indexes() > 1 { // the best index depends on the values, so the statement is planned again
		given = []any{pgx.QueryExecModeCacheDescribe, args}
	}
	rows, err := queryListed[callstate.Call](ctx, s.pool, f.selectCalls(), given...)
	if err != nil {
		return nil, fmt.Errorf("list calls: %w", err)
	}
	return rows, nil
}

// addCreated adds the arguments of createdWithin.
func addCreated(args pgx.NamedArgs, p page.Request, from, until *uuid.UUID) {
	args["from"] = uuid.Nil
	if from != nil {
		args["from"] = *from
	}
	if below := p.Below(); until != nil && bytes.Compare(until[:], below[:]) < 0 {
		args["below"] = *until
	}
}

// indexes returns the number of indexes that can be used for the filter.
func (f CallFilter) indexes() (n int) {
	for _, given := range []bool{f.AgentID != nil, f.ExternalRef != nil, f.To != "", f.Outcome != nil} {
		if given {
			n++
		}
	}
	return n
}

// selectCalls returns an SQL statement that can use an index for the filter. A call request has at
// most one call, and a contact has few calls. For these filters the statement reads all of these
// calls. For all other filters it reads each combination of direction and list status separately,
// so that a rare status is found quickly among a million calls.
func (f CallFilter) selectCalls() string {
	where := ""
	if f.AgentID != nil {
		where += ofAgent
	}
	if f.ExternalRef != nil {
		where += ofExternalRef
	}
	if f.To != "" {
		where += toNumber
	}
	if f.Outcome != nil {
		where += ofOutcome
	}
	if f.CallRequestID != nil {
		where += ofRequest
	}
	if f.ContactID != nil {
		where += ofContact
	}
	if f.ContactID != nil || f.CallRequestID != nil {
		if f.Direction != "" {
			where += inDirection
		}
		if f.Status != "" {
			where += inStatus
		}
		return callsOfWorkspace + where + createdWithin + newestFirst
	}
	if where == "" && f.Direction == "" && f.Status == "" {
		return callsOfWorkspace + createdWithin + newestFirst
	}
	if f.Status != "" && !callstate.Status(f.Status).Terminal() {
		where += inStatus // all calls that have not ended have the same list status
	}
	return callsOfPartitions + where + createdWithin + newestFirst + `) AS c` + newestFirst
}

const dbNow = `SELECT clock_timestamp()`

// Now returns the time of the database's clock. All due times are compared with this clock.
func (s *Store) Now(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	if err = tx.QueryRow(ctx, dbNow).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// saveCall does not change a stored transcript that was not read. If a concurrent transaction has
// closed the call, the CASE sets closed to NULL. The NOT NULL constraint then rolls this
// transaction back.
const saveCall = `
INSERT INTO calls AS c (` + callColumns + `, transcript)
VALUES (@id, @workspace_id, @call_request_id, @direction, @from_number, @to_e164, @agent_id, @contact_id, @external_ref, @status,
    @hangup_cause, @disposition, @queued_at, @dialed_at, @ringing_at, @answered_at, @ended_at, @ring_seconds, @talk_seconds,
    @total_seconds, @billable_seconds, @version, @analysed, @outcome, @summary, @charge_settled, @credits_micro, @sequence,
    @closed, @end_learned_at, @completes_at, @traceparent, @erased_at, @recording_key, @disclosure,
    @recording_announced, @transcript)
ON CONFLICT (id) DO UPDATE SET
    from_number = EXCLUDED.from_number, to_e164 = EXCLUDED.to_e164, agent_id = EXCLUDED.agent_id, contact_id = EXCLUDED.contact_id,
    status = EXCLUDED.status, hangup_cause = EXCLUDED.hangup_cause, disposition = EXCLUDED.disposition,
    queued_at = EXCLUDED.queued_at, dialed_at = EXCLUDED.dialed_at, ringing_at = EXCLUDED.ringing_at,
    answered_at = EXCLUDED.answered_at, ended_at = EXCLUDED.ended_at, ring_seconds = EXCLUDED.ring_seconds,
    talk_seconds = EXCLUDED.talk_seconds, total_seconds = EXCLUDED.total_seconds, billable_seconds = EXCLUDED.billable_seconds,
    version = EXCLUDED.version, analysed = EXCLUDED.analysed, outcome = EXCLUDED.outcome, summary = EXCLUDED.summary,
    charge_settled = EXCLUDED.charge_settled, credits_micro = EXCLUDED.credits_micro, sequence = EXCLUDED.sequence,
    closed = CASE WHEN NOT c.closed OR EXCLUDED.closed THEN EXCLUDED.closed END, end_learned_at = EXCLUDED.end_learned_at, completes_at = EXCLUDED.completes_at,
    traceparent = EXCLUDED.traceparent, erased_at = EXCLUDED.erased_at, recording_key = EXCLUDED.recording_key,
    disclosure = EXCLUDED.disclosure, recording_announced = EXCLUDED.recording_announced,
    transcript = CASE WHEN EXCLUDED.erased_at IS NULL THEN COALESCE(EXCLUDED.transcript, c.transcript) END`

const claimCompleting = `
SELECT ` + foldedCallColumns + ` FROM calls
WHERE completes_at <= now()
ORDER BY completes_at LIMIT @limit FOR UPDATE SKIP LOCKED`

// Complete publishes call.completed for up to limit calls whose wait is over. It returns the number
// of these calls. continueTrace continues the trace of each call.
func (s *Store) Complete(ctx context.Context, waits callstate.Waits, limit int,
	continueTrace func(context.Context, *callstate.Call) (context.Context, func())) (int, error) {
	var done int
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		done = 0
		due, err := pg.Many[callstate.Call](ctx, tx, claimCompleting, pgx.NamedArgs{"limit": limit})
		if err != nil || len(due) == 0 {
			return err
		}
		now, err := s.Now(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.signLinks(ctx, tx, due); err != nil {
			return err
		}
		var batch pgx.Batch
		for i := range due {
			event := due[i].Announce(due[i].Status, now, waits)
			traced, end := continueTrace(ctx, &due[i])
			err = queueEvents(traced, &batch, &due[i], event, now)
			end()
			if err != nil {
				return err
			}
			batch.Queue(saveCall, pg.Args(callArgs(&due[i])))
		}
		done = len(due)
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("complete calls: %w", err)
	}
	return done, nil
}

// claimOverdueCalls claims live calls that should have ended more than @after seconds ago. @longest
// applies if the longest duration of a call is not known.
const claimOverdueCalls = `
UPDATE calls SET end_requested_at = now()
WHERE id IN (
    SELECT c.id FROM calls c
        LEFT JOIN call_requests r ON r.id = c.call_request_id
        LEFT JOIN agents a ON a.id = c.agent_id
    WHERE c.list_status = 'live'
        AND coalesce(c.answered_at, c.ringing_at, c.dialed_at, c.queued_at)
            <= now() - make_interval(secs => @after + coalesce(r.max_call_seconds, a.max_call_seconds, @longest))
        AND (c.end_requested_at IS NULL OR c.end_requested_at <= now() - make_interval(secs => @after))
    ORDER BY c.id LIMIT @limit FOR UPDATE OF c SKIP LOCKED)
RETURNING ` + callColumns + `, NULL::json AS transcript`

// longestCall is the highest max_call_seconds that an agent can have.
const longestCall = 14400

// ReportOverdueCalls publishes call_overdue for up to limit calls that should have ended more than
// overdueTime ago. It returns the number of these calls. It publishes each call at most once per
// overdueTime. continueTrace continues the trace of each call.
func (s *Store) ReportOverdueCalls(
	ctx context.Context, overdueTime time.Duration, limit int, at time.Time,
	continueTrace func(context.Context, *callstate.Call) (context.Context, func()),
) (n int, err error) {
	args := pgx.NamedArgs{"after": overdueTime.Seconds(), "longest": longestCall, "limit": limit}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		overdue, err := pg.Many[callstate.Call](ctx, tx, claimOverdueCalls, args)
		if err != nil {
			return err
		}
		for i := range overdue {
			c := &overdue[i]
			key := c.ID
			if c.CallRequestID != nil {
				key = *c.CallRequestID
			}
			traced, end := continueTrace(ctx, c)
			err := outbox.Put(traced, tx, outbox.Event{
				Topic: kafka.CallRequests, Key: key.String(), WorkspaceID: c.WorkspaceID, Message: c.OverdueEvent(at),
			})
			end()
			if err != nil {
				return err
			}
		}
		n = len(overdue)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("report overdue calls: %w", err)
	}
	return n, nil
}

// signLinks sets the links to the recordings of the calls whose workspaces show recordings.
func (s *Store) signLinks(ctx context.Context, tx pgx.Tx, calls []callstate.Call) error {
	var workspaces []uuid.UUID
	for i := range calls {
		if calls[i].RecordingKey != nil {
			workspaces = append(workspaces, calls[i].WorkspaceID)
		}
	}
	if s.links == nil || len(workspaces) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, privacyOfWorkspaces, pg.Args{"ids": workspaces})
	if err != nil {
		return fmt.Errorf("read what workspaces show: %w", err)
	}
	privacy, err := collectPrivacy(rows)
	if err != nil {
		return fmt.Errorf("read what workspaces show: %w", err)
	}
	for i := range calls {
		if privacy[calls[i].WorkspaceID].Recordings {
			signLink(ctx, s.links, &calls[i])
		}
	}
	return nil
}

func callArgs(c *callstate.Call) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": c.ID, "workspace_id": c.WorkspaceID, "call_request_id": c.CallRequestID, "direction": c.Direction,
		"from_number": c.From, "to_e164": c.To, "agent_id": c.AgentID, "contact_id": c.ContactID, "external_ref": c.ExternalRef,
		"status": c.Status, "hangup_cause": c.HangupCause, "disposition": c.Disposition, "queued_at": c.QueuedAt,
		"dialed_at": c.DialedAt, "ringing_at": c.RingingAt, "answered_at": c.AnsweredAt, "ended_at": c.EndedAt,
		"ring_seconds": c.RingSeconds, "talk_seconds": c.TalkSeconds, "total_seconds": c.TotalSeconds,
		"billable_seconds": c.BillableSeconds, "version": c.Version, "analysed": c.Analysed, "outcome": c.Outcome,
		"summary": c.Summary, "transcript": c.Transcript, "charge_settled": c.ChargeSettled, "credits_micro": c.Credits,
		"sequence": c.Sequence, "closed": c.Closed, "end_learned_at": c.EndLearnedAt, "completes_at": c.CompletesAt,
		"traceparent": c.Traceparent, "erased_at": c.ErasedAt, "recording_key": c.RecordingKey, "disclosure": c.Disclosure,
		"recording_announced": c.RecordingAnnounced,
	}
}
