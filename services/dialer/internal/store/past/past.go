// Package past owns the statements by which a database that was set back to an earlier time learns what the dialer had told the world since: law 1 holds over a restore.
package past

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/request"
)

// Told is the newest fact of one request, or of one inbound call, which has none (uuid.Nil).
type Told struct {
	RequestID, WorkspaceID uuid.UUID
	// State is that of the request in the dial queue.
	State request.State
	// Attempt is the number of the fence that the event committed or released; 0 if the event has none.
	Attempt int32
	// Until is when a request that is queued is due, as it was told last.
	Until *time.Time
	// Call is what the fact says of the call; nil: there was none yet.
	Call *Call
}

// Subject is what the fact is of: the request, or the inbound call.
func (t Told) Subject() uuid.UUID {
	if t.RequestID == uuid.Nil {
		return t.Call.ID
	}
	return t.RequestID
}

// Over says that nothing but what is told again, or of the call's end, can follow.
func (t Told) Over() bool {
	if t.Call != nil {
		return t.Call.EndedAt != nil
	}
	return t.State != request.Queued && t.State != request.Dialing
}

func (t Told) live() bool { return t.Call != nil && t.Call.EndedAt == nil }

// Call is a call as the facts tell it.
type Call struct {
	ID, AgentID                                        uuid.UUID
	ContactID                                          *uuid.UUID
	From, To, Status, Cause, Disposition, Code, Detail string
	QueuedAt, DialedAt, RingingAt, AnsweredAt, EndedAt *time.Time
	Version                                            int64
}

// Store speaks to the schema dialer.
type Store struct{ pool *pgxpool.Pool }

// New makes a store.
func New(pool *pgxpool.Pool) *Store { return &Store{pool} }

// A fence is looked for and not the call: it is never pruned. Instants are kept to the microsecond.
const unknown = `
SELECT n - 1 FROM unnest(@requests::uuid[], @calls::uuid[], @versions::bigint[], @untils::timestamptz[]) WITH ORDINALITY AS told (request, call, version, until, n)
WHERE CASE
	WHEN request IS NULL THEN NOT EXISTS (SELECT FROM calls c WHERE c.call_id = told.call AND c.version >= told.version)
	WHEN call IS NOT NULL THEN NOT EXISTS (SELECT FROM fences f WHERE f.call_id = told.call)
		OR EXISTS (SELECT FROM calls c WHERE c.call_id = told.call AND c.version < told.version)
	ELSE NOT EXISTS (SELECT FROM dial_queue q WHERE q.call_request_id = told.request
		AND (q.state <> 'queued' OR q.due_at >= told.until - interval '1 millisecond'))
END
ORDER BY n`

// Unknown answers those of the facts, in their order, that this database knows nothing of: none, unless it is older than they are.
func (s *Store) Unknown(ctx context.Context, told []Told) (news []Told, err error) {
	requests, calls, versions, untils := make([]*uuid.UUID, len(told)), make([]*uuid.UUID, len(told)), make([]int64, len(told)), make([]*time.Time, len(told))
	for i, t := range told {
		if t.RequestID != uuid.Nil {
			requests[i] = &t.RequestID
		}
		if t.Call != nil {
			calls[i], versions[i] = &t.Call.ID, t.Call.Version
		}
		untils[i] = t.Until
	}
	rows, err := s.pool.Query(ctx, unknown, pg.Args{"requests": requests, "calls": calls, "versions": versions, "untils": untils})
	if err != nil {
		return nil, fmt.Errorf("look for %d facts: %w", len(told), err)
	}
	at, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("look for %d facts: %w", len(told), err)
	}
	for _, i := range at {
		news = append(news, told[i])
	}
	return news, nil
}

const everDialled = `SELECT EXISTS (SELECT FROM fences)`

// EverDialled says that something was dialled from this database, so that facts of it were told.
func (s *Store) EverDialled(ctx context.Context) (ever bool, err error) {
	if err = s.pool.QueryRow(ctx, everDialled).Scan(&ever); err != nil {
		return false, fmt.Errorf("look for fences: %w", err)
	}
	return ever, nil
}

// A request that ended without a call. One that is not here leaves what a withdraw leaves: a row without an order, so that it is not dialled when it comes again.
const endRequest = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, ended_at) VALUES (@request, @workspace_id, 'withdrawn', now())
ON CONFLICT (call_request_id) DO UPDATE SET state = @state, claimed_by = NULL, ready = false, held = false, ended_at = now(), variables = NULL
	WHERE dial_queue.state = 'queued' AND dial_queue.workspace_id = @workspace_id`

const fence = `
INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id)
VALUES (@call, @request, (SELECT count(*) + 1 FROM fences f WHERE f.call_request_id = @request), 'restored', @nobody)
ON CONFLICT (call_id) DO NOTHING`

const dialled = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, queued_at, due_at, look_at, ended_at)
VALUES (@request, @workspace_id, @state, @to, @agent, @contact, @queued_at, now(), now(), @ended_at)
ON CONFLICT (call_request_id) DO UPDATE SET state = @state, claimed_by = NULL, ready = false, held = false, ended_at = @ended_at
	WHERE dial_queue.state IN ('queued', 'dialing') AND dial_queue.workspace_id = @workspace_id`

// A call that had not ended belongs to nobody who lives: recovery has it hung up and ends it.
const heard = `
INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, status, hangup_cause, disposition,
	error_code, error_detail, queued_at, dialed_at, ringing_at, answered_at, ended_at, max_call_seconds, end_by, deadline_at, owner, version)
VALUES (@call, @request, @workspace_id, @direction, @from, @to, @agent, @contact, @status, @cause, @disposition,
	@code, @detail, @queued_at, @dialed_at, @ringing_at, @answered_at, @ended_at, 0, now(), now() + interval '1 minute', @nobody, @version)
ON CONFLICT (call_id) DO UPDATE SET status = excluded.status, hangup_cause = excluded.hangup_cause, disposition = excluded.disposition, error_code = excluded.error_code,
	error_detail = excluded.error_detail, ringing_at = excluded.ringing_at, answered_at = excluded.answered_at, ended_at = excluded.ended_at, version = excluded.version
	WHERE calls.version < excluded.version`

// Of several tries of a request only the last is told: one that stands fenced here was refused before anything rang, and its place taken, behind this database's back.
const refused = `
UPDATE calls SET status = 'void', ended_at = now(), variables = NULL, owner = NULL
WHERE call_request_id = @request AND call_id <> @call AND status = 'fenced'`

// Settle makes the database know of the facts: what was dialled is fenced, what ended has ended, and what was about to be dialled fails dial_state_unknown. Told twice, it is
// settled once. Calls that ended go first: a number has one live call. A request that waits is left alone: it is judged again when it is due.
func (s *Store) Settle(ctx context.Context, told []Told) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('dialer past', 0))`); err != nil {
			return err
		}
		for _, live := range []bool{false, true} {
			for _, t := range told {
				if t.live() != live || t.State == request.Queued {
					continue
				}
				if err := one(ctx, tx, t); err != nil {
					return fmt.Errorf("request %s: %w", t.RequestID, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle what was told: %w", err)
	}
	return nil
}

func one(ctx context.Context, tx pgx.Tx, t Told) error {
	if t.Call == nil {
		return endWithout(ctx, tx, t)
	}
	return fold(ctx, tx, t)
}

func endWithout(ctx context.Context, tx pgx.Tx, t Told) error {
	unsure := t.State == request.Dialing // it may have left for the carrier, under an id that nobody told
	state := t.State
	if unsure {
		state = request.Failed
	}
	did, err := tx.Exec(ctx, endRequest, pg.Args{"request": t.RequestID, "workspace_id": t.WorkspaceID, "state": state})
	if err != nil || did.RowsAffected() == 0 || !unsure {
		return err
	}
	why := request.Refusal{Code: "dial_state_unknown", Detail: "The dialer's database was restored while this request was being dialled; whether it was is not known."}
	f := request.NewFailed(t.RequestID, t.WorkspaceID, why, time.Now())
	return outbox.Put(ctx, tx, outbox.Event{ID: f.ID, Topic: kafka.DialEvents, Key: f.Key, WorkspaceID: f.WorkspaceID, Message: f.Event})
}

func fold(ctx context.Context, tx pgx.Tx, t Told) error {
	c := t.Call
	args := pg.Args{
		"request": t.RequestID, "workspace_id": t.WorkspaceID, "state": t.State, "call": c.ID, "nobody": uuid.New(), "to": c.To, "from": c.From, "agent": c.AgentID,
		"contact": c.ContactID, "status": c.Status, "cause": c.Cause, "disposition": c.Disposition, "code": c.Code, "detail": c.Detail, "queued_at": c.QueuedAt,
		"dialed_at": c.DialedAt, "ringing_at": c.RingingAt, "answered_at": c.AnsweredAt, "ended_at": c.EndedAt, "version": c.Version, "direction": "outbound",
	}
	statements := []string{dialled, fence, refused, heard}
	if t.RequestID == uuid.Nil {
		args["request"], args["direction"], statements = nil, "inbound", []string{heard}
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement, args); err != nil {
			return err
		}
	}
	return nil
}
