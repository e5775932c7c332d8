package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// CallDelivery is a delivery of an event of one call or call request, with its attempts, oldest
// first.
type CallDelivery struct {
	ID             uuid.UUID     `db:"id"`
	SubscriptionID uuid.UUID     `db:"subscription_id"`
	EventID        uuid.UUID     `db:"event_id"`
	EventType      string        `db:"event_type"`
	Status         string        `db:"status"`
	CreatedAt      time.Time     `db:"created_at"`
	NextAttemptAt  *time.Time    `db:"next_attempt_at"`
	Attempts       []CallAttempt `db:"-"`
}

// CallAttempt is one attempt of a CallDelivery. Code is the HTTP status, or nil if there was no
// response.
type CallAttempt struct {
	DeliveryID uuid.UUID `db:"delivery_id"`
	At         time.Time `db:"at"`
	Ms         int       `db:"ms"`
	Code       *int      `db:"code"`
	Error      *string   `db:"error"`
	Cause      *string   `db:"cause"`
}

// CauseText returns the cause of a failed attempt in one sentence, or nil if it succeeded.
func (t CallAttempt) CauseText() *string {
	return Attempt{Code: t.Code, Error: t.Error, Cause: t.Cause}.CauseText()
}

const selectCallDeliveries = `
SELECT d.id, d.subscription_id, d.event_id, d.event_type,
       CASE WHEN d.status = 'queued' AND (s.status <> 'active' OR coalesce(w.deliveries_held, false)) THEN 'held'
            ELSE d.status END AS status,
       d.created_at, q.due_at AS next_attempt_at
FROM deliveries d
LEFT JOIN subscriptions s ON s.id = d.subscription_id
LEFT JOIN workspaces w ON w.id = d.workspace_id
LEFT JOIN delivery_queue q ON q.delivery_id = d.id AND q.created_at = d.created_at
WHERE d.workspace_id = @workspace_id AND d.call_id = @call_id
ORDER BY d.created_at, d.id
LIMIT @rows`

const selectCallAttempts = `
SELECT delivery_id, at, ms, code, error, cause FROM attempts
WHERE delivery_id = ANY (@ids::uuid[])
ORDER BY at, delivery_id, no
LIMIT @rows`

// These limits apply to one call. A call normally has a few deliveries with at most five attempts
// each. It has more only after many replays.
const (
	maxCallDeliveries = 1000
	maxCallAttempts   = 5000
)

// DeliveriesOfCall returns the deliveries of all events of a call or a call request, oldest first.
func (s *Store) DeliveriesOfCall(ctx context.Context, workspaceID, callID uuid.UUID) ([]CallDelivery, error) {
	found, err := pg.Many[CallDelivery](ctx, s.pool, selectCallDeliveries,
		pgx.NamedArgs{"workspace_id": workspaceID, "call_id": callID, "rows": maxCallDeliveries})
	if err != nil {
		return nil, fmt.Errorf("list deliveries of call %s: %w", callID, err)
	}
	ids, position := make([]uuid.UUID, len(found)), map[uuid.UUID]int{}
	for i, d := range found {
		ids[i], position[d.ID] = d.ID, i
	}
	attempts, err := pg.Many[CallAttempt](ctx, s.pool, selectCallAttempts,
		pgx.NamedArgs{"ids": ids, "rows": maxCallAttempts})
	if err != nil {
		return nil, fmt.Errorf("list attempts of call %s: %w", callID, err)
	}
	for _, a := range attempts {
		d := &found[position[a.DeliveryID]]
		d.Attempts = append(d.Attempts, a)
	}
	return found, nil
}
