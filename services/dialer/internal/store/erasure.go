package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// Erasure identifies the erasure of a person.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
}

// blockErased changes the same row as the statement that commits a fence. So only the first of the
// two transactions succeeds.
const blockErased = `
UPDATE dial_queue SET state = 'blocked', claimed_by = NULL, held = false, variables = NULL, ended_at = now()
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id AND state = 'queued'
RETURNING now()`

// eraseCallsOfRequest is a separate statement, because it needs a newer snapshot than blockErased.
// If blockErased waited for the commit of a fence, its snapshot does not contain the call of that
// fence.
const eraseCallsOfRequest = `
UPDATE calls SET erased = true, variables = NULL, time_zone = '', turns = CASE WHEN ended_at IS NULL THEN turns ELSE '[]' END
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id`

const forgetVariables = `
UPDATE dial_queue SET variables = NULL
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id AND variables IS NOT NULL`

// EraseRequest erases a request and its calls. A queued request ends as blocked. A live call keeps
// the data that its agent needs until the call ends. EraseRequest can be repeated, and it ignores
// an unknown request.
//
// On a database server that is not reconciled, EraseRequest returns ErrServerChanged. A request
// that is queued on such a server can have a live call, which the reconciliation inserts again.
func (s *Store) EraseRequest(ctx context.Context, tx pgx.Tx, id uuid.UUID, e Erasure) error {
	if err := sameServer(tx.QueryRow(ctx, checkServer, pg.Args{"server": s.server()})); err != nil {
		return fmt.Errorf("erase request %s: %w", id, err)
	}
	args := pg.Args{"call_request_id": id, "workspace_id": e.WorkspaceID}
	at, err := pg.Value[time.Time](ctx, tx, blockErased, args)
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return fmt.Errorf("block request %s of an erased person: %w", id, err)
	}
	var batch pgx.Batch
	if err == nil {
		blocked := dialqueue.NewBlocked(id, e.WorkspaceID, dialqueue.Erased(), at)
		if err := outbox.Queue(ctx, &batch, outboxEvents(blocked)...); err != nil {
			return err
		}
	}
	batch.Queue(eraseCallsOfRequest, args)
	// The statement runs twice. The first run can wait for the commit of FenceAgain, which inserts
	// another call. Only the second run sees that call.
	batch.Queue(eraseCallsOfRequest, args)
	batch.Queue(forgetVariables, args)
	if err := sendBatch(ctx, tx, &batch); err != nil {
		return err
	}
	next, err := eraseRecordings(ctx, tx, eraseRecordingsOfRequest, pg.Args{"call_request_id": id, "workspace_id": e.WorkspaceID, "erasure_id": e.ID})
	if err != nil {
		return err
	}
	return outbox.Put(ctx, tx, stepDone(e, &eventv1.StepDone{Ref: id.String(), Next: next}))
}

const (
	eraseRecordingsOf = `
UPDATE recordings SET erasures = array_append(array_remove(erasures, @erasure_id::uuid), @erasure_id), try_at = now(), tries = 0,
	state = CASE WHEN state = 'recording' THEN state ELSE 'leaving' END
WHERE workspace_id = @workspace_id AND call_id = ANY (ARRAY(`
	eraseRecordingsOfRequest = eraseRecordingsOf + `SELECT c.call_id FROM calls c WHERE c.call_request_id = @call_request_id)) RETURNING call_id`
	eraseRecordingsOfCalls   = eraseRecordingsOf + `SELECT unnest(@calls::uuid[]))) RETURNING call_id`
)

// eraseRecordings marks recordings for deletion and returns one erasure step for each recording.
// The step is reported when the recording is deleted. The recording of a live call is deleted after
// the call has ended.
func eraseRecordings(ctx context.Context, tx pgx.Tx, sql string, args pg.Args) (next []*eventv1.ErasureStep, err error) {
	ids, err := pg.Values[uuid.UUID](ctx, tx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("erase recordings: %w", err)
	}
	for _, id := range ids {
		next = append(next, &eventv1.ErasureStep{Service: "dialer", Ref: id.String()})
	}
	return next, nil
}

// orderErasure does not restart an erasure that is in progress. A finished erasure runs again and
// publishes its events again.
const orderErasure = `
INSERT INTO erasures AS e (erasure_id, workspace_id, phone_e164, step_at)
	VALUES (@erasure_id, @workspace_id, @phone_e164, now())
ON CONFLICT (erasure_id) DO UPDATE SET
	workspace_id = excluded.workspace_id, phone_e164 = excluded.phone_e164, again = true,
		after_call = '00000000-0000-0000-0000-000000000000', step_at = now()
WHERE e.step_at IS NULL`

// The report of an opt-out needs the evidence. So the evidence is kept until contacts-compliance
// has acknowledged the opt-out, and the acknowledgement deletes it.
const forgetEvidence = `
UPDATE opt_outs SET evidence = '' WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164
	AND acknowledged_at IS NOT NULL AND evidence <> ''`

// OrderErasure starts the erasure of a number's inbound calls. EraseNextCalls does the work in
// steps, because a number can have any number of calls. EraseRequest erases outbound calls.
func (s *Store) OrderErasure(ctx context.Context, tx pgx.Tx, number string, e Erasure) error {
	args := pg.Args{"workspace_id": e.WorkspaceID, "phone_e164": number, "erasure_id": e.ID}
	var batch pgx.Batch
	batch.Queue(orderErasure, args)
	batch.Queue(forgetEvidence, args)
	if err := sendBatch(ctx, tx, &batch); err != nil {
		return fmt.Errorf("order erasure %s: %w", e.ID, err)
	}
	return nil
}

// claimErasure makes the claimed step due again after a minute. If a replica dies during a step,
// another replica repeats it.
const claimErasure = `
UPDATE erasures SET step_at = now() + interval '1 minute'
WHERE erasure_id = (SELECT erasure_id FROM erasures WHERE step_at <= now() ORDER BY step_at LIMIT 1
	FOR UPDATE SKIP LOCKED)
RETURNING erasure_id, workspace_id, phone_e164, again, after_call`

type erasureJob struct {
	ID          uuid.UUID `db:"erasure_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Number      string    `db:"phone_e164"`
	Again       bool      `db:"again"`
	// AfterCall is the last call that was erased.
	AfterCall uuid.UUID `db:"after_call"`
}

// EraseNextCalls does one step of one erasure: it erases at most limit calls and reports them. It
// returns false if no step is due. Replicas can call EraseNextCalls concurrently. A failed step is
// repeated after a minute.
func (s *Store) EraseNextCalls(ctx context.Context, limit int) (worked bool, err error) {
	job, err := pg.One[erasureJob](ctx, s.pool, claimErasure, nil)
	if errors.Is(err, pg.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim erasure: %w", err)
	}
	if err := s.inTx(ctx, func(tx pgx.Tx) error { return s.eraseCalls(ctx, tx, job, limit) }); err != nil {
		return false, fmt.Errorf("erase calls of erasure %s: %w", job.ID, err)
	}
	return true, nil
}

const lockCallsOfCaller = `
SELECT ` + callColumns + `
FROM calls WHERE workspace_id = @workspace_id AND from_number = @phone_e164 AND direction = 'inbound'
	AND erased = @again AND call_id > @after_call
ORDER BY call_id LIMIT @limit FOR UPDATE`

const saveErased = `
UPDATE calls SET erased = true, variables = NULL, time_zone = '', turns = @turns, version = @version WHERE call_id = @call_id`

// advanceErasure deletes the number from the row after the last step.
const advanceErasure = `
UPDATE erasures SET after_call = @last, step_at = CASE WHEN @more::boolean THEN now() END,
	phone_e164 = CASE WHEN @more THEN phone_e164 END
WHERE erasure_id = @erasure_id AND after_call = @after_call AND step_at IS NOT NULL
RETURNING now()`

// eraseCalls erases the transcripts of the erasure's next calls, and publishes the event `erased`
// for each call. A live call keeps the data that its agent needs until the call ends.
func (s *Store) eraseCalls(ctx context.Context, tx pgx.Tx, job erasureJob, limit int) error {
	args := pg.Args{
		"erasure_id": job.ID, "workspace_id": job.WorkspaceID, "phone_e164": job.Number, "again": job.Again,
		"after_call": job.AfterCall, "limit": limit, "last": job.AfterCall,
	}
	rows, err := tx.Query(ctx, lockCallsOfCaller, args)
	if err != nil {
		return fmt.Errorf("lock calls: %w", err)
	}
	calls, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[callstate.Call])
	if err != nil {
		return fmt.Errorf("lock calls: %w", err)
	}
	more := len(calls) == limit
	args["more"] = more
	if len(calls) > 0 {
		args["last"] = calls[len(calls)-1].CallID
	}
	var at time.Time
	if err := tx.QueryRow(ctx, advanceErasure, args).Scan(&at); err != nil {
		return fmt.Errorf("store the progress: %w", err) // no row means that another replica did the step
	}
	e := Erasure{ID: job.ID, WorkspaceID: job.WorkspaceID}
	var batch pgx.Batch
	next, err := s.queueErased(ctx, tx, &batch, calls, e, at)
	if err != nil {
		return err
	}
	if err := outbox.Queue(ctx, &batch, stepDone(e, &eventv1.StepDone{Next: next, More: more})); err != nil {
		return err
	}
	return sendBatch(ctx, tx, &batch)
}

// queueErased adds the statements that erase the calls to the batch. It returns the steps that must
// follow: the deletion of recordings, and the calls whose data the service `calls` must erase.
func (s *Store) queueErased(
	ctx context.Context, tx pgx.Tx, batch *pgx.Batch, calls []*callstate.Call, e Erasure, at time.Time,
) ([]*eventv1.ErasureStep, error) {
	ids := make([]uuid.UUID, len(calls))
	for i, c := range calls {
		ids[i] = c.CallID
	}
	args := pg.Args{"calls": ids, "workspace_id": e.WorkspaceID, "erasure_id": e.ID}
	next, err := eraseRecordings(ctx, tx, eraseRecordingsOfCalls, args)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		c.Erase(e.ID, at)
		batch.Queue(saveErased, pg.Args{"call_id": c.CallID, "turns": s.callArgs(c)["turns"], "version": c.Version})
		if facts := c.Facts(); len(facts) > 0 {
			next = append(next, &eventv1.ErasureStep{Service: "calls", Ref: c.CallID.String()})
			if err := queueTraced(ctx, batch, "erase call", c.Traceparent, facts...); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

func stepDone(e Erasure, step *eventv1.StepDone) outbox.Event {
	return outbox.Event{
		Topic: kafka.ErasureReports, Key: e.ID.String(), WorkspaceID: e.WorkspaceID,
		Message: &eventv1.ErasureReport{
			ErasureId: e.ID.String(), WorkspaceId: e.WorkspaceID.String(), OccurredAt: timestamppb.Now(), Service: "dialer",
			Event: &eventv1.ErasureReport_StepDone{StepDone: step},
		},
	}
}

const forgetSpoken = `
UPDATE calls SET turns = '[]' WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NOT NULL AND json_array_length(turns) > 0 AND ended_at < @at
	ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED))`

// ForgetSpoken deletes the transcripts of up to limit calls that ended before endedBefore. It
// returns how many transcripts it deleted.
func (s *Store) ForgetSpoken(ctx context.Context, endedBefore time.Time, limit int) (int64, error) {
	did, err := s.pool.Exec(ctx, forgetSpoken, pg.Args{"at": endedBefore, "limit": limit})
	if err != nil {
		return 0, fmt.Errorf("delete transcripts: %w", err)
	}
	return did.RowsAffected(), nil
}
