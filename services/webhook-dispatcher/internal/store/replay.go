package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Replay selects ended deliveries of a subscription to send again: one delivery, the deliveries of
// a call, or the deliveries with a status. Operators use it.
type Replay struct {
	// DeliveryID selects one delivery.
	DeliveryID uuid.UUID
	// CallID selects the deliveries of a call, if DeliveryID is zero.
	CallID uuid.UUID
	// Status is Failed or Skipped. If DeliveryID and CallID are zero, Replay selects the deliveries
	// with this status that ended at Since or later.
	Status deliveries.Status
	Since  time.Time
	// Before excludes deliveries that ended at this time or later. If Before is zero, no delivery
	// is excluded. A request that is repeated with the same Before does not replay a delivery
	// twice.
	Before time.Time
	// Limit is the maximum number of deliveries.
	Limit int
	// Traceparent is the W3C trace context of the request. The attempts continue its trace.
	Traceparent string
}

// Replayed is the result of Store.Replay.
type Replayed struct {
	Count int
	// More is true if more deliveries than the limit match.
	More bool
}

// Replay queues ended deliveries again with the same ids and bodies, and counts their attempts from
// 1. It leaves out deliveries that are already queued, and deliveries whose body was deleted or
// erased.
//
// It returns the 409 error subscription_not_active if the subscription is not active, and
// pg.ErrNotFound if the subscription does not exist.
func (s *Store) Replay(ctx context.Context, workspaceID, subscriptionID uuid.UUID, selection Replay) (done Replayed, err error) {
	args := pgx.NamedArgs{
		"workspace_id": workspaceID, "id": subscriptionID, "delivery_id": selection.DeliveryID, "call_id": selection.CallID, "since": selection.Since,
		"before": orNull(selection.Before), "limit": selection.Limit + 1,
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		done = Replayed{}
		sub, err := lockShared(ctx, tx, workspaceID, subscriptionID)
		if err != nil {
			return err
		}
		if sub.Status != subscriptions.Active {
			return subscriptions.NotReplayable(sub.Status)
		}
		ended, err := selectEnded(ctx, tx, selection.choice(), args)
		if err != nil {
			return fmt.Errorf("select deliveries of subscription %s: %w", subscriptionID, err)
		}
		if len(ended) > selection.Limit {
			ended, done.More = ended[:selection.Limit], true
		}
		if done.Count = len(ended); done.Count == 0 {
			return nil
		}
		return requeue(ctx, tx, ended, selection.Traceparent)
	})
	if err != nil {
		return Replayed{}, err
	}
	return done, nil
}

func selectEnded(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs) ([]endedRow, error) {
	if _, err := tx.Exec(ctx, useIndexes); err != nil {
		return nil, err
	}
	return pg.Many[endedRow](ctx, tx, sql, args)
}

// lockShared locks a subscription FOR SHARE, as Ingest does.
func lockShared(ctx context.Context, tx pgx.Tx, workspaceID, subscriptionID uuid.UUID) (sub matchRow, err error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "id": subscriptionID}
	sub, err = pg.One[matchRow](ctx, tx, lockSubscriptionShared, args)
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		err = fmt.Errorf("lock subscription %s: %w", subscriptionID, err)
	}
	return sub, err
}

const lockSubscriptionShared = `
SELECT id, workspace_id, status, events, url, clock_timestamp() AS matched_at, true AS webhooks
FROM subscriptions
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL
FOR SHARE`

func (r Replay) choice() string {
	switch {
	case r.DeliveryID != uuid.Nil:
		return chooseOne
	case r.CallID != uuid.Nil:
		return chooseCall
	case r.Status == deliveries.Skipped:
		return chooseSkipped
	default:
		return chooseFailed
	}
}

type endedRow struct {
	ID        uuid.UUID
	CreatedAt time.Time
}

// These statements lock deliveries with FOR UPDATE. If a statement waits for another replay,
// Postgres checks the status again and leaves out the deliveries that the other replay has queued.
const (
	chooseEnded = `
SELECT d.id, d.created_at FROM deliveries d
WHERE d.workspace_id = @workspace_id AND d.subscription_id = @id AND d.erased_at IS NULL AND (@before::timestamptz IS NULL OR d.done_at < @before)
  AND (SELECT true FROM events e WHERE e.id = d.event_id AND e.created_at = d.created_at)`

	chooseOne = chooseEnded + `
  AND d.status <> 'queued' AND d.id = @delivery_id
LIMIT @limit FOR UPDATE OF d`

	chooseCall = chooseEnded + `
  AND d.status <> 'queued' AND d.call_id = @call_id
ORDER BY d.sequence, d.id LIMIT @limit FOR UPDATE OF d`

	chooseFailed  = chooseEnded + ` AND d.status = 'failed'` + chooseSince
	chooseSkipped = chooseEnded + ` AND d.status = 'skipped'` + chooseSince

	chooseSince = `
  AND d.event_type <> 'webhook.test' AND d.done_at >= @since
ORDER BY d.done_at, d.id LIMIT @limit FOR UPDATE OF d`
)

func requeue(ctx context.Context, tx pgx.Tx, ended []endedRow, traceparent string) error {
	ids, created := make([]uuid.UUID, len(ended)), make([]time.Time, len(ended))
	for i, row := range ended {
		ids[i], created[i] = row.ID, row.CreatedAt
	}
	if _, err := tx.Exec(ctx, requeueEnded, pgx.NamedArgs{"ids": ids, "created": created, "traceparent": traceparent}); err != nil {
		return fmt.Errorf("queue %d deliveries again: %w", len(ended), err)
	}
	return nil
}

const requeueEnded = `
WITH again AS (
    UPDATE deliveries d
    SET status = 'queued', attempts = 0, replays = d.replays + 1, queued_at = now(), done_at = NULL, traceparent = @traceparent
    FROM unnest(@ids::uuid[], @created::timestamptz[]) AS r (id, created_at)
    WHERE d.id = r.id AND d.created_at = r.created_at
    RETURNING d.id, d.created_at, d.workspace_id, d.subscription_id, d.event_id, d.event_type, d.call_id, d.sequence, d.replays, d.traceparent
)
INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id,
	sequence,
                           replay, traceparent, due_at)
SELECT a.id, a.created_at, a.workspace_id, a.subscription_id, a.event_id, a.event_type, a.call_id, a.sequence, a.replays, a.traceparent,
       clock_timestamp()
FROM again a
ORDER BY a.created_at, a.id`
