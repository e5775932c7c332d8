package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// Lane is an active subscription with due work.
type Lane struct {
	SubscriptionID uuid.UUID
	URL            string
	// First and Retry say which kind of attempts is due. A first try may still have to wait for an earlier event of its call.
	First bool
	Retry bool
	// ResumedAt is when the subscription last became active again; zero when that is long ago.
	ResumedAt time.Time
}

// DueLanes walks the subscriptions with open work behind after, steps of them at most, and lists those that have due work. The walk
// goes on behind next; uuid.Nil says that it has come to the end. attempts is how many a delivery has.
func (s *Store) DueLanes(ctx context.Context, after uuid.UUID, steps, attempts int) (lanes []Lane, next uuid.UUID, err error) {
	rows, err := s.pool.Query(ctx, dueLanes, pg.Args{"after": after, "steps": steps, "attempts": attempts})
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("look for due subscriptions: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[laneRow])
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("look for due subscriptions: %w", err)
	}
	for _, row := range found {
		if row.Last {
			next = row.ID
		}
		if row.URL == nil || !row.First && !row.Retry {
			continue
		}
		lane := Lane{SubscriptionID: row.ID, URL: *row.URL, First: row.First, Retry: row.Retry}
		if row.ResumedAt != nil {
			lane.ResumedAt = *row.ResumedAt
		}
		lanes = append(lanes, lane)
	}
	return lanes, next, nil
}

type laneRow struct {
	ID        uuid.UUID
	Last      bool
	First     bool
	Retry     bool
	URL       *string
	ResumedAt *time.Time
}

// The walk goes from subscription to subscription by the index alone: what is held costs nothing, a subscription three probes.
// Scalar subqueries with a LIMIT stay probes, however many rows the planner expects.
const dueLanes = `
WITH RECURSIVE lane (id, n) AS (
    (SELECT q.subscription_id, 1 FROM webhook_queue q
     WHERE NOT q.held AND q.subscription_id > @after ORDER BY q.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.subscription_id FROM webhook_queue q
            WHERE NOT q.held AND q.subscription_id > lane.id ORDER BY q.subscription_id LIMIT 1), lane.n + 1
    FROM lane WHERE lane.id IS NOT NULL AND lane.n < @steps
), due AS MATERIALIZED (
    SELECT lane.id, lane.n = @steps AS last,
           coalesce((SELECT true FROM webhook_queue q
                     WHERE q.subscription_id = lane.id AND NOT q.held AND NOT q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
                     ORDER BY q.due_at LIMIT 1), false) AS first,
           coalesce((SELECT true FROM webhook_queue q
                     WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
                     ORDER BY q.due_at LIMIT 1), false) AS retry
    FROM lane WHERE lane.id IS NOT NULL
)
SELECT due.id, due.last, due.first, due.retry, active.url, active.resumed_at
FROM due
LEFT JOIN LATERAL (
    SELECT s.url, CASE WHEN s.resumed_at > now() - interval '15 minutes' THEN s.resumed_at END AS resumed_at
    FROM webhook_subscription s
    LEFT JOIN workspace w ON w.id = s.workspace_id
    WHERE s.id = due.id AND s.status = 'active' AND s.deleted_at IS NULL AND w.deliveries_held IS NOT TRUE
    LIMIT 1) AS active ON true
WHERE due.first OR due.retry OR due.last`

// Room is what a replica takes of one subscription: Total at most, Retries of them at most retries.
type Room struct {
	SubscriptionID uuid.UUID
	Total          int
	Retries        int
	// Within leaves first tries that are due for longer than this to another claim; zero leaves none. Who claims one batch after
	// another so steps over what earlier batches left in the index: under load, as many dead entries as were claimed since the last vacuum.
	Within time.Duration
}

// everything is longer than any delivery waits.
const everything = 100 * 365 * 24 * time.Hour

// Claim is what a replica asks for.
type Claim struct {
	Room []Room
	// Lease is how long nobody else may claim the same rows.
	Lease time.Duration
	// Attempts is how many a delivery has.
	Attempts int
}

// StartLimit is the longest time that a claim may take. Attempts of a slower claim are left to the
// lease: an attempt must end before its lease does.
func StartLimit(lease time.Duration) time.Duration { return min(5*time.Second, lease/5) }

// ClaimDue takes due deliveries of the subscriptions named: each row's attempt is counted and its due time moved by the lease
// before anything is sent. Url and secret are those of this instant. First tries go before retries, and an event
// stays back while an earlier one of its call is before or in its first attempt.
func (s *Store) ClaimDue(ctx context.Context, claim Claim) ([]delivery.Work, error) {
	n := len(claim.Room)
	lanes, total, retries, within := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]float64, n)
	for i, room := range claim.Room {
		lanes[i], total[i], retries[i] = room.SubscriptionID, room.Total, room.Retries
		within[i] = cmp.Or(room.Within, everything).Seconds()
	}
	rows, err := manyPlannedOnce[claimedRow](ctx, s, claimDue, pg.Args{
		"lanes": lanes, "total": total, "retries": retries, "within": within, "lease": claim.Lease.Seconds(), "attempts": claim.Attempts,
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
	CreatedAt      time.Time
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
		DeliveryID: r.DeliveryID, SubscriptionID: r.SubscriptionID, EventID: r.EventID, EventType: r.EventType, CreatedAt: r.CreatedAt, CallID: r.CallID,
		Attempt: r.Attempt, Replay: r.Replay, Retry: r.IsRetry, URL: r.URL, Body: r.Body, Traceparent: r.Traceparent,
		Waited: time.Duration(r.Waited * float64(time.Second)), Lag: time.Duration(r.Lag * float64(time.Second)),
	}
}

// The subscription is asked again for what held says: a row that slipped in unheld beside a pause is not sent.
const claimDue = `
WITH pick AS MATERIALIZED (
    SELECT due.delivery_id, due.due_at, active.url, active.secret_sealed
    FROM unnest(@lanes::uuid[], @total::int[], @retries::int[], @within::float8[]) AS lane (id, total, retries, within)
    CROSS JOIN LATERAL (
        SELECT s.url, s.secret_sealed FROM webhook_subscription s
        LEFT JOIN workspace w ON w.id = s.workspace_id
        WHERE s.id = lane.id AND s.status = 'active' AND s.deleted_at IS NULL AND w.deliveries_held IS NOT TRUE
        LIMIT 1) AS active
    CROSS JOIN LATERAL (
        SELECT first.delivery_id, first.due_at FROM (
            SELECT q.delivery_id, q.due_at FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND NOT q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
              AND q.due_at >= now() - make_interval(secs => lane.within)
              AND (q.call_id IS NULL OR (
                SELECT true FROM webhook_queue e
                WHERE e.subscription_id = q.subscription_id AND e.call_id = q.call_id AND NOT e.is_retry AND e.sequence < q.sequence
                LIMIT 1) IS NULL)
            ORDER BY q.due_at, q.delivery_id
            LIMIT lane.total
            FOR UPDATE SKIP LOCKED) AS first
        UNION ALL
        SELECT again.delivery_id, again.due_at FROM (
            SELECT q.delivery_id, q.due_at FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry AND q.due_at <= now() AND q.attempt < @attempts
            ORDER BY q.due_at, q.delivery_id
            LIMIT lane.retries
            FOR UPDATE SKIP LOCKED) AS again
        LIMIT lane.total
    ) AS due
), claimed AS (
    UPDATE webhook_queue q
    SET due_at = now() + make_interval(secs => @lease), attempt = q.attempt + 1
    WHERE q.delivery_id = ANY (ARRAY(SELECT pick.delivery_id FROM pick))
    RETURNING q.delivery_id, q.created_at, q.subscription_id, q.event_id, q.event_type, q.call_id, q.attempt, q.replay, q.is_retry,
              q.traceparent, q.queued_at
)
SELECT q.delivery_id, q.subscription_id, q.event_id, q.event_type, q.created_at, q.call_id, q.attempt, q.replay, q.is_retry, q.traceparent,
       pick.url, pick.secret_sealed,
       (SELECT e.body FROM webhook_event e WHERE e.id = q.event_id AND e.created_at = q.created_at) AS body,
       extract(epoch FROM now() - q.queued_at)::float8 AS waited, extract(epoch FROM now() - pick.due_at)::float8 AS lag
FROM pick JOIN claimed q ON q.delivery_id = pick.delivery_id`

// Release puts claimed work back that was not sent: due as before, and its attempt is not counted. What somebody else has claimed
// meanwhile stays theirs.
func (s *Store) Release(ctx context.Context, work []delivery.Work) error {
	n := len(work)
	ids, nos, replays, lags := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]float64, n)
	for i, w := range work {
		ids[i], nos[i], replays[i], lags[i] = w.DeliveryID, w.Attempt, w.Replay, w.Lag.Seconds()
	}
	args := pg.Args{"ids": ids, "nos": nos, "replays": replays, "lags": lags}
	if _, err := s.pool.Exec(ctx, releaseWork, args); err != nil {
		return fmt.Errorf("release %d claimed deliveries: %w", n, err)
	}
	return nil
}

const releaseWork = `
WITH open AS (
    SELECT q.delivery_id, r.lag
    FROM webhook_queue q
    JOIN unnest(@ids::uuid[], @nos::int[], @replays::int[], @lags::float8[]) AS r (id, no, replay, lag)
      ON q.delivery_id = r.id AND q.attempt = r.no AND q.replay = r.replay
    WHERE q.delivery_id = ANY (@ids)
    ORDER BY q.delivery_id
    FOR UPDATE OF q
)
UPDATE webhook_queue q SET due_at = now() - make_interval(secs => open.lag), attempt = q.attempt - 1
FROM open WHERE q.delivery_id = open.delivery_id`

// Lost returns deliveries whose last attempt was claimed by a process that ended without a result.
// They have had all their attempts. A held delivery is returned after its release. One call returns
// at most 256, and at most 32 of a subscription.
func (s *Store) Lost(ctx context.Context, attempts int) ([]delivery.Result, error) {
	rows, err := manyPlannedOnce[lostRow](ctx, s, lostWork, pg.Args{"attempts": attempts})
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

const lostWork = laneHeads + `
SELECT delivery_id, attempt, replay, due_at FROM head
WHERE attempt >= @attempts
ORDER BY delivery_id
LIMIT 256`

// laneHeads walks the subscriptions that have deliveries to send, by index only. head has the 16
// first attempts and the 16 retries of each that have been due for longest. Deliveries that have
// had all their attempts are never claimed, so they reach the head of their lane.
const laneHeads = `
WITH RECURSIVE lane (id) AS (
    (SELECT q.subscription_id FROM webhook_queue q WHERE NOT q.held ORDER BY q.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT q.subscription_id FROM webhook_queue q
            WHERE NOT q.held AND q.subscription_id > lane.id ORDER BY q.subscription_id LIMIT 1)
    FROM lane WHERE lane.id IS NOT NULL
), head AS MATERIALIZED (
    SELECT q.*
    FROM lane
    CROSS JOIN (VALUES (false), (true)) AS kind (is_retry)
    CROSS JOIN LATERAL (
        SELECT q.delivery_id, q.attempt, q.replay, q.due_at FROM webhook_queue q
        WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry = kind.is_retry AND q.due_at <= now()
        ORDER BY q.due_at, q.delivery_id LIMIT 16) AS q
    WHERE lane.id IS NOT NULL
)`

// Depth is the number of open deliveries by state.
type Depth struct {
	// Due, Future and Held are counted up to a limit.
	Due    int64
	Future int64
	Held   int64
	// Lost is the number of due deliveries that have had all their attempts and are returned by Lost.
	Lost int64
	// OldestDue is for how many seconds the longest-waiting delivery has been due. It is exact.
	OldestDue float64
}

// Depth reads the state of the queue. It counts at most limit deliveries of each state. Its cost is
// therefore bounded by limit and by the number of subscriptions with deliveries to send, not by the
// length of the queue. attempts is the number of attempts of a delivery.
func (s *Store) Depth(ctx context.Context, attempts, limit int) (Depth, error) {
	rows, err := manyPlannedOnce[Depth](ctx, s, queueDepth, pg.Args{"attempts": attempts, "limit": limit})
	if err != nil {
		return Depth{}, fmt.Errorf("read depth of queue: %w", err)
	}
	return rows[0], nil
}

const queueDepth = laneHeads + `
SELECT
    (SELECT count(*) FROM (
        SELECT FROM lane CROSS JOIN LATERAL (
            SELECT FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry = ANY ('{f,t}') AND q.due_at <= now()
            LIMIT @limit) AS q
        LIMIT @limit) AS counted) AS due,
    (SELECT count(*) FROM (
        SELECT FROM lane CROSS JOIN LATERAL (
            SELECT FROM webhook_queue q
            WHERE q.subscription_id = lane.id AND NOT q.held AND q.is_retry = ANY ('{f,t}') AND q.due_at > now()
            LIMIT @limit) AS q
        LIMIT @limit) AS counted) AS future,
    (SELECT count(*) FROM (SELECT FROM webhook_queue WHERE held LIMIT @limit) AS counted) AS held,
    (SELECT count(*) FROM head WHERE attempt >= @attempts) AS lost,
    coalesce(extract(epoch FROM now() - (SELECT min(due_at) FROM head)), 0)::float8 AS oldest_due`
