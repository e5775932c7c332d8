package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Delivery is a delivery in the API.
type Delivery struct {
	ID             uuid.UUID
	CreatedAt      time.Time
	SubscriptionID uuid.UUID
	EventID        uuid.UUID
	EventType      string
	// CallID is nil if the event belongs to no call.
	CallID   *uuid.UUID
	Sequence int32
	Status   deliveries.Status
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
	// Replay is the number of the replay to which the attempt belongs, or 0 before the first
	// replay. No is the number of the attempt within this replay, from 1.
	Replay  int
	No      int
	At      time.Time
	Ms      int
	Code    *int
	Error   *string
	Cause   *string
	Excerpt *string
}

// CauseText returns the cause of a failed attempt in one sentence, or nil if the attempt succeeded.
// If an earlier version stored the attempt without a Cause, the sentence is made from Error and
// Code.
func (t Attempt) CauseText() *string {
	if t.Error == nil || t.Cause != nil {
		return t.Cause
	}
	code := 0
	if t.Code != nil {
		code = *t.Code
	}
	return orNull(deliveries.Failure(*t.Error).Cause(code, ""))
}

// Sent reports whether a request was sent.
func (t Attempt) Sent() bool {
	return t.Error == nil || !deliveries.Failure(*t.Error).Internal()
}

// deliveryColumns returns the status held for a queued delivery whose subscription or workspace may
// not receive deliveries.
const (
	deliveryColumns = `
SELECT d.id, d.created_at, d.event_id, d.event_type,
	CASE WHEN d.event_type LIKE 'call.%' THEN d.call_id END AS call_id, d.sequence,
       CASE WHEN d.status = 'queued' AND sub.held THEN 'held' ELSE d.status END AS status,
       d.attempts, d.replays, d.last_code, d.last_error, q.due_at AS next_attempt_at, d.done_at, d.erased_at,
       d.subscription_id`
	withQueue = `
LEFT JOIN delivery_queue q ON q.delivery_id = d.id AND q.created_at = d.created_at`
	ofSubscription = `
CROSS JOIN (
    SELECT s.status <> 'active' OR coalesce(w.deliveries_held, false) AS held
    FROM subscriptions s LEFT JOIN workspaces w ON w.id = s.workspace_id
    WHERE s.id = @subscription_id AND s.workspace_id = @workspace_id AND s.deleted_at IS NULL) AS sub`
)

// Filter selects deliveries. A field with the zero value is ignored.
type Filter struct {
	Status    deliveries.Status
	EventType string
	// CallID selects the events of a call. ObjectID selects the events of a call, a call request or a
	// subscription.
	CallID, ObjectID *uuid.UUID
}

// Deliveries returns the deliveries of a subscription from the newest to the oldest. It returns one
// row more than the page size if there is a next page.
func (s *Store) Deliveries(ctx context.Context, workspaceID, subscriptionID uuid.UUID, filter Filter, req page.Request) ([]Delivery, error) {
	if _, err := s.Subscription(ctx, workspaceID, subscriptionID); err != nil {
		return nil, err
	}
	newest := NewestHistory()
	args := pg.Args{
		"workspace_id": workspaceID, "subscription_id": subscriptionID,
		"call_id": cmp.Or(filter.CallID, filter.ObjectID), "rows": req.Rows(),
		"statuses": filter.storedStatuses(), "event_types": filter.eventTypes(),
		"after": newest.ID, "after_at": newest.CreatedAt,
	}
	if req.After != uuid.Nil {
		after, err := s.Delivery(ctx, workspaceID, subscriptionID, req.After)
		if err != nil {
			return nil, unknownCursor(err)
		}
		args["after"], args["after_at"] = after.ID, after.CreatedAt
	}
	rows, err := manyGenericPlan[Delivery](ctx, s, filter.statement(), args)
	if err != nil {
		return nil, fmt.Errorf("list deliveries of subscription %s: %w", subscriptionID, err)
	}
	return rows, nil
}

// statement returns an SQL statement that can use an index for the filter. For a call, the
// statement reads all deliveries of the call, because these are few. For a status or an event type,
// it reads the newest deliveries of each combination of status and event type separately. So a rare
// status is found quickly among a million deliveries.
func (f Filter) statement() string {
	selected := newestOfPairs
	switch {
	case f.CallID != nil || f.ObjectID != nil:
		selected = newestOfCall
	case f.Status == "" && f.EventType == "":
		selected = newestOfSubscription
	}
	held := ""
	switch f.Status {
	case deliveries.Queued:
		held = ` WHERE NOT sub.held`
	case deliveries.Held:
		held = ` WHERE sub.held`
	case deliveries.Delivered, deliveries.Failed, deliveries.Skipped, "":
	}
	return deliveryColumns + ` FROM (` + selected + `) AS d` + ofSubscription + withQueue + held + newestFirst
}

func (f Filter) storedStatuses() []string {
	switch f.Status {
	case "":
		return []string{
			string(deliveries.Queued),
			string(deliveries.Delivered),
			string(deliveries.Failed),
			string(deliveries.Skipped),
		}
	case deliveries.Held:
		return []string{string(deliveries.Queued)}
	case deliveries.Queued, deliveries.Delivered, deliveries.Failed, deliveries.Skipped:
	}
	return []string{string(f.Status)}
}

// eventTypes returns the event types that match. If CallID is set, it returns only types of call
// events, because the column call_id also contains ids of call requests and subscriptions.
func (f Filter) eventTypes() []string {
	types := []string{f.EventType}
	if f.EventType == "" {
		types = subscriptions.Events()
	}
	if f.CallID == nil {
		return types
	}
	return slices.DeleteFunc(types, func(event string) bool { return !strings.HasPrefix(event, "call.") })
}

// newestOfPairs compares the subscription with an array of one id and sorts by the subscription.
// Only the index deliveries_filtered provides this order. Otherwise the planner would use the index
// deliveries_subscription for a status that is common on some days, and would read all deliveries
// of the other days.
const (
	beforeCursor = ` AND (d.created_at, d.id) < (@after_at::timestamptz, @after::uuid)`
	newestFirst  = ` ORDER BY d.created_at DESC, d.id DESC LIMIT @rows`

	newestOfSubscription = `
SELECT d.* FROM deliveries d
WHERE d.subscription_id = @subscription_id` + beforeCursor + newestFirst

	newestOfCall = `
SELECT d.* FROM deliveries d
WHERE d.subscription_id = @subscription_id AND d.call_id = @call_id
  AND d.status = ANY (@statuses::text[]) AND d.event_type = ANY (@event_types::text[])` + beforeCursor + newestFirst

	newestOfPairs = `
SELECT d.* FROM unnest(@statuses::text[]) AS s (status) CROSS JOIN unnest(@event_types::text[]) AS e (type)
CROSS JOIN LATERAL (
    SELECT d.* FROM deliveries d
    WHERE d.subscription_id = ANY (ARRAY[@subscription_id::uuid])
      AND d.status = s.status AND d.event_type = e.type` + beforeCursor + `
    ORDER BY d.subscription_id DESC, d.created_at DESC, d.id DESC LIMIT @rows) AS d` + newestFirst
)

// Delivery returns one delivery of the subscription. It returns pg.ErrNotFound if there is no such
// delivery.
func (s *Store) Delivery(ctx context.Context, workspaceID, subscriptionID, id uuid.UUID) (Delivery, error) {
	found, err := s.DeliveryOf(ctx, workspaceID, id)
	if err == nil && found.SubscriptionID != subscriptionID {
		return Delivery{}, pg.ErrNotFound
	}
	return found, err
}

// DeliveryOf returns one delivery of the workspace. It returns pg.ErrNotFound if there is no such
// delivery, or if its subscription was deleted.
func (s *Store) DeliveryOf(ctx context.Context, workspaceID, id uuid.UUID) (Delivery, error) {
	return deliveryOf(ctx, s.pool, workspaceID, id)
}

func deliveryOf(ctx context.Context, db pg.Querier, workspaceID, id uuid.UUID) (Delivery, error) {
	sql, at := deliveryByID, time.Time{}
	if createdAt, ok := deliveries.CreatedAt(id); ok {
		sql, at = deliveryByID+` AND d.created_at = @created_at`, createdAt
	}
	return pg.One[Delivery](ctx, db, sql, pgx.NamedArgs{"workspace_id": workspaceID, "id": id, "created_at": at})
}

const deliveryByID = deliveryColumns + ` FROM deliveries d
CROSS JOIN LATERAL (
    SELECT s.status <> 'active' OR coalesce(w.deliveries_held, false) AS held
    FROM subscriptions s LEFT JOIN workspaces w ON w.id = s.workspace_id
    WHERE s.id = d.subscription_id AND s.deleted_at IS NULL) AS sub` + withQueue + `
WHERE d.workspace_id = @workspace_id AND d.id = @id`

// Body returns the body of the delivery's event. It is empty if the body was erased or has expired.
func (s *Store) Body(ctx context.Context, d Delivery) (body []byte, err error) {
	err = s.pool.QueryRow(ctx, bodyOf, pgx.NamedArgs{"id": d.EventID, "created_at": d.CreatedAt}).Scan(&body)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read body of event %s: %w", d.EventID, err)
	}
	return body, nil
}

const bodyOf = `SELECT body FROM events WHERE id = @id AND created_at = @created_at`

// maxAttempts is the maximum number of attempts of a delivery that NewestAttempts returns.
const maxAttempts = 50

// NewestAttempts returns the newest attempts of each delivery, oldest first. They have an Excerpt
// only if excerpts is true.
func (s *Store) NewestAttempts(ctx context.Context, excerpts bool, of ...Delivery) (map[uuid.UUID][]Attempt, error) {
	if len(of) == 0 {
		return nil, nil
	}
	ids, since := make([]uuid.UUID, len(of)), of[0].CreatedAt
	for i, d := range of {
		ids[i] = d.ID
		if d.CreatedAt.Before(since) {
			since = d.CreatedAt
		}
	}
	// an attempt can be older than its event if the clocks of two machines differ
	args := pgx.NamedArgs{"ids": ids, "since": since.Add(-time.Hour), "limit": maxAttempts, "excerpts": excerpts}
	rows, err := pg.Many[attemptRow](ctx, s.pool, newestAttempts, args)
	if err != nil {
		return nil, fmt.Errorf("list attempts of %d deliveries: %w", len(of), err)
	}
	found := make(map[uuid.UUID][]Attempt, len(of))
	for _, row := range rows {
		found[row.DeliveryID] = append(found[row.DeliveryID], row.Attempt)
	}
	return found, nil
}

type attemptRow struct {
	DeliveryID uuid.UUID
	Attempt
}

const newestAttempts = `
SELECT delivery_id, replay, no, at, ms, code, error, cause, excerpt
FROM (
    SELECT a.delivery_id, a.replay, a.no, a.at, a.ms, a.code, a.error, a.cause,
           CASE WHEN @excerpts THEN a.excerpt END AS excerpt,
           row_number() OVER (PARTITION BY a.delivery_id ORDER BY a.at DESC) AS newest
    FROM attempts a WHERE a.delivery_id = ANY (@ids::uuid[]) AND a.at >= @since) AS a
WHERE newest <= @limit
ORDER BY delivery_id, at, no`

// Attempts returns the attempts of a delivery, oldest first.
func (s *Store) Attempts(ctx context.Context, deliveryID uuid.UUID) ([]Attempt, error) {
	rows, err := pg.Many[Attempt](ctx, s.pool, attemptsOf, pgx.NamedArgs{"id": deliveryID})
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s: %w", deliveryID, err)
	}
	return rows, nil
}

const attemptsOf = `
SELECT replay, no, at, ms, code, error, cause, excerpt FROM attempts WHERE delivery_id = @id ORDER BY replay, no, at`

// useIndexes makes the following statements of the transaction use index scans. A row is in only
// one partition, but the planner expects matching rows in each partition. Without the setting, it
// would scan whole partitions to find a few rows.
const useIndexes = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// unknownCursor handles an error of the search for the row that the cursor names. It converts
// pg.ErrNotFound into the 422 error for an unknown cursor.
func unknownCursor(err error) error {
	if errors.Is(err, pg.ErrNotFound) {
		return page.UnknownCursor()
	}
	return err
}
