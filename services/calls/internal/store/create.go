package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/calls/internal/callstate"
)

// ErrNotCreated means that the request was not stored, for one of four reasons: the id was
// abandoned, a request with the id exists, the claim was lost, or the person was erased after the
// request was allowed.
var ErrNotCreated = errors.New("call request not created")

const insertRequest = `
INSERT INTO call_requests (id, workspace_id, status, to_e164, agent_id, contact_id, variables, external_ref,
    scheduled_for, schedule_if_outside_hours, max_call_seconds, queued_at, traceparent, erasures, by_person)
SELECT @id, @workspace_id, @status, @to_e164, @agent_id, @contact_id, @variables::json, @external_ref,
    @scheduled_for, @schedule_if_outside_hours, @max_call_seconds, @queued_at, @traceparent, @erasures, @by_person
WHERE ` + mayBeCreated + `
ON CONFLICT (id) DO NOTHING
RETURNING ` + requestColumns

// mayBeCreated is an SQL condition. It is false if the id was abandoned, or if the person was
// erased after the request was allowed.
const mayBeCreated = `NOT EXISTS (SELECT FROM abandoned_requests WHERE request_id = @id) AND NOT EXISTS (
    SELECT FROM erasures e WHERE e.workspace_id = @workspace_id AND e.phone_e164 = @to_e164 AND e.erasures > @erasures)`

// Create stores the request, marks its key as done and enqueues the event `requested`, in one
// transaction. claim is nil if the request has no key. If Create stores nothing, it returns
// ErrNotCreated.
func (s *Store) Create(ctx context.Context, req callstate.Request, claim *Claim,
	at time.Time) (placed callstate.Request, err error) {
	if claim == nil {
		placed, err = s.createWithoutKey(ctx, req, at)
	} else {
		placed, err = s.createClaimed(ctx, req, *claim, at)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return callstate.Request{}, fmt.Errorf("insert call request %s: %w", req.ID, ErrNotCreated)
	}
	if err != nil {
		return callstate.Request{}, fmt.Errorf("insert call request %s: %w", req.ID, err)
	}
	return placed, nil
}

// createWithoutKey sends the locks and both inserts as one batch, which is one transaction and one
// round trip. The Go code cannot roll the batch back, so both inserts have the condition
// mayBeCreated.
func (s *Store) createWithoutKey(ctx context.Context, req callstate.Request, at time.Time) (placed callstate.Request,
	err error) {
	batch := &pgx.Batch{}
	queueInsert(batch, req, &placed)
	if err := outbox.QueueIf(ctx, batch, mayBeCreated, pg.Args(insertArgs(req)), requestEvent(&req,
		req.RequestedEvent(at))); err != nil {
		return placed, err
	}
	return placed, s.pool.SendBatch(ctx, batch).Close()
}

// createClaimed creates a request with an idempotency key. It stores nothing if the claim was lost.
func (s *Store) createClaimed(ctx context.Context, req callstate.Request, claim Claim,
	at time.Time) (placed callstate.Request, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		queueInsert(batch, req, &placed)
		batch.Queue(finishKey, pg.Args(claimArgs(claim))).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return pgx.ErrNoRows
			}
			return nil
		})
		if err := outbox.Queue(ctx, batch, requestEvent(&req, req.RequestedEvent(at))); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return placed, err
}

// lockRequestAndPerson makes an erasure of the person wait for requests that are being created, and
// makes later requests wait for the erasure. Requests of the same person do not wait for each
// other.
const lockRequestAndPerson = `
SELECT pg_advisory_xact_lock(hashtextextended(@request_id::text, 0)),
    pg_advisory_xact_lock_shared(hashtextextended(@person::text, 0))`

// queueInsert adds the locks and the insert to the batch. If no row is inserted, the error is
// pgx.ErrNoRows.
func queueInsert(batch *pgx.Batch, req callstate.Request, placed *callstate.Request) {
	batch.Queue(lockRequestAndPerson, pg.Args{"request_id": req.ID.String(), "person": personKey(req.WorkspaceID, req.To)})
	batch.Queue(insertRequest, pg.Args(insertArgs(req))).Query(func(rows pgx.Rows) (err error) {
		*placed, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[callstate.Request])
		return err
	})
}

const abandonRequest = `
INSERT INTO abandoned_requests (request_id) VALUES (@request_id::uuid)
ON CONFLICT (request_id) DO NOTHING`

const dropClaim = `DELETE FROM idempotency_keys WHERE request_id = @request_id::uuid`

// Unconfirmed handles a hold that billing-wallet cannot confirm. If the request of the hold exists,
// Unconfirmed publishes it again, so that the dialer publishes the end of the request again.
// Otherwise Unconfirmed abandons the id, so that a slow POST can no longer create the request.
func (s *Store) Unconfirmed(ctx context.Context, tx pgx.Tx, requestID, workspaceID uuid.UUID,
	at time.Time) (exists bool, err error) {
	if _, err = tx.Exec(ctx, lockRequestID, lockArgs(requestID)); err != nil {
		return false, fmt.Errorf("lock request id %s: %w", requestID, err)
	}
	req, err := pg.One[callstate.Request](ctx, tx, lockRequest, pgx.NamedArgs{"id": requestID})
	switch {
	case err == nil:
		event := req.RequestedEvent(at)
		switch req.Status {
		case callstate.RequestQueued:
		case callstate.RequestCanceled:
			event = req.WithdrawnEvent(at)
		default:
			event = req.OverdueEvent(at)
		}
		return true, outbox.Put(ctx, tx, requestEvent(&req, event))
	case !errors.Is(err, pg.ErrNotFound):
		return false, fmt.Errorf("lock call request %s: %w", requestID, err)
	}
	batch := &pgx.Batch{}
	batch.Queue(abandonRequest, lockArgs(requestID))
	batch.Queue(dropClaim, lockArgs(requestID))
	if err = tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, fmt.Errorf("abandon request id %s: %w", requestID, err)
	}
	return false, outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.CallRequests, Key: requestID.String(), WorkspaceID: workspaceID,
		Message: callstate.AbandonedEvent(requestID, workspaceID, at),
	})
}

// PlacementInputs contains the local data that are needed to check the body of POST /v1/calls.
type PlacementInputs struct {
	// Destinations are the number prefixes that the workspace may call. If the list is empty, every
	// number is allowed, or the workspace is not known yet. The dialer checks the destinations
	// again before it dials.
	Destinations []string `db:"destinations"`
	// MaxCallSeconds is the agent's max_call_seconds. It is nil if the workspace has no such agent.
	MaxCallSeconds *int32 `db:"max_call_seconds"`
}

// selectPlacementInputs reads the destinations and max_call_seconds in one statement, to save a
// round trip in every POST.
const selectPlacementInputs = `
SELECT coalesce((SELECT destinations FROM workspaces WHERE id = @workspace_id), '{}') AS destinations,
    (SELECT max_call_seconds FROM agents
        WHERE workspace_id = @workspace_id AND id = @agent_id AND deleted_at IS NULL) AS max_call_seconds`

// PlacementInputs reads the destinations of the workspace and the max_call_seconds of the agent.
func (s *Store) PlacementInputs(ctx context.Context, workspaceID, agentID uuid.UUID) (PlacementInputs, error) {
	found, err := pg.One[PlacementInputs](ctx, s.pool, selectPlacementInputs, pgx.NamedArgs{"workspace_id": workspaceID,
		"agent_id": agentID})
	if err != nil {
		return PlacementInputs{}, fmt.Errorf("read placement inputs of workspace %s: %w", workspaceID, err)
	}
	return found, nil
}
