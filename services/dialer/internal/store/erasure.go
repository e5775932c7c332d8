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
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/request"
)

// Erasure is a person that is erased.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
}

// A guarded update like withdraw: it and the fence are updates of one row, and the first commit wins.
const blockErased = `
UPDATE dial_queue SET state = 'blocked', claimed_by = NULL, ready = false, held = false, variables = NULL, ended_at = now()
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id AND state = 'queued'
RETURNING now()`

// A statement of its own: the call of a fence that blockErased had to wait for is younger than what that one saw.
const eraseCallsOfRequest = `
UPDATE calls SET erased = true, variables = NULL, time_zone = '', turns = CASE WHEN ended_at IS NULL THEN turns ELSE '[]' END
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id`

// The news of a SIP trunk are read in order: those of a call that has ended are read.
const forgetNews = `UPDATE sip_news SET text = '' WHERE call_id = ANY (@ids::uuid[]) AND text <> ''`

const forgetNewsOfRequest = `
UPDATE sip_news SET text = '' WHERE text <> '' AND call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id AND ended_at IS NOT NULL))`

const forgetVariables = `
UPDATE dial_queue SET variables = NULL
WHERE call_request_id = @call_request_id AND workspace_id = @workspace_id AND variables IS NOT NULL`

// EraseRequest forgets what is kept of a request and of its calls; while it is queued it ends blocked, and a call that goes on leaves nothing but
// its facts. Again: the same. A request that was never here is nothing to forget.
func (s *Store) EraseRequest(ctx context.Context, tx pgx.Tx, id uuid.UUID, e Erasure) error {
	args := pg.Args{"call_request_id": id, "workspace_id": e.WorkspaceID}
	var at time.Time
	err := tx.QueryRow(ctx, blockErased, args).Scan(&at)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("block request %s of an erased person: %w", id, err)
	}
	var batch pgx.Batch
	if err == nil {
		batch.Queue(giveBackSlot, args)
		if err := outbox.Queue(ctx, &batch, outgoing(request.NewBlocked(id, e.WorkspaceID, request.Erased(), at))...); err != nil {
			return err
		}
	}
	batch.Queue(eraseCallsOfRequest, args)
	batch.Queue(eraseCallsOfRequest, args) // once more: the call of another try (FenceAgain), whose commit the first had to wait for
	batch.Queue(forgetNewsOfRequest, args)
	batch.Queue(forgetVariables, args)
	if err := send(ctx, tx, &batch); err != nil {
		return err
	}
	next, err := eraseRecordings(ctx, tx, eraseRecordingsOfRequest, pg.Args{"call_request_id": id, "workspace_id": e.WorkspaceID, "erasure_id": e.ID})
	if err != nil {
		return err
	}
	return outbox.Put(ctx, tx, stepDone(e, id.String(), next...))
}

const (
	eraseRecordingsOf = `
UPDATE recordings SET erasures = array_append(array_remove(erasures, @erasure_id::uuid), @erasure_id), try_at = now(), tries = 0,
	state = CASE WHEN state = 'recording' THEN state ELSE 'leaving' END
WHERE workspace_id = @workspace_id AND call_id = ANY (ARRAY(`
	eraseRecordingsOfRequest = eraseRecordingsOf + `SELECT c.call_id FROM calls c WHERE c.call_request_id = @call_request_id)) RETURNING call_id`
	eraseRecordingsOfCalls   = eraseRecordingsOf + `SELECT unnest(@calls::uuid[]))) RETURNING call_id`
)

// eraseRecordings has recordings go, each of which is a step of its own that is told when it has gone. What a call that goes on still records goes with its end.
func eraseRecordings(ctx context.Context, tx pgx.Tx, sql string, args pg.Args) (next []*eventv1.ErasureStep, err error) {
	rows, err := tx.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("erase recordings: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("erase recordings: %w", err)
	}
	for _, id := range ids {
		next = append(next, &eventv1.ErasureStep{Service: "dialer", Ref: id.String()})
	}
	return next, nil
}

const orderErasure = `INSERT INTO erasures (erasure_id) VALUES (@erasure_id) ON CONFLICT DO NOTHING`

const lockCallsOfCaller = `
SELECT ` + callColumns + `
FROM calls WHERE workspace_id = @workspace_id AND from_number = @phone_e164 AND direction = 'inbound' AND erased = @again
ORDER BY call_id FOR UPDATE`

const saveErased = `
UPDATE calls SET erased = true, variables = NULL, time_zone = '', turns = @turns, version = @version WHERE call_id = @call_id`

// Who opts out while this runs is acknowledged later, and forgotten then.
const forgetEvidence = `
UPDATE opt_outs SET evidence = '' WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND acknowledged_at IS NOT NULL AND evidence <> ''`

// EraseCaller forgets what was said in the calls that came from the number, and tells so behind the facts of each, so that whoever has read those forgets it too. A call that
// is still going on leaves nothing but its facts. Ordered again, it tells the same again, and takes nobody who has called since. (Outbound calls go with their requests.)
func (s *Store) EraseCaller(ctx context.Context, tx pgx.Tx, number string, e Erasure) error {
	args := pg.Args{"workspace_id": e.WorkspaceID, "phone_e164": number, "erasure_id": e.ID}
	first, err := tx.Exec(ctx, orderErasure, args)
	if err != nil {
		return fmt.Errorf("order erasure %s: %w", e.ID, err)
	}
	args["again"] = first.RowsAffected() == 0
	rows, err := tx.Query(ctx, lockCallsOfCaller, args)
	if err != nil {
		return fmt.Errorf("lock calls of an erased person: %w", err)
	}
	calls, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[call.Call])
	if err != nil {
		return fmt.Errorf("lock calls of an erased person: %w", err)
	}
	var at time.Time
	if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&at); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	var batch pgx.Batch
	batch.Queue(forgetEvidence, args)
	ids := make([]uuid.UUID, len(calls))
	for i, c := range calls {
		ids[i] = c.CallID
	}
	next, err := eraseRecordings(ctx, tx, eraseRecordingsOfCalls, pg.Args{"calls": ids, "workspace_id": e.WorkspaceID, "erasure_id": e.ID})
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.Erase(e.ID, at)
		batch.Queue(saveErased, pg.Args{"call_id": c.CallID, "turns": s.callArgs(c)["turns"], "version": c.Version})
		if !c.Live() {
			batch.Queue(forgetNews, pg.Args{"ids": []uuid.UUID{c.CallID}})
		}
		if facts := c.Facts(); len(facts) > 0 {
			next = append(next, &eventv1.ErasureStep{Service: "calls", Ref: c.CallID.String()})
			if err := queueTraced(ctx, &batch, "erase call", c.Traceparent, facts...); err != nil {
				return err
			}
		}
	}
	if err := outbox.Queue(ctx, &batch, stepDone(e, "", next...)); err != nil {
		return err
	}
	return send(ctx, tx, &batch)
}

// stepDone reports a step of an erasure, and those of others that follow from it.
func stepDone(e Erasure, ref string, next ...*eventv1.ErasureStep) outbox.Event {
	return outbox.Event{
		Topic: kafka.ErasureReports, Key: e.ID.String(), WorkspaceID: e.WorkspaceID,
		Message: &eventv1.ErasureReport{
			ErasureId: e.ID.String(), WorkspaceId: e.WorkspaceID.String(), OccurredAt: timestamppb.Now(), Service: "dialer",
			Event: &eventv1.ErasureReport_StepDone{StepDone: &eventv1.StepDone{Ref: ref, Next: next}},
		},
	}
}

const forgetSpoken = `
UPDATE calls SET turns = '[]' WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NOT NULL AND json_array_length(turns) > 0 AND ended_at < @at
	ORDER BY ended_at LIMIT @limit FOR UPDATE SKIP LOCKED))`

// ForgetSpoken forgets what was said in up to limit calls that ended before the instant, and says of how many.
func (s *Store) ForgetSpoken(ctx context.Context, at time.Time, limit int) (int64, error) {
	did, err := s.pool.Exec(ctx, forgetSpoken, pg.Args{"at": at, "limit": limit})
	if err != nil {
		return 0, fmt.Errorf("forget what was said: %w", err)
	}
	return did.RowsAffected(), nil
}
