package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// The functions of this file remove the rows of a deleted subscription. Each call is one short
// transaction. It starts after the last row of the previous call, because deleted rows stay in the
// index until a vacuum removes them.

// DeletedSubscriptions returns the ids of at most limit subscriptions that are marked as deleted.
func (s *Store) DeletedSubscriptions(ctx context.Context, limit int) ([]uuid.UUID, error) {
	found, err := pg.Many[idRow](ctx, s.pool, deletedSubscriptions, pgx.NamedArgs{"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("list deleted subscriptions: %w", err)
	}
	ids := make([]uuid.UUID, len(found))
	for i, row := range found {
		ids[i] = row.ID
	}
	return ids, nil
}

const deletedSubscriptions = `
SELECT id FROM subscriptions WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT @limit`

// QueuePosition is a position in the queue of one subscription. The zero value is the position
// before the first row.
type QueuePosition struct {
	IsRetry    bool
	DueAt      time.Time
	DeliveryID uuid.UUID
}

// DeleteQueued deletes at most limit queue rows of a deleted subscription after the given position.
// n is the number of rows that were found; if n is less than limit, there are no more rows. The
// next call must continue after next.
func (s *Store) DeleteQueued(
	ctx context.Context, subscriptionID uuid.UUID, after QueuePosition, limit int,
) (next QueuePosition, n int, err error) {
	args := pg.Args{
		"id": subscriptionID, "limit": limit,
		"after_retry": after.IsRetry, "after_at": after.DueAt, "after_id": after.DeliveryID,
	}
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		next, n = after, 0
		var batch pgx.Batch
		batch.Queue(genericPlan)
		var positions []QueuePosition
		batch.Queue(queuedOf, args).Query(func(rows pgx.Rows) (err error) {
			positions, err = pgx.CollectRows(rows, pgx.RowToStructByName[QueuePosition])
			return err
		})
		if err := tx.RunBatch(ctx, &batch); err != nil {
			return err
		}
		if n = len(positions); n == 0 {
			return nil
		}
		next = positions[n-1]
		ids := make([]uuid.UUID, n)
		for i, position := range positions {
			ids[i] = position.DeliveryID
		}
		_, err := tx.Exec(ctx, deleteQueued, pg.Args{"id": subscriptionID, "ids": ids})
		return err
	})
	if err != nil {
		return after, 0, fmt.Errorf("delete queue of subscription %s: %w", subscriptionID, err)
	}
	return next, n, nil
}

const queuedOf = `
SELECT q.is_retry, q.due_at, q.delivery_id FROM delivery_queue q
WHERE q.subscription_id = @id
  AND (q.is_retry, q.due_at, q.delivery_id) > (@after_retry::boolean, @after_at::timestamptz, @after_id::uuid)
ORDER BY q.is_retry, q.due_at, q.delivery_id
LIMIT @limit`

// deleteQueued locks the rows in the order of their ids, like Complete, to prevent deadlocks.
const deleteQueued = `
WITH open AS (
    SELECT delivery_id FROM delivery_queue WHERE delivery_id = ANY (@ids::uuid[]) AND subscription_id = @id
    ORDER BY delivery_id FOR UPDATE
)
DELETE FROM delivery_queue WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM open))`

// HistoryPosition is a position in the deliveries of one subscription, ordered from the newest to
// the oldest.
type HistoryPosition struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// NewestHistory returns the position before the newest delivery.
func NewestHistory() HistoryPosition {
	return HistoryPosition{CreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
}

// DeleteHistory deletes at most limit deliveries of a deleted subscription after the given
// position, with their attempts. Its results have the same meaning as those of DeleteQueued.
func (s *Store) DeleteHistory(
	ctx context.Context, subscriptionID uuid.UUID, after HistoryPosition, limit int,
) (next HistoryPosition, n int, err error) {
	args := pgx.NamedArgs{"id": subscriptionID, "after_at": after.CreatedAt, "after_id": after.ID, "limit": limit}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		next, n = after, 0
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		deleted, err := pg.Many[HistoryPosition](ctx, tx, deleteHistory, args)
		if n = len(deleted); n > 0 {
			next = deleted[n-1]
		}
		return err
	})
	if err != nil {
		return after, 0, fmt.Errorf("delete history of subscription %s: %w", subscriptionID, err)
	}
	return next, n, nil
}

const deleteHistory = `
WITH oldest AS MATERIALIZED (
    SELECT id, created_at FROM deliveries
    WHERE subscription_id = @id AND (created_at, id) < (@after_at::timestamptz, @after_id::uuid)
    ORDER BY created_at DESC, id DESC
    LIMIT @limit
), deleted AS (
    DELETE FROM deliveries d USING oldest o WHERE d.id = o.id AND d.created_at = o.created_at RETURNING d.id
), tries AS (
    DELETE FROM attempts a USING deleted WHERE a.delivery_id = deleted.id
)
SELECT id, created_at FROM oldest ORDER BY created_at DESC, id DESC`

// DeleteSubscription deletes a subscription that is marked as deleted, with its health.
func (s *Store) DeleteSubscription(ctx context.Context, subscriptionID uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, deleteSubscription, pgx.NamedArgs{"id": subscriptionID}); err != nil {
		return fmt.Errorf("delete subscription %s: %w", subscriptionID, err)
	}
	return nil
}

const deleteSubscription = `DELETE FROM subscriptions WHERE id = @id AND deleted_at IS NOT NULL`
