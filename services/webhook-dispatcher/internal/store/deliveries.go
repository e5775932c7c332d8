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
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// Delivery is a delivery in the operator API.
type Delivery struct {
	ID        uuid.UUID
	CreatedAt time.Time
	EventID   uuid.UUID
	EventType string
	CallID    *uuid.UUID
	Sequence  int32
	Status    deliveries.Status
	// Attempts is the number of attempts since the last replay. Replays is the number of replays.
	Attempts      int
	Replays       int
	LastCode      *int
	LastError     *string
	NextAttemptAt *time.Time
	DoneAt        *time.Time
	// ErasedAt is when the data of the called person was erased. Later attempts were sent without
	// that data. ErasedAt is nil if no data was erased.
	ErasedAt *time.Time
}

// Attempt is a stored attempt of a delivery.
type Attempt struct {
	// Replay is 0 before the first replay. No is the number of the attempt, counted from 1 after
	// each replay.
	Replay  int
	No      int
	At      time.Time
	Ms      int
	Code    *int
	Error   *string
	Excerpt *string
}

// A queued delivery is shown with the status held while its subscription or its workspace may not
// receive deliveries.
const selectDelivery = `
SELECT d.id, d.created_at, d.event_id, d.event_type, d.call_id, d.sequence,
       CASE WHEN d.status = 'queued' AND sub.held THEN 'held' ELSE d.status END AS status,
       d.attempts, d.replays, d.last_code, d.last_error, q.due_at AS next_attempt_at, d.done_at, d.erased_at
FROM deliveries d
CROSS JOIN (
    SELECT s.status <> 'active' OR coalesce(w.deliveries_held, false) AS held
    FROM subscriptions s LEFT JOIN workspaces w ON w.id = s.workspace_id
    WHERE s.id = @subscription_id AND s.deleted_at IS NULL) AS sub
LEFT JOIN delivery_queue q ON q.delivery_id = d.id AND q.created_at = d.created_at
WHERE d.workspace_id = @workspace_id AND d.subscription_id = @subscription_id`

// Filter selects deliveries. A field with the zero value is ignored.
type Filter struct {
	Status    deliveries.Status
	EventType string
	CallID    *uuid.UUID
}

// queryConditions returns the conditions of the filter. The status is a literal, because the
// partial indexes match only literals.
func (f Filter) queryConditions() (conditions string) {
	switch f.Status {
	case "":
	case deliveries.Queued:
		conditions = ` AND d.status = 'queued' AND NOT sub.held`
	case deliveries.Held:
		conditions = ` AND d.status = 'queued' AND sub.held`
	case deliveries.Delivered:
		conditions = ` AND d.status = 'delivered'`
	case deliveries.Failed:
		conditions = ` AND d.status = 'failed'`
	case deliveries.Skipped:
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

// Deliveries returns the deliveries of a subscription from the newest to the oldest. It returns one
// row more than the page size if there is a next page.
func (s *Store) Deliveries(ctx context.Context, workspaceID, subscriptionID uuid.UUID, filter Filter, req page.Request) ([]Delivery, error) {
	if _, err := s.Subscription(ctx, workspaceID, subscriptionID); err != nil {
		return nil, err
	}
	sql, args := selectDelivery+filter.queryConditions(), pgx.NamedArgs{
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

// Delivery returns one delivery of the subscription. It returns pg.ErrNotFound if there is no such
// delivery.
func (s *Store) Delivery(ctx context.Context, workspaceID, subscriptionID, id uuid.UUID) (Delivery, error) {
	return pg.One[Delivery](ctx, s.pool, deliveryByID, pgx.NamedArgs{
		"workspace_id": workspaceID, "subscription_id": subscriptionID, "id": id,
	})
}

const deliveryByID = selectDelivery + `
  AND d.id = @id`

// Attempts returns the attempts of a delivery, oldest first.
func (s *Store) Attempts(ctx context.Context, deliveryID uuid.UUID) ([]Attempt, error) {
	rows, err := pg.Many[Attempt](ctx, s.pool, attemptsOf, pgx.NamedArgs{"id": deliveryID})
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s: %w", deliveryID, err)
	}
	return rows, nil
}

const attemptsOf = `
SELECT replay, no, at, ms, code, error, excerpt FROM attempts WHERE delivery_id = @id ORDER BY replay, no, at`

// useIndexes makes the following statements of the transaction use index scans. The planner does
// not know that a row can be only in one partition. Without this setting, it would scan the
// partitions of whole days for a few rows.
const useIndexes = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// unknownCursor handles an error of the search for the row that the cursor names. It converts
// pg.ErrNotFound into the 422 error for an unknown cursor.
func unknownCursor(err error) error {
	if errors.Is(err, pg.ErrNotFound) {
		return page.UnknownCursor()
	}
	return err
}
