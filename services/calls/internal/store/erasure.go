package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

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
UPDATE calls SET summary = NULL, transcript = NULL, erased_at = coalesce(erased_at, now()) WHERE id = ANY (@calls::uuid[])
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
	calls, err := many[erasedCall](ctx, tx, eraseCalls, args)
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
