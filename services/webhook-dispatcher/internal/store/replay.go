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

// Replay says which ended deliveries of a subscription go out again: one, a call's, or all that failed or were skipped since a time.
type Replay struct {
	// DeliveryID or CallID, when not zero, name them; else Status is Failed or Skipped, and those that ended at Since or later.
	DeliveryID uuid.UUID
	CallID     uuid.UUID
	Status     deliveries.Status
	Since      time.Time
	// Before leaves out what ended at this time or later; zero leaves out nothing. A request that is repeated with its Before
	// replays nothing a second time.
	Before time.Time
	// Limit bounds how many.
	Limit int
	// Traceparent is the trace of the request.
	Traceparent string
}

// Replayed is what a replay did.
type Replayed struct {
	Count int
	// More says that the limit left some out.
	More bool
}

// Replay makes deliveries that ended due now: the same delivery ids and bytes, attempts from 1. What is queued or held
// already is left as it is, so two at once replay each delivery once. Tests are replayed by id alone, and what has no stored
// body any more, or an erased one, not at all. The error is 409 subscription_not_active unless the subscription is
// active, and pg.ErrNotFound when it is deleted.
func (s *Store) Replay(ctx context.Context, workspaceID, subscriptionID uuid.UUID, asked Replay) (done Replayed, err error) {
	args := pgx.NamedArgs{
		"workspace_id": workspaceID, "id": subscriptionID, "delivery_id": asked.DeliveryID, "call_id": asked.CallID, "since": asked.Since,
		"before": orNull(asked.Before), "limit": asked.Limit + 1,
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
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		ended, err := pg.Many[endedRow](ctx, tx, asked.choice(), args)
		if err != nil {
			return fmt.Errorf("choose deliveries of subscription %s: %w", subscriptionID, err)
		}
		if len(ended) > asked.Limit {
			ended, done.More = ended[:asked.Limit], true
		}
		if done.Count = len(ended); done.Count == 0 {
			return nil
		}
		return requeue(ctx, tx, ended, asked.Traceparent)
	})
	if err != nil {
		return Replayed{}, err
	}
	return done, nil
}

// lockShared locks a subscription as ingest does.
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

// What another replay has taken meanwhile is no longer ended once its lock is given up: it is left out.
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
FROM again a`
