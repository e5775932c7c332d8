package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callstate"
)

// Erasure is the order to erase a person.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Number      string
	ContactID   uuid.UUID
	// Erasures is the erasure counter of the phone number, including this erasure.
	Erasures int64
}

func personKey(workspaceID uuid.UUID, number string) string {
	return "person " + workspaceID.String() + " " + number
}

const lockPerson = `SELECT pg_advisory_xact_lock(hashtextextended(@person::text, 0))`

// orderErasure stores the erasure counter of a number. The column `again` is true if the number
// already had this counter or a higher one.
const orderErasure = `
WITH known AS (
    SELECT erasures FROM erasures WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164
), ordered AS (
    INSERT INTO erasures AS e (workspace_id, phone_e164, erasures) VALUES (@workspace_id, @phone_e164, @erasures)
    ON CONFLICT (workspace_id, phone_e164) DO UPDATE
    SET erasures = greatest(e.erasures, EXCLUDED.erasures), ordered_at = now()
)
SELECT coalesce((SELECT erasures >= @erasures FROM known), false) AS again`

const inboundCallsOfPerson = `
SELECT id FROM calls WHERE workspace_id = @workspace_id AND from_number = @phone_e164 AND direction = 'inbound'`

// last_call is the newest inbound call at the time of the order. The job does not erase inbound
// calls that arrive later.
const insertErasureJob = `
INSERT INTO erasure_jobs (erasure_id, workspace_id, phone_e164, contact_id, erasures, again, last_call, step_at)
SELECT @erasure_id, @workspace_id, @phone_e164, @contact_id, @erasures, @again,
    coalesce((` + inboundCallsOfPerson + ` ORDER BY id DESC LIMIT 1), '00000000-0000-0000-0000-000000000000'), now()
ON CONFLICT (erasure_id) DO NOTHING`

// Erase increases the erasure counter of the number, so that no request that was allowed earlier
// can be created. It also starts a job that erases the requests and calls of the person. The first
// step runs in tx, and EraseNext runs the other steps.
//
// If the same erasure was ordered before, an unfinished job continues. A finished job starts again
// and publishes the same events again.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, e Erasure) error {
	args := pgx.NamedArgs{
		"person": personKey(e.WorkspaceID, e.Number), "erasure_id": e.ID, "workspace_id": e.WorkspaceID,
		"phone_e164": e.Number, "contact_id": e.ContactID, "erasures": e.Erasures,
	}
	for _, sql := range []string{forceIndexes, lockPerson} {
		if _, err := tx.Exec(ctx, sql, pg.Args(args)); err != nil {
			return fmt.Errorf("lock an erased person: %w", err)
		}
	}
	var again bool
	if err := tx.QueryRow(ctx, orderErasure, pg.Args(args)).Scan(&again); err != nil {
		return fmt.Errorf("order erasure %s: %w", e.ID, err)
	}
	args["again"] = again
	inserted, err := tx.Exec(ctx, insertErasureJob, pg.Args(args))
	if err != nil {
		return fmt.Errorf("insert job of erasure %s: %w", e.ID, err)
	}
	if inserted.RowsAffected() == 0 {
		return nil
	}
	return eraseStep(ctx, tx, e.ID)
}

// claimErasureJob claims a due job for one minute. If a replica dies during a step, another replica
// repeats the step after this minute.
const claimErasureJob = `
UPDATE erasure_jobs SET step_at = now() + interval '1 minute'
WHERE erasure_id = (
    SELECT erasure_id FROM erasure_jobs WHERE step_at <= now() ORDER BY step_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING erasure_id`

// EraseNext runs one step of one erasure job in a separate transaction. It returns false if no step
// is due. A failed step is due again after a minute. Replicas can call EraseNext concurrently.
func (s *Store) EraseNext(ctx context.Context) (worked bool, err error) {
	id, err := pg.Value[uuid.UUID](ctx, s.pool, claimErasureJob, nil)
	if errors.Is(err, pg.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim erasure job: %w", err)
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, forceIndexes); err != nil {
			return err
		}
		return eraseStep(ctx, tx, id)
	})
	if err != nil {
		return false, fmt.Errorf("do a step of erasure %s: %w", id, err)
	}
	return true, nil
}

// maxErasedPerStep limits the number of requests in one step, and also the number of inbound calls.
// It limits the locks and the duration of the transaction, and the size of the report.
const maxErasedPerStep = 500

// erasureJob is an erasure with requests or calls that are not erased yet.
type erasureJob struct {
	ID          uuid.UUID `db:"erasure_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Number      string    `db:"phone_e164"`
	ContactID   uuid.UUID `db:"contact_id"`
	Erasures    int64     `db:"erasures"`
	// Again is true if the erasure was ordered before. The job then also processes rows that are
	// already erased.
	Again bool `db:"again"`
	// LastCall is the id of the newest inbound call at the time when the erasure was ordered.
	LastCall uuid.UUID `db:"last_call"`
	// AfterRequest and AfterCall are the ids of the last request and the last inbound call that the
	// job processed. AfterRequest is uuid.Max if no request is left.
	AfterRequest uuid.UUID `db:"after_request"`
	AfterCall    uuid.UUID `db:"after_call"`
}

const lockErasureJob = `
SELECT erasure_id, workspace_id, phone_e164, contact_id, erasures, again, last_call, after_request, after_call
FROM erasure_jobs WHERE erasure_id = @erasure_id FOR UPDATE`

// requestsOfPerson finds the call requests of a person. A request that has a call is found by the
// contact of this call. Another request is found by its number.
const requestsOfPerson = `
SELECT id FROM (
    SELECT id FROM call_requests
    WHERE workspace_id = @workspace_id AND to_e164 = @phone_e164 AND call_id IS NULL AND id > @after_request
    UNION
    SELECT call_request_id FROM calls
    WHERE workspace_id = @workspace_id AND contact_id = @contact_id AND call_request_id > @after_request
) AS found
ORDER BY id LIMIT @limit`

const lockRequestsOfPerson = `
SELECT id FROM call_requests
WHERE id = ANY (@candidates::uuid[]) AND workspace_id = @workspace_id AND to_e164 = @phone_e164
    AND erasures < @erasures AND (erased_at IS NULL OR @again)
ORDER BY id FOR UPDATE`

const callsOfRequests = `SELECT id FROM calls WHERE call_request_id = ANY (@requests::uuid[])`

// An inbound call stores no erasure counter, so the query uses erased_at. The first order of an
// erasure selects the calls that are not erased yet. A repeated order selects the erased calls.
const nextInboundCalls = inboundCallsOfPerson + `
    AND (erased_at IS NOT NULL) = @again AND id > @after_call AND id <= @last_call
ORDER BY id LIMIT @limit`

const lockErased = `SELECT id FROM calls WHERE id = ANY (@candidates::uuid[]) ORDER BY id FOR UPDATE`

const eraseRequests = `
UPDATE call_requests SET variables = '{}', erased_at = coalesce(erased_at, now()) WHERE id = ANY (@requests::uuid[])
RETURNING id, call_id IS NULL AND status IN ('blocked', 'failed', 'canceled') AS published`

const eraseCalls = `
UPDATE calls SET summary = NULL, transcript = NULL, recording_key = NULL, erased_at = coalesce(erased_at, now())
WHERE id = ANY (@calls::uuid[])
RETURNING id, sequence > 0 AS published`

// erasedRow is an erased call or request.
type erasedRow struct {
	ID uuid.UUID `db:"id"`
	// Published is true if public events of the call or request were published.
	Published bool `db:"published"`
}

const (
	advanceErasureJob = `
UPDATE erasure_jobs SET after_request = @after_request, after_call = @after_call, step_at = now()
WHERE erasure_id = @erasure_id`
	deleteErasureJob = `DELETE FROM erasure_jobs WHERE erasure_id = @erasure_id`
)

// eraseStep erases the next requests and calls of the job and publishes the event `erased` for each
// of them. The same transaction stores the progress of the job. The last step deletes the job.
func eraseStep(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	job, err := pg.One[erasureJob](ctx, tx, lockErasureJob, pgx.NamedArgs{"erasure_id": id})
	if errors.Is(err, pg.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock erasure job: %w", err)
	}
	args := pgx.NamedArgs{
		"erasure_id": job.ID, "workspace_id": job.WorkspaceID, "phone_e164": job.Number, "contact_id": job.ContactID,
		"erasures": job.Erasures, "again": job.Again, "last_call": job.LastCall,
		"after_request": job.AfterRequest, "after_call": job.AfterCall, "limit": maxErasedPerStep,
	}
	more, err := lockNextErased(ctx, tx, job, args)
	if err != nil {
		return err
	}
	requests, err := pg.Many[erasedRow](ctx, tx, eraseRequests, args)
	if err != nil {
		return fmt.Errorf("erase requests: %w", err)
	}
	calls, err := pg.Many[erasedRow](ctx, tx, eraseCalls, args)
	if err != nil {
		return fmt.Errorf("erase calls: %w", err)
	}
	save := deleteErasureJob
	if more {
		save = advanceErasureJob
	}
	if _, err := tx.Exec(ctx, save, pg.Args(args)); err != nil {
		return fmt.Errorf("save erasure job: %w", err)
	}
	return publishErased(ctx, tx, job, requests, calls, more)
}

// lockNextErased locks the requests and calls of the next step, in the same order as Store.Lock. It
// stores their ids and the new progress in args. more is true if further steps are needed.
func lockNextErased(
	ctx context.Context, tx pgx.Tx, job erasureJob, args pgx.NamedArgs,
) (more bool, err error) {
	found := []uuid.UUID{}
	if job.AfterRequest != uuid.Max {
		if found, err = queryIDs(ctx, tx, requestsOfPerson, args); err != nil {
			return false, fmt.Errorf("find requests: %w", err)
		}
	}
	args["candidates"], args["after_request"] = found, uuid.Max
	if len(found) == maxErasedPerStep {
		args["after_request"], more = found[len(found)-1], true
	}
	if args["requests"], err = queryIDs(ctx, tx, lockRequestsOfPerson, args); err != nil {
		return false, fmt.Errorf("lock requests: %w", err)
	}
	outbound, err := queryIDs(ctx, tx, callsOfRequests, args)
	if err != nil {
		return false, fmt.Errorf("find calls of requests: %w", err)
	}
	inbound, err := queryIDs(ctx, tx, nextInboundCalls, args)
	if err != nil {
		return false, fmt.Errorf("find inbound calls: %w", err)
	}
	args["candidates"], args["after_call"] = slices.Concat(outbound, inbound), job.LastCall
	if len(inbound) == maxErasedPerStep {
		args["after_call"], more = inbound[len(inbound)-1], true
	}
	if args["calls"], err = queryIDs(ctx, tx, lockErased, args); err != nil {
		return false, fmt.Errorf("lock calls: %w", err)
	}
	return more, nil
}

// queryIDs returns the ids that the statement selects. The slice is never nil.
func queryIDs(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, sql, pg.Args(args))
	if err != nil {
		return nil, err
	}
	return pgx.AppendRows([]uuid.UUID{}, rows, pgx.RowTo[uuid.UUID])
}

// publishErased publishes the event `erased` for each request. For each call and request with
// public events, it publishes the order to erase the bodies of these events. It also publishes a
// report with the steps that other services must do.
func publishErased(
	ctx context.Context, tx pgx.Tx, job erasureJob, requests, calls []erasedRow, more bool,
) error {
	var now time.Time
	if err := tx.QueryRow(ctx, dbNow).Scan(&now); err != nil {
		return fmt.Errorf("read the time: %w", err)
	}
	batch, step := &pgx.Batch{}, &eventv1.StepDone{More: more}
	for _, row := range requests {
		req := &callstate.Request{ID: row.ID, WorkspaceID: job.WorkspaceID}
		if err := outbox.Queue(ctx, batch, requestEvent(req, req.ErasedEvent(job.ID, now))); err != nil {
			return err
		}
		step.Next = append(step.Next, &eventv1.ErasureStep{Service: "dialer", Ref: row.ID.String()})
		if !row.Published {
			continue // no event was published yet; a later event will be marked as erased
		}
		bodies := outbox.Event{
			Topic:       kafka.CallEvents,
			Key:         row.ID.String(),
			WorkspaceID: job.WorkspaceID,
			Message:     req.BodiesErasedEvent(job.ID, now),
		}
		if err := outbox.Queue(ctx, batch, bodies); err != nil {
			return err
		}
		step.Next = append(step.Next, &eventv1.ErasureStep{Service: "webhook-dispatcher", Ref: row.ID.String()})
	}
	for _, c := range calls {
		if !c.Published {
			continue // no event was published yet; a later event will be marked as erased
		}
		if err := outbox.Queue(ctx, batch, bodiesErased(c.ID, job.WorkspaceID, job.ID, now)); err != nil {
			return err
		}
		step.Next = append(step.Next, &eventv1.ErasureStep{Service: "webhook-dispatcher", Ref: c.ID.String()})
	}
	if err := outbox.Queue(ctx, batch, stepDone(job.ID, job.WorkspaceID, now, step)); err != nil {
		return err
	}
	return tx.SendBatch(ctx, batch).Close()
}

func bodiesErased(callID, workspaceID, erasure uuid.UUID, at time.Time) outbox.Event {
	return outbox.Event{
		Topic: kafka.CallEvents, Key: callID.String(), WorkspaceID: workspaceID,
		Message: (&callstate.Call{ID: callID, WorkspaceID: workspaceID}).ErasedEvent(erasure, at),
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

// ReportErased reports that the dialer's event `erased` of an inbound call was applied. If events
// of the call were published, ReportErased also publishes an event that orders the erasure of their
// bodies.
func (f *Fold) ReportErased(ctx context.Context, c *callstate.Call, erasure uuid.UUID) error {
	step := &eventv1.StepDone{Ref: c.ID.String()}
	if c.Sequence > 0 {
		if err := outbox.Queue(ctx, &f.events, bodiesErased(c.ID, c.WorkspaceID, erasure, f.Now)); err != nil {
			return err
		}
		step.Next = []*eventv1.ErasureStep{{Service: "webhook-dispatcher", Ref: c.ID.String()}}
	}
	return outbox.Queue(ctx, &f.events, stepDone(erasure, c.WorkspaceID, f.Now, step))
}

const erasedSince = `
SELECT EXISTS (SELECT FROM erasures WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND erasures > @erasures)`

// ErasedSince reports whether the person was erased after the request was allowed.
func (s *Store) ErasedSince(ctx context.Context, req callstate.Request) (erased bool, err error) {
	err = s.pool.QueryRow(ctx, erasedSince, pg.Args{"workspace_id": req.WorkspaceID, "phone_e164": req.To, "erasures": req.Erasures}).Scan(&erased)
	if err != nil {
		return false, fmt.Errorf("look for an erasure: %w", err)
	}
	return erased, nil
}

// Retention contains the retention periods of a workspace in days. If a period is nil, the default
// is used.
type Retention struct {
	WorkspaceID     uuid.UUID `db:"id"`
	CallsDays       *int32    `db:"keep_calls_days"`
	TranscriptsDays *int32    `db:"keep_transcripts_days"`
}

const selectRetentions = `
SELECT id, keep_calls_days, keep_transcripts_days FROM workspaces WHERE id > @after::uuid ORDER BY id LIMIT 500`

// Retentions returns up to 500 workspaces whose id is greater than afterID, in the order of their
// ids.
func (s *Store) Retentions(ctx context.Context, afterID uuid.UUID) ([]Retention, error) {
	found, err := pg.Many[Retention](ctx, s.pool, selectRetentions, pgx.NamedArgs{"after": afterID})
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return found, nil
}

const deleteTranscripts = `
UPDATE calls SET transcript = NULL WHERE id = ANY (ARRAY(
    SELECT id FROM calls WHERE workspace_id = @workspace_id AND transcript IS NOT NULL AND ended_at < @at
    ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED))`

const deleteCalls = `
DELETE FROM calls WHERE id = ANY (ARRAY(
    SELECT id FROM calls WHERE workspace_id = @workspace_id AND uuid_send(id) < uuid_send(@before::uuid) AND closed AND ended_at < @at
    ORDER BY uuid_send(id) LIMIT @limit FOR UPDATE SKIP LOCKED))`

// deleteRequests reads each status separately, so that it can use the index of the lists.
const deleteRequests = `
DELETE FROM call_requests WHERE id = ANY (ARRAY(
    SELECT r.id FROM unnest(@statuses::text[]) AS one (one_status) CROSS JOIN LATERAL (
        SELECT id FROM call_requests
        WHERE workspace_id = @workspace_id AND status = one_status AND uuid_send(id) < uuid_send(@before::uuid) AND completed_at < @at
        ORDER BY uuid_send(id) LIMIT @limit FOR UPDATE SKIP LOCKED) r
    LIMIT @limit))`

// DeleteTranscripts deletes the transcripts of up to limit calls of the workspace that ended before
// the time `at`. It returns the number of these calls.
func (s *Store) DeleteTranscripts(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.deleteOld(ctx, deleteTranscripts, workspaceID, at, limit)
}

// DeleteCalls deletes up to limit calls of the workspace that ended before the time `at`. It
// returns the number of these calls.
func (s *Store) DeleteCalls(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.deleteOld(ctx, deleteCalls, workspaceID, at, limit)
}

// DeleteRequests deletes up to limit call requests of the workspace that ended before the time
// `at`. It returns the number of these requests.
func (s *Store) DeleteRequests(ctx context.Context, workspaceID uuid.UUID, at time.Time, limit int) (int64, error) {
	return s.deleteOld(ctx, deleteRequests, workspaceID, at, limit)
}

func (s *Store) deleteOld(ctx context.Context, sql string, workspaceID uuid.UUID, at time.Time, limit int) (int64,
	error) {
	final := slices.DeleteFunc(callstate.RequestStatuses(), func(status string) bool { return !callstate.RequestStatus(status).Final() })
	did, err := s.pool.Exec(ctx, sql, pg.Args{
		"workspace_id": workspaceID, "at": at, "before": page.FirstID(at), "limit": limit, "statuses": final,
	})
	if err != nil {
		return 0, fmt.Errorf("delete old data of workspace %s: %w", workspaceID, err)
	}
	return did.RowsAffected(), nil
}

const deleteErasures = `DELETE FROM erasures WHERE ordered_at < @at`

// DeleteErasures deletes erasure counters that were set before the given time. A counter is still
// needed while a request with an older pre-check can be created.
func (s *Store) DeleteErasures(ctx context.Context, before time.Time) error {
	if _, err := s.pool.Exec(ctx, deleteErasures, pg.Args{"at": before}); err != nil {
		return fmt.Errorf("delete old erasures: %w", err)
	}
	return nil
}
