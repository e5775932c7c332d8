package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// Erasure is a request to erase the data of a called person.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	CallID      uuid.UUID
	// EventIDs contains the ids of all events that the call can have.
	EventIDs []uuid.UUID
}

const deliveriesOfCall = `
SELECT id FROM deliveries WHERE workspace_id = @workspace_id AND call_id = @call_id`

// LockErased locks the queue rows of the calls. A transaction that also stores events must call
// LockErased before Ingest, to prevent deadlocks: Complete locks queue rows before the health of
// subscriptions, and Disable locks the health before it stores an event.
func (s *Store) LockErased(ctx context.Context, tx pgx.Tx, erasures ...Erasure) error {
	workspaces, calls := make([]uuid.UUID, len(erasures)), make([]uuid.UUID, len(erasures))
	for i, e := range erasures {
		workspaces[i], calls[i] = e.WorkspaceID, e.CallID
	}
	if _, err := tx.Exec(ctx, lockErased, pgx.NamedArgs{"workspaces": workspaces, "calls": calls}); err != nil {
		return fmt.Errorf("lock deliveries of %d calls: %w", len(erasures), err)
	}
	return nil
}

const lockErased = `
SELECT delivery_id FROM delivery_queue WHERE delivery_id = ANY (ARRAY(
    SELECT d.id FROM unnest(@workspaces::uuid[], @calls::uuid[]) AS e (workspace_id, call_id)
    JOIN deliveries d ON d.workspace_id = e.workspace_id AND d.call_id = e.call_id))
ORDER BY delivery_id FOR UPDATE`

// lockQueueOf locks the queue rows by id, before the deliveries are locked. Complete uses the same
// order, so the transactions cannot deadlock.
const lockQueueOf = `
SELECT delivery_id FROM delivery_queue WHERE delivery_id = ANY (@ids::uuid[]) ORDER BY delivery_id FOR UPDATE`

const markErased = `
UPDATE deliveries SET erased_at = coalesce(erased_at, now()) WHERE workspace_id = @workspace_id AND call_id = @call_id`

const eraseExcerpts = `SELECT erase_excerpts(@ids::uuid[])`

// eraseBodies runs after markErased as a separate statement, so it also reads deliveries that were
// replayed while markErased waited for a lock. After markErased, no replay of the call can start.
const eraseBodies = `
SELECT erase_body(e.id, e.created_at, EXISTS (
           SELECT FROM delivery_queue q
           WHERE q.delivery_id = ANY (@ids::uuid[]) AND q.event_id = e.id AND q.created_at = e.created_at),
       @removed, @nulled)
FROM events e
WHERE e.id = ANY (@events::uuid[]) AND e.workspace_id = @workspace_id AND e.body <> ''`

// EraseCall erases the bodies of a call's events and the stored responses, and enqueues the report
// of the erasure. If a queued delivery still needs a body, only deliveries.RemovedMembers and
// NulledMembers are erased. The call's deliveries cannot be replayed afterwards.
func (s *Store) EraseCall(ctx context.Context, tx pgx.Tx, e Erasure) error {
	args := pgx.NamedArgs{
		"workspace_id": e.WorkspaceID, "call_id": e.CallID, "events": e.EventIDs,
		"removed": deliveries.RemovedMembers, "nulled": deliveries.NulledMembers,
	}
	found, err := pg.Many[idRow](ctx, tx, deliveriesOfCall, args)
	if err != nil {
		return fmt.Errorf("find deliveries of call %s: %w", e.CallID, err)
	}
	ids := make([]uuid.UUID, len(found))
	for i, row := range found {
		ids[i] = row.ID
	}
	args["ids"] = ids
	for _, sql := range []string{lockQueueOf, markErased, eraseExcerpts, eraseBodies} {
		if _, err := tx.Exec(ctx, sql, args); err != nil {
			return fmt.Errorf("erase deliveries of call %s: %w", e.CallID, err)
		}
	}
	return outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.ErasureReports, Key: e.ID.String(), WorkspaceID: e.WorkspaceID,
		Message: &eventv1.ErasureReport{
			ErasureId: e.ID.String(), WorkspaceId: e.WorkspaceID.String(), OccurredAt: timestamppb.Now(), Service: "webhook-dispatcher",
			Event: &eventv1.ErasureReport_StepDone{StepDone: &eventv1.StepDone{Ref: e.CallID.String()}},
		},
	})
}

const emptyBodies = `SELECT empty_bodies($1)`

// EmptyBodies deletes at most limit erased bodies that no queued delivery needs, and returns the
// number of deleted bodies.
func (s *Store) EmptyBodies(ctx context.Context, limit int) (emptied int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		return tx.QueryRow(ctx, emptyBodies, limit).Scan(&emptied)
	})
	if err != nil {
		return 0, fmt.Errorf("empty erased bodies: %w", err)
	}
	return emptied, nil
}
