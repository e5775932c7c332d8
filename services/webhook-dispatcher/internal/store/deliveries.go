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
	ID        uuid.UUID
	CreatedAt time.Time
	EventID   uuid.UUID
	EventType string
	CallID    *uuid.UUID
	Sequence  int32
	Status    delivery.Status
	// Attempts are those since the last replay, Replays how often it was replayed.
	Attempts      int
	Replays       int
	LastCode      *int
	LastError     *string
	NextAttemptAt *time.Time
	DoneAt        *time.Time
	// ErasedAt is when the person of the call was erased; what went out after it said nothing of them.
	ErasedAt *time.Time
}

// Attempt is one try of a delivery.
type Attempt struct {
	// Replay is 0 before the first replay; No counts from 1 in each.
	Replay  int
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
       d.attempts, d.replays, d.last_code, d.last_error, q.due_at AS next_attempt_at, d.done_at, d.erased_at
FROM webhook_delivery d
LEFT JOIN webhook_queue q ON q.delivery_id = d.id AND q.created_at = d.created_at
WHERE d.workspace_id = @workspace_id AND d.subscription_id = @subscription_id`

// Filter narrows a list of deliveries; what is zero does not.
type Filter struct {
	Status    delivery.Status
	EventType string
	CallID    *uuid.UUID
}

// where is the filter as conditions, each one that an index knows.
func (f Filter) where() (conditions string) {
	switch f.Status {
	case "":
	case delivery.Queued:
		conditions = ` AND d.status = 'queued' AND q.held IS NOT TRUE`
	case delivery.Held:
		conditions = ` AND d.status = 'queued' AND q.held`
	case delivery.Delivered:
		conditions = ` AND d.status = 'delivered'`
	case delivery.Failed:
		conditions = ` AND d.status = 'failed'`
	case delivery.Skipped:
		conditions = ` AND d.status = 'skipped'`
	}
	if f.EventType != "" {
		conditions += ` AND d.event_type = @event_type`
	}
	if f.CallID != nil {
		conditions += ` AND d.call_id = @call_id`
	}
	return conditions
}

// Deliveries lists a subscription's deliveries, newest first, one more than the page holds.
func (s *Store) Deliveries(ctx context.Context, workspaceID, subscriptionID uuid.UUID, filter Filter, req page.Request) ([]Delivery, error) {
	if _, err := s.Subscription(ctx, workspaceID, subscriptionID); err != nil {
		return nil, err
	}
	sql, args := selectDelivery+filter.where(), pgx.NamedArgs{
		"workspace_id": workspaceID, "subscription_id": subscriptionID, "event_type": filter.EventType, "call_id": filter.CallID, "rows": req.Rows(),
	}
	if req.After != uuid.Nil {
		after, err := s.Delivery(ctx, workspaceID, subscriptionID, req.After)
		if err != nil {
			return nil, unknownCursor(err)
		}
		args["after"], args["after_at"] = after.ID, after.CreatedAt
		sql += deliveriesAfter
	}
	rows, err := pg.Many[Delivery](ctx, s.pool, sql+deliveriesOrder, args)
	if err != nil {
		return nil, fmt.Errorf("list deliveries of subscription %s: %w", subscriptionID, err)
	}
	return rows, nil
}

const (
	deliveriesAfter = ` AND (d.created_at, d.id) < (@after_at::timestamptz, @after::uuid)`
	deliveriesOrder = ` ORDER BY d.created_at DESC, d.id DESC LIMIT @rows`
)

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
	rows, err := pg.Many[Attempt](ctx, s.pool, attemptsOf, pgx.NamedArgs{"id": deliveryID})
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s: %w", deliveryID, err)
	}
	return rows, nil
}

const attemptsOf = `
SELECT replay, no, at, ms, code, error, excerpt FROM webhook_attempt WHERE delivery_id = @id ORDER BY replay, no, at`

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
		if _, err := tx.Exec(ctx, byIndex); err != nil {
			return err
		}
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
    SELECT id, created_at FROM webhook_delivery WHERE subscription_id = @id ORDER BY created_at DESC, id DESC LIMIT @limit
), gone AS (
    DELETE FROM webhook_delivery d USING oldest o WHERE d.id = o.id AND d.created_at = o.created_at RETURNING d.id
), tries AS (
    DELETE FROM webhook_attempt a USING gone WHERE a.delivery_id = gone.id
)
SELECT count(*) FROM gone`

// byIndex keeps a batch of a few rows from reading whole days, however the planner reckons: it does not know that a row's time names
// its one partition.
const byIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

const eraseSubscription = `DELETE FROM webhook_subscription WHERE id = @id`

// unknownCursor turns a cursor that names nothing into its 422.
func unknownCursor(err error) error {
	if errors.Is(err, ErrNotFound) {
		return page.UnknownCursor()
	}
	return err
}
