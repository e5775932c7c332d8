package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Room is what a replica can take of one subscription.
type Room struct {
	SubscriptionID uuid.UUID
	Total          int
	Retries        int
}

// Claim is what a replica asks for.
type Claim struct {
	// After is the subscription behind which the round goes on; uuid.Nil begins with the first.
	After uuid.UUID
	// Free bounds the whole claim; Room the subscriptions named, Initial all others.
	Free    int
	Room    []Room
	Initial Room
	// Lease is how long nobody else may claim the same rows.
	Lease time.Duration
	// Attempts is how many a delivery has.
	Attempts int
}

// ClaimDue takes due deliveries, fairly over the subscriptions: each row's attempt is counted and its due time moved by the lease
// before anything is sent. Url and secret are those of this instant. First tries go before retries, and an event
// stays back while an earlier one of its call is before or in its first attempt.
func (s *Store) ClaimDue(ctx context.Context, claim Claim) ([]delivery.Work, error) {
	n := len(claim.Room)
	lanes, total, retries := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	for i, room := range claim.Room {
		lanes[i], total[i], retries[i] = room.SubscriptionID, room.Total, room.Retries
	}
	rows, err := many[claimedRow](ctx, s.pool, claimDue, pgx.NamedArgs{
		"after": claim.After, "free": claim.Free, "lanes": lanes, "total": total, "retries": retries,
		"initial": claim.Initial.Total, "initial_retries": claim.Initial.Retries,
		"lease": claim.Lease.Seconds(), "attempts": claim.Attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("claim due deliveries: %w", err)
	}
	work := make([]delivery.Work, len(rows))
	for i, row := range rows {
		work[i] = row.work()
		// A secret under a key that was taken away must not stop the others: without one the attempt is not sent and fails.
		if secret, err := s.box.Open(row.SecretSealed, row.SubscriptionID.String()); err == nil {
			work[i].Secret = string(secret)
		}
	}
	return work, nil
}

type claimedRow struct {
	DeliveryID     uuid.UUID
	SubscriptionID uuid.UUID
	EventID        uuid.UUID
	EventType      string
	CallID         *uuid.UUID
	Attempt        int
	Replay         int
	IsRetry        bool
	Traceparent    string
	URL            string
	SecretSealed   []byte
	Body           []byte
	Waited         float64
	Lag            float64
}

func (r claimedRow) work() delivery.Work {
	return delivery.Work{
		DeliveryID: r.DeliveryID, SubscriptionID: r.SubscriptionID, EventID: r.EventID, EventType: r.EventType, CallID: r.CallID,
		Attempt: r.Attempt, Replay: r.Replay, Retry: r.IsRetry, Test: r.EventType == subscription.TestEvent, URL: r.URL, Body: r.Body, Traceparent: r.Traceparent,
		Waited: time.Duration(r.Waited * float64(time.Second)), Lag: time.Duration(r.Lag * float64(time.Second)),
	}
}

// lane walks from subscription to subscription by the index alone. The join repeats what held says: a row that slipped in
// unheld beside a pause is not sent.
const claimDue = `
WITH RECURSIVE lane (id) AS (
    (SELECT q.subscription_id FROM webhook_queue q
     WHERE NOT q.held AND q.subscription_id > @after ORDER BY q.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.subscription_id FROM webhook_queue q
            WHERE NOT q.held AND q.subscription_id > lane.id ORDER BY q.subscription_id LIMIT 1)
    FROM lane WHERE lane.id IS NOT NULL
), pick AS MATERIALIZED (
    SELECT due.delivery_id, due.due_at, s.url, s.secret_sealed
    FROM lane
    JOIN webhook_subscription s ON s.id = lane.id AND s.status = 'active' AND s.deleted_at IS NULL
    LEFT JOIN workspace w ON w.id = s.workspace_id
    LEFT JOIN unnest(@lanes::uuid[], @total::int[], @retries::int[]) AS room (id, total, retries) ON room.id = lane.id
    CROSS JOIN LATERAL (
        SELECT first.delivery_id, first.due_at FROM (
            SELECT q.delivery_id, q.due_at FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND NOT q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
              AND NOT EXISTS (
                SELECT 1 FROM webhook_queue e
                WHERE e.subscription_id = q.subscription_id AND e.call_id = q.call_id AND NOT e.is_retry AND e.sequence < q.sequence)
            ORDER BY q.due_at, q.delivery_id
            LIMIT coalesce(room.total, @initial)
            FOR UPDATE SKIP LOCKED) AS first
        UNION ALL
        SELECT again.delivery_id, again.due_at FROM (
            SELECT q.delivery_id, q.due_at FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
            ORDER BY q.due_at, q.delivery_id
            LIMIT coalesce(room.retries, @initial_retries)
            FOR UPDATE SKIP LOCKED) AS again
        LIMIT coalesce(room.total, @initial)
    ) AS due
    WHERE w.suspended IS NOT TRUE
    LIMIT @free
)
UPDATE webhook_queue q
SET due_at = now() + make_interval(secs => @lease), attempt = q.attempt + 1
FROM pick
WHERE q.delivery_id = pick.delivery_id
RETURNING q.delivery_id, q.subscription_id, q.event_id, q.event_type, q.call_id, q.attempt, q.replay, q.is_retry, q.traceparent,
          pick.url, pick.secret_sealed,
          (SELECT e.body FROM webhook_event e WHERE e.id = q.event_id AND e.created_at = q.created_at) AS body,
          extract(epoch FROM now() - q.queued_at)::float8 AS waited, extract(epoch FROM now() - pick.due_at)::float8 AS lag`

// Lost lists deliveries whose last attempt was claimed by a process that never came back. They have had their attempts.
func (s *Store) Lost(ctx context.Context, attempts int) ([]delivery.Result, error) {
	rows, err := many[lostRow](ctx, s.pool, lostWork, pgx.NamedArgs{"attempts": attempts})
	if err != nil {
		return nil, fmt.Errorf("look for lost attempts: %w", err)
	}
	results := make([]delivery.Result, len(rows))
	for i, row := range rows {
		results[i] = delivery.Result{
			DeliveryID: row.DeliveryID, Attempt: row.Attempt, Replay: row.Replay, Outcome: delivery.Over,
			Answer: delivery.Answer{Failure: delivery.Interrupted, At: row.DueAt},
		}
	}
	return results, nil
}

type lostRow struct {
	DeliveryID uuid.UUID
	Attempt    int
	Replay     int
	DueAt      time.Time
}

const lostWork = `
SELECT delivery_id, attempt, replay, due_at FROM webhook_queue
WHERE attempt >= @attempts AND due_at <= now()
ORDER BY delivery_id
LIMIT 256`

// Depth is how much open work there is, by state.
type Depth struct {
	Due    int64
	Future int64
	Held   int64
	// Lost is how many rows of Due have had all their attempts: see Store.Lost.
	Lost int64
	// OldestDue is how many seconds the longest-waiting due row waits.
	OldestDue float64
}

// Depth counts the queue; attempts is how many a delivery has.
func (s *Store) Depth(ctx context.Context, attempts int) (Depth, error) {
	return one[Depth](ctx, s.pool, queueDepth, pgx.NamedArgs{"attempts": attempts})
}

const queueDepth = `
SELECT count(*) FILTER (WHERE NOT held AND due_at <= now()) AS due,
       count(*) FILTER (WHERE NOT held AND due_at > now()) AS future,
       count(*) FILTER (WHERE held) AS held,
       count(*) FILTER (WHERE due_at <= now() AND attempt >= @attempts) AS lost,
       coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE NOT held AND due_at <= now())), 0)::float8 AS oldest_due
FROM webhook_queue`
