package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/instant"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/call"
)

// Erasure is a person that is erased.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Number      string
	ContactID   uuid.UUID
	// Erasures is how often the number was erased, this time included.
	Erasures int64
}

func personKey(workspaceID uuid.UUID, number string) string {
	return "person " + workspaceID.String() + " " + number
}

const lockPerson = `SELECT pg_advisory_xact_lock(hashtextextended(@person::text, 0))`

// Again says that this erasure was ordered before: what began since then is not its own.
const orderErasure = `
WITH known AS (
    SELECT erasures FROM erasures WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164
), ordered AS (
    INSERT INTO erasures AS e (workspace_id, phone_e164, erasures) VALUES (@workspace_id, @phone_e164, @erasures)
    ON CONFLICT (workspace_id, phone_e164) DO UPDATE SET erasures = greatest(e.erasures, EXCLUDED.erasures), ordered_at = now()
)
SELECT coalesce((SELECT erasures >= @erasures FROM known), false) AS again, clock_timestamp() AS now`

const requestsOfPerson = `
SELECT id FROM call_requests WHERE workspace_id = @workspace_id AND to_e164 = @phone_e164 AND call_id IS NULL
UNION
SELECT call_request_id FROM calls WHERE workspace_id = @workspace_id AND contact_id = @contact_id AND call_request_id IS NOT NULL`

const lockRequestsOfPerson = `
SELECT id FROM call_requests
WHERE id = ANY (@candidates::uuid[]) AND workspace_id = @workspace_id AND to_e164 = @phone_e164 AND erasures < @erasures AND (erased_at IS NULL OR @again)
ORDER BY id FOR UPDATE`

const eraseRequests = `UPDATE call_requests SET variables = '{}', erased_at = coalesce(erased_at, now()) WHERE id = ANY (@requests::uuid[])`

// An inbound call has no count: those go that are known when the erasure is first ordered.
const callsOfPerson = `
SELECT id FROM calls WHERE call_request_id = ANY (@requests::uuid[])
UNION
SELECT id FROM calls WHERE workspace_id = @workspace_id AND from_number = @phone_e164 AND direction = 'inbound' AND (erased_at IS NOT NULL) = @again`

const lockErased = `SELECT id FROM calls WHERE id = ANY (@candidates::uuid[]) ORDER BY id FOR UPDATE`

const eraseCalls = `
UPDATE calls SET summary = NULL, transcript = NULL, recording_key = NULL, erased_at = coalesce(erased_at, now()) WHERE id = ANY (@calls::uuid[])
RETURNING id, sequence > 0 AS told`

type erasedCall struct {
	ID uuid.UUID `db:"id"`
	// Told says that events of it went out.
	Told bool `db:"told"`
}

// Erase forgets what a person was called about and what was said, and tells so behind what was told of each request and call. Requests and calls are locked in
// the order in which facts are folded. Ordered again it tells the same again.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, e Erasure) error {
	args := pgx.NamedArgs{
		"person": personKey(e.WorkspaceID, e.Number), "workspace_id": e.WorkspaceID, "phone_e164": e.Number, "contact_id": e.ContactID, "erasures": e.Erasures,
	}
	for _, deed := range []string{foldByIndex, lockPerson} {
		if _, err := tx.Exec(ctx, deed, pg.Args(args)); err != nil {
			return fmt.Errorf("lock an erased person: %w", err)
		}
	}
	var again bool
	var now time.Time
	if err := tx.QueryRow(ctx, orderErasure, pg.Args(args)).Scan(&again, &now); err != nil {
		return fmt.Errorf("order erasure %s: %w", e.ID, err)
	}
	args["again"] = again
	requests, err := lockIDs(ctx, tx, requestsOfPerson, lockRequestsOfPerson, args)
	if err != nil {
		return fmt.Errorf("lock requests of an erased person: %w", err)
	}
	args["requests"] = requests
	if args["calls"], err = lockIDs(ctx, tx, callsOfPerson, lockErased, args); err != nil {
		return fmt.Errorf("lock calls of an erased person: %w", err)
	}
	if _, err := tx.Exec(ctx, eraseRequests, pg.Args(args)); err != nil {
		return fmt.Errorf("erase requests: %w", err)
	}
	calls, err := pg.Many[erasedCall](ctx, tx, eraseCalls, args)
	if err != nil {
		return fmt.Errorf("erase calls: %w", err)
	}
	return tellErased(ctx, tx, e, requests, calls, now)
}

// lockIDs locks what find finds, as far as lock still finds it so.
func lockIDs(ctx context.Context, tx pgx.Tx, find, lock string, args pgx.NamedArgs) (ids []uuid.UUID, err error) {
	for _, sql := range []string{find, lock} {
		rows, err := tx.Query(ctx, sql, pg.Args(args))
		if err != nil {
			return nil, err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
			return nil, err
		}
		if ids == nil {
			ids = []uuid.UUID{}
		}
		args["candidates"] = ids
	}
	return ids, nil
}

// tellErased tells dialer and webhook-dispatcher under the keys of what goes, and reports which steps these are.
func tellErased(ctx context.Context, tx pgx.Tx, e Erasure, requests []uuid.UUID, calls []erasedCall, now time.Time) error {
	batch, next := &pgx.Batch{}, []*eventv1.ErasureStep{}
	for _, id := range requests {
		fact := (&call.Request{ID: id, WorkspaceID: e.WorkspaceID}).Forgotten(e.ID, now)
		if err := outbox.Queue(ctx, batch, outbox.Event{Topic: kafka.CallRequests, Key: id.String(), WorkspaceID: e.WorkspaceID, Message: fact}); err != nil {
			return err
		}
		next = append(next, &eventv1.ErasureStep{Service: "dialer", Ref: id.String()})
	}
	for _, c := range calls {
		if !c.Told {
			continue // what it tells from now on says by itself that it is to be forgotten
		}
		if err := outbox.Queue(ctx, batch, bodiesErased(c.ID, e.WorkspaceID, e.ID, now)); err != nil {
			return err
		}
		next = append(next, &eventv1.ErasureStep{Service: "webhook-dispatcher", Ref: c.ID.String()})
	}
	for len(next) > reportAtOnce {
		if err := outbox.Queue(ctx, batch, stepDone(e.ID, e.WorkspaceID, now, &eventv1.StepDone{Next: next[:reportAtOnce], More: true})); err != nil {
			return err
		}
		next = next[reportAtOnce:]
	}
	if err := outbox.Queue(ctx, batch, stepDone(e.ID, e.WorkspaceID, now, &eventv1.StepDone{Next: next})); err != nil {
		return err
	}
	return tx.SendBatch(ctx, batch).Close()
}

// reportAtOnce is how many steps fit one report with room to spare.
const reportAtOnce = 5000

func bodiesErased(callID, workspaceID, erasure uuid.UUID, at time.Time) outbox.Event {
	return outbox.Event{
		Topic: kafka.CallEvents, Key: callID.String(), WorkspaceID: workspaceID,
		Message: (&call.Call{ID: callID, WorkspaceID: workspaceID}).Forgotten(erasure, at),
	}
}

func stepDone(erasure, workspaceID uuid.UUID, at time.Time, step *eventv1.StepDone) outbox.Event {
	return outbox.Event{
		Topic: kafka.ErasureReports, Key: erasure.String(), WorkspaceID: workspaceID,
		Message: &eventv1.ErasureReport{
			ErasureId: erasure.String(), WorkspaceId: workspaceID.String(), OccurredAt: timestamppb.New(at), Service: "calls",
			Event: &eventv1.ErasureReport_StepDone{StepDone: step},
		},
	}
}

// Forget has the dialer's word on an inbound call told onward: that its bodies go, when events went out, and that this step is done.
func (f *Fold) Forget(ctx context.Context, c *call.Call, erasure uuid.UUID) error {
	step := &eventv1.StepDone{Ref: c.ID.String()}
	if c.Sequence > 0 {
		if err := outbox.Queue(ctx, &f.told, bodiesErased(c.ID, c.WorkspaceID, erasure, f.Now)); err != nil {
			return err
		}
		step.Next = []*eventv1.ErasureStep{{Service: "webhook-dispatcher", Ref: c.ID.String()}}
	}
	return outbox.Queue(ctx, &f.told, stepDone(erasure, c.WorkspaceID, f.Now, step))
}

const erasedSince = `
SELECT EXISTS (SELECT FROM erasures WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND erasures > @erasures)`

// ErasedSince says whether the person was erased after a request to their number was allowed.
func (s *Store) ErasedSince(ctx context.Context, req call.Request) (erased bool, err error) {
	err = s.pool.QueryRow(ctx, erasedSince, pg.Args{"workspace_id": req.WorkspaceID, "phone_e164": req.To, "erasures": req.Erasures}).Scan(&erased)
	if err != nil {
		return false, fmt.Errorf("look for an erasure: %w", err)
	}
	return erased, nil
}

// Kept is a workspace and for how many days it wants what kept; nil: the standard.
type Kept struct {
	WorkspaceID     uuid.UUID `db:"id"`
	CallsDays       *int32    `db:"keep_calls_days"`
	TranscriptsDays *int32    `db:"keep_transcripts_days"`
}

const keptWorkspaces = `
SELECT id, keep_calls_days, keep_transcripts_days FROM workspaces WHERE id > @after::uuid ORDER BY id LIMIT 500`

// KeptWorkspaces lists up to 500 workspaces behind the given one.
func (s *Store) KeptWorkspaces(ctx context.Context, after uuid.UUID) ([]Kept, error) {
	found, err := pg.Many[Kept](ctx, s.pool, keptWorkspaces, pgx.NamedArgs{"after": after})
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return found, nil
}

const forgetTranscripts = `
UPDATE calls SET transcript = NULL WHERE id = ANY (ARRAY(
    SELECT id FROM calls WHERE workspace_id = @workspace_id AND transcript IS NOT NULL AND ended_at < @at
    ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED))`

const forgetCalls = `
DELETE FROM calls WHERE id = ANY (ARRAY(
    SELECT id FROM calls WHERE workspace_id = @workspace_id AND uuid_send(id) < uuid_send(@before::uuid) AND closed AND ended_at < @at
    ORDER BY uuid_send(id) LIMIT @limit FOR UPDATE SKIP LOCKED))`

// Lane by lane, as lists are read.
const forgetRequests = `
DELETE FROM call_requests WHERE id = ANY (ARRAY(
    SELECT r.id FROM unnest(@statuses::text[]) AS lane (stage) CROSS JOIN LATERAL (
        SELECT id FROM call_requests WHERE workspace_id = @workspace_id AND status = stage AND uuid_send(id) < uuid_send(@before::uuid) AND completed_at < @at
        ORDER BY uuid_send(id) LIMIT @limit FOR UPDATE SKIP LOCKED) r
    LIMIT @limit))`

// ForgetTranscripts forgets what was said in up to limit calls of the workspace that ended before the instant, and says of how many.
func (s *Store) ForgetTranscripts(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.forget(ctx, forgetTranscripts, workspaceID, at, limit)
}

// ForgetCalls deletes up to limit calls of the workspace that ended before the instant, and says how many.
func (s *Store) ForgetCalls(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.forget(ctx, forgetCalls, workspaceID, at, limit)
}

// ForgetRequests deletes up to limit call requests of the workspace that ended before the instant, and says how many.
func (s *Store) ForgetRequests(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.forget(ctx, forgetRequests, workspaceID, at, limit)
}

func (s *Store) forget(ctx context.Context, sql string, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	final := slices.DeleteFunc(call.RequestStatuses(), func(status string) bool { return !call.RequestStatus(status).Final() })
	did, err := s.pool.Exec(ctx, sql, pg.Args{
		"workspace_id": workspaceID, "at": at, "before": instant.FirstID(at), "limit": limit, "statuses": final,
	})
	if err != nil {
		return 0, fmt.Errorf("forget what workspace %s does not want kept: %w", workspaceID, err)
	}
	return did.RowsAffected(), nil
}

const forgetErasures = `DELETE FROM erasures WHERE ordered_at < @at`

// ForgetErasures forgets whom nobody can still place a request for that was allowed before their erasure.
func (s *Store) ForgetErasures(ctx context.Context, at time.Time) error {
	if _, err := s.pool.Exec(ctx, forgetErasures, pg.Args{"at": at}); err != nil {
		return fmt.Errorf("forget old erasures: %w", err)
	}
	return nil
}
