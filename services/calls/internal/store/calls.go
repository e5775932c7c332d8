package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/calls/internal/callstate"
)

const callColumns = `id, workspace_id, call_request_id, direction, from_number, to_e164, agent_id, contact_id, external_ref, status,
    hangup_cause, disposition, queued_at, dialed_at, ringing_at, answered_at, ended_at, ring_seconds, talk_seconds, total_seconds,
    billable_seconds, version, analysed, outcome, summary, charge_settled, credits_micro, sequence, closed, end_learned_at,
    completes_at, traceparent, erased_at, recording_key, disclosure`

// transcriptOf is what was said, where it is to be shown.
const transcriptOf = `CASE WHEN (SELECT w.transcripts FROM workspaces w WHERE w.id = workspace_id) THEN transcript END AS transcript`

// foldedCall is what facts are folded into; what was said is read only while it may still have to be told.
const foldedCall = callColumns + `, CASE WHEN NOT closed AND (SELECT w.transcripts FROM workspaces w WHERE w.id = workspace_id) THEN transcript END AS transcript`

const callByID = `SELECT ` + callColumns + `, ` + transcriptOf + ` FROM calls WHERE workspace_id = @workspace_id AND id = @id`

// Call reads one call of the workspace.
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

// Recording is where a call's recording lies, when it may be shown; pg.ErrNotFound when there is none to show.
func (s *Store) Recording(ctx context.Context, workspaceID, id uuid.UUID) (key string, err error) {
	key, err = pg.Value[string](ctx, s.pool, recordingOf, pg.Args{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return "", fmt.Errorf("read where the recording of call %s lies: %w", id, err)
	}
	return key, nil
}

// CallFilter narrows a list of calls; zero values let everything through. The two ids bound created_at, which is the
// instant inside the key: From is the first id let through, Until the first beyond.
type CallFilter struct {
	Status      string
	Direction   string
	AgentID     *uuid.UUID
	ContactID   *uuid.UUID
	ExternalRef *string
	From        *uuid.UUID
	Until       *uuid.UUID
}

// listedCall is what the light form shows; the rest of a listed call.Call stays zero.
const listedCall = `id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, external_ref, status, outcome, talk_seconds`

const callsOfWorkspace = `SELECT ` + listedCall + ` FROM calls WHERE workspace_id = @workspace_id`

// callsOfLanes begins a list read lane by lane: the newest of each (direction, standing) pair, then the newest of those.
const callsOfLanes = `
SELECT ` + listedCall + ` FROM unnest(@directions::text[], @standings::text[]) AS lane (heading, stage) CROSS JOIN LATERAL (
    SELECT ` + listedCall + ` FROM calls WHERE workspace_id = @workspace_id AND direction = heading AND list_status = stage`

const (
	inDirection   = ` AND direction = @direction`
	inStatus      = ` AND status = @status`
	ofAgent       = ` AND agent_id = @agent_id`
	ofContact     = ` AND contact_id = @contact_id`
	ofExternalRef = ` AND external_ref = @external_ref`
	createdWithin = ` AND uuid_send(id) >= uuid_send(@from::uuid) AND uuid_send(id) < uuid_send(@below::uuid)`
)

const callExists = `SELECT EXISTS (SELECT FROM calls WHERE workspace_id = @workspace_id AND id = @after)`

// Calls lists calls as far as the light form shows them, newest first, one row more than the page holds.
func (s *Store) Calls(ctx context.Context, workspaceID uuid.UUID, p page.Request, f CallFilter) ([]callstate.Call, error) {
	args := pageArgs(workspaceID, p)
	if err := s.knownCursor(ctx, callExists, p, args); err != nil {
		return nil, err
	}
	args["status"], args["direction"], args["external_ref"] = f.Status, f.Direction, f.ExternalRef
	args["agent_id"], args["contact_id"], args["from"] = f.AgentID, f.ContactID, uuid.Nil
	if f.From != nil {
		args["from"] = *f.From
	}
	if below := p.Below(); f.Until != nil && bytes.Compare(f.Until[:], below[:]) < 0 {
		args["below"] = *f.Until
	}
	args["directions"], args["standings"] = callstate.Lanes(f.Direction, callstate.Status(f.Status))
	given := []any{args}
	if f.AgentID != nil && f.ExternalRef != nil { // two indexes serve: which is better depends on the values
		given = []any{pgx.QueryExecModeCacheDescribe, args}
	}
	rows, err := listed[callstate.Call](ctx, s.pool, f.statement(), given...)
	if err != nil {
		return nil, fmt.Errorf("list calls: %w", err)
	}
	return rows, nil
}

// statement picks the index that serves the filter. A person has few calls, so theirs are read as they come; everything else that
// narrows is read lane by lane, so that a status or direction with three rows in a million finds these three.
func (f CallFilter) statement() string {
	where := ""
	if f.AgentID != nil {
		where += ofAgent
	}
	if f.ExternalRef != nil {
		where += ofExternalRef
	}
	if f.ContactID != nil {
		where += ofContact
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
		where += inStatus // the live ones share a lane
	}
	return callsOfLanes + where + createdWithin + newestFirst + `) AS c` + newestFirst
}

const dbNow = `SELECT clock_timestamp()`

// Now is the database's clock: due times are its own.
func (s *Store) Now(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	if err = tx.QueryRow(ctx, dbNow).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// A transcript that was not read stays. A call that somebody else closed is not opened again: the server itself
// refuses (closed is never null), since this travels with COMMIT, and what is only found out from its answer comes too late.
const saveCall = `
INSERT INTO calls AS c (` + callColumns + `, transcript)
VALUES (@id, @workspace_id, @call_request_id, @direction, @from_number, @to_e164, @agent_id, @contact_id, @external_ref, @status,
    @hangup_cause, @disposition, @queued_at, @dialed_at, @ringing_at, @answered_at, @ended_at, @ring_seconds, @talk_seconds,
    @total_seconds, @billable_seconds, @version, @analysed, @outcome, @summary, @charge_settled, @credits_micro, @sequence,
    @closed, @end_learned_at, @completes_at, @traceparent, @erased_at, @recording_key, @disclosure, @transcript)
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
    disclosure = EXCLUDED.disclosure,
    transcript = CASE WHEN EXCLUDED.erased_at IS NULL THEN COALESCE(EXCLUDED.transcript, c.transcript) END`

const claimCompleting = `
SELECT ` + foldedCall + ` FROM calls
WHERE completes_at <= now()
ORDER BY completes_at LIMIT @limit FOR UPDATE SKIP LOCKED`

// Complete sends call.completed for calls whose wait is over, with what there is, and says how many.
// resume gives each event the trace of its call.
func (s *Store) Complete(ctx context.Context, waits callstate.Waits, limit int, resume func(context.Context, *callstate.Call) (context.Context, func())) (int, error) {
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
		var batch pgx.Batch
		for i := range due {
			event := due[i].Announce(due[i].Status, now, waits)
			traced, end := resume(ctx, &due[i])
			batch.Queue(saveCall, pg.Args(callArgs(&due[i])))
			err = tellOf(traced, &batch, &due[i], event, now)
			end()
			if err != nil {
				return err
			}
		}
		done = len(due)
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("complete calls: %w", err)
	}
	return done, nil
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
	}
}
