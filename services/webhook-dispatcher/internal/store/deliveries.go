package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// Delivery is one row of history as operators see it.
type Delivery struct {
	ID            uuid.UUID
	CreatedAt     time.Time
	EventID       uuid.UUID
	EventType     string
	CallID        *uuid.UUID
	Sequence      int32
	Status        delivery.Status
	Attempts      int
	LastCode      *int
	LastError     *string
	NextAttemptAt *time.Time
	DoneAt        *time.Time
}

// Attempt is one try of a delivery.
type Attempt struct {
	No      int
	At      time.Time
	Ms      int
	Code    *int
	Error   *string
	Excerpt *string
}

// The status filter is asked in terms of what is stored; held is queued work that may not go.
const selectDelivery = `
SELECT d.id, d.created_at, d.event_id, d.event_type, d.call_id, d.sequence,
       CASE WHEN q.held THEN 'held' ELSE d.status END AS status,
       d.attempts, d.last_code, d.last_error, q.due_at AS next_attempt_at, d.done_at
FROM webhook_delivery d
LEFT JOIN webhook_queue q ON q.delivery_id = d.id
WHERE d.workspace_id = @workspace_id AND d.subscription_id = @subscription_id`

// Deliveries lists a subscription's deliveries, newest first, one more than the page holds; status "" is all.
func (s *Store) Deliveries(ctx context.Context, workspaceID, subscriptionID uuid.UUID, status delivery.Status, req page.Request) ([]Delivery, error) {
	if _, err := s.Subscription(ctx, workspaceID, subscriptionID); err != nil {
		return nil, err
	}
	if req.After != uuid.Nil {
		if _, err := s.Delivery(ctx, workspaceID, subscriptionID, req.After); err != nil {
			return nil, unknownCursor(err)
		}
	}
	rows, err := many[Delivery](ctx, s.pool, deliveriesOf, pgx.NamedArgs{
		"workspace_id": workspaceID, "subscription_id": subscriptionID, "status": status, "after": cursor(req.After), "rows": req.Rows(),
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries of subscription %s: %w", subscriptionID, err)
	}
	return rows, nil
}

const deliveriesOf = selectDelivery + `
  AND (@status = '' OR CASE WHEN q.held THEN 'held' ELSE d.status END = @status)
  AND (@after::uuid IS NULL
       OR (d.created_at, d.id) < (SELECT c.created_at, c.id FROM webhook_delivery c WHERE c.id = @after AND c.subscription_id = @subscription_id))
ORDER BY d.created_at DESC, d.id DESC
LIMIT @rows`

// Delivery is one delivery of the subscription, or ErrNotFound.
func (s *Store) Delivery(ctx context.Context, workspaceID, subscriptionID, id uuid.UUID) (Delivery, error) {
	return one[Delivery](ctx, s.pool, deliveryByID, pgx.NamedArgs{
		"workspace_id": workspaceID, "subscription_id": subscriptionID, "id": id,
	})
}

const deliveryByID = selectDelivery + `
  AND d.id = @id
  AND EXISTS (SELECT 1 FROM webhook_subscription s WHERE s.id = @subscription_id AND s.deleted_at IS NULL)`

// Attempts lists the tries of one delivery in order.
func (s *Store) Attempts(ctx context.Context, deliveryID uuid.UUID) ([]Attempt, error) {
	rows, err := many[Attempt](ctx, s.pool, attemptsOf, pgx.NamedArgs{"id": deliveryID})
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s: %w", deliveryID, err)
	}
	return rows, nil
}

const attemptsOf = `
SELECT no, at, ms, code, error, excerpt FROM webhook_attempt WHERE delivery_id = @id ORDER BY no, at`

// EraseSome erases up to limit deliveries of one deleted subscription with their attempts, and the subscription itself once none
// is left. more is false when no deleted subscription remains.
func (s *Store) EraseSome(ctx context.Context, limit int) (more bool, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		more = false
		sub, err := one[struct{ ID uuid.UUID }](ctx, tx, lockDeleted, nil)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		more = true
		var erased int
		if err := tx.QueryRow(ctx, eraseHistory, pgx.NamedArgs{"id": sub.ID, "limit": limit}).Scan(&erased); err != nil {
			return fmt.Errorf("erase history of subscription %s: %w", sub.ID, err)
		}
		if erased == limit {
			return nil
		}
		_, err = tx.Exec(ctx, eraseSubscription, pgx.NamedArgs{"id": sub.ID})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("erase deleted subscription: %w", err)
	}
	return more, nil
}

const lockDeleted = `
SELECT id FROM webhook_subscription WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED`

const eraseHistory = `
WITH oldest AS (
    SELECT id, created_at FROM webhook_delivery WHERE subscription_id = @id LIMIT @limit
), gone AS (
    DELETE FROM webhook_delivery d USING oldest o WHERE d.id = o.id AND d.created_at = o.created_at RETURNING d.id
), tries AS (
    DELETE FROM webhook_attempt a USING gone WHERE a.delivery_id = gone.id
)
SELECT count(*) FROM gone`

const eraseSubscription = `DELETE FROM webhook_subscription WHERE id = @id`

// unknownCursor turns a cursor that names nothing into its 422.
func unknownCursor(err error) error {
	if errors.Is(err, ErrNotFound) {
		return page.UnknownCursor()
	}
	return err
}
