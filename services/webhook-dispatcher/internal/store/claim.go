package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// Every statement of this file that reads due deliveries starts at a due time that the caller
// passes. Rows that were claimed or deleted stay in the indexes until a vacuum removes them. A
// statement that started at the oldest index entry would read all these rows.
//
// The statements compare the subscription with an array of one id, and ORDER BY names all columns
// of the index delivery_queue_subscription. Only this index has that order, so new statistics
// cannot make the planner use another index. The statements do not use row-wise comparisons, which
// would also read deliveries that are due after now().

// Position is a position in the queue, which is ordered by due time.
type Position struct {
	DueAt      time.Time
	DeliveryID uuid.UUID
}

// Due is an active subscription that may have due deliveries. It describes either the first
// attempts or the retries.
type Due struct {
	SubscriptionID uuid.UUID
	URL            string
	Retry          bool
	// From is the due time of the oldest due delivery. The zero time means that it is unknown.
	From time.Time
	// ResumedAt is the time at which the subscription last became active again. It is nil if the
	// subscription was never resumed.
	ResumedAt *time.Time
}

// Poll is the input of PollDue.
type Poll struct {
	// After is the position at which the poll starts.
	After Position
	// ChangedSince makes PollDue also read the subscriptions and workspaces that changed since
	// this time.
	ChangedSince time.Time
	// Limit is the maximum number of deliveries that are read.
	Limit int
	// Idle is true if the dispatcher sent no claim since its last poll and was not woken. PollDue
	// then sends one statement instead of two, but planning this statement takes longer.
	Idle bool
}

// Polled is the result of PollDue.
type Polled struct {
	Due []Due
	// Next is the position at which the next poll starts. More is true if more deliveries are due.
	Next Position
	More bool
}

// PollDue returns the active subscriptions with deliveries that became due between poll.After and
// now. It also returns the subscriptions that were resumed, or whose workspace changed, since
// poll.ChangedSince. It does not read older deliveries of paused subscriptions.
func (s *Store) PollDue(ctx context.Context, poll Poll) (polled Polled, err error) {
	var found []pollRow
	if poll.Idle {
		// The statement is planned again at each call. A stored plan could have been made for an
		// empty queue. It would then scan the whole queue when the queue is long.
		var rows pgx.Rows
		rows, err = s.pool.Query(ctx, pollDue, pgx.QueryExecModeCacheDescribe, poll.args())
		if err == nil {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByName[pollRow])
		}
	} else {
		found, err = manyGenericPlan[pollRow](ctx, s, pollDue, pg.Args(poll.args()))
	}
	if err != nil {
		return Polled{}, fmt.Errorf("poll for due deliveries: %w", err)
	}
	for _, row := range found {
		if row.ID == nil {
			polled.Next, polled.More = Position{row.DueFrom, row.NextID}, row.More
			continue
		}
		polled.Due = append(polled.Due, Due{
			SubscriptionID: *row.ID, URL: row.URL, Retry: row.IsRetry, From: row.DueFrom, ResumedAt: row.ResumedAt,
		})
	}
	return polled, nil
}

func (p Poll) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"after_at": p.After.DueAt, "after_id": p.After.DeliveryID, "changed_since": p.ChangedSince, "limit": p.Limit,
	}
}

// pollRow is a subscription, or the position of the next poll if ID is nil.
type pollRow struct {
	ID        *uuid.UUID
	IsRetry   bool
	DueFrom   time.Time
	URL       string
	ResumedAt *time.Time
	NextID    uuid.UUID
	More      bool
}

// pollDue returns subscriptions with due deliveries. It also returns subscriptions that were
// resumed or that belong to a changed workspace, with the due time 0001-01-01.
const pollDue = `
WITH due AS MATERIALIZED (
    SELECT q.subscription_id, q.is_retry, q.due_at, q.delivery_id
    FROM delivery_queue q
    WHERE (q.due_at, q.delivery_id) > (@after_at::timestamptz, @after_id::uuid) AND q.due_at <= statement_timestamp()
    ORDER BY q.due_at, q.delivery_id
    LIMIT @limit
), changed AS MATERIALIZED (
    SELECT s.id FROM subscriptions s WHERE s.resumed_at > @changed_since
    UNION
    SELECT s.id FROM workspaces w JOIN subscriptions s ON s.workspace_id = w.id AND s.deleted_at IS NULL
    WHERE w.updated_at > @changed_since
), found AS (
    SELECT due.subscription_id AS id, due.is_retry, min(due.due_at) AS due_from FROM due GROUP BY 1, 2
    UNION ALL
    SELECT changed.id, kind.is_retry, '0001-01-01 00:00:00+00'::timestamptz
    FROM changed CROSS JOIN (VALUES (false), (true)) AS kind (is_retry)
), last AS (
    SELECT due_at, delivery_id FROM due ORDER BY due_at DESC, delivery_id DESC LIMIT 1
), size AS (
    SELECT count(*) = @limit AS more FROM due
)
SELECT s.id, found.is_retry, found.due_from, s.url, s.resumed_at,
       '00000000-0000-0000-0000-000000000000'::uuid AS next_id, false AS more
FROM found
JOIN subscriptions s ON s.id = found.id AND s.status = 'active' AND s.deleted_at IS NULL
LEFT JOIN workspaces w ON w.id = s.workspace_id
WHERE w.deliveries_held IS NOT TRUE
UNION ALL
SELECT NULL, false, CASE WHEN size.more THEN last.due_at ELSE statement_timestamp() END, '', NULL,
       CASE WHEN size.more THEN last.delivery_id ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid END, size.more
FROM size LEFT JOIN last ON true`

// ListDue returns the active subscriptions after afterID that have due deliveries with any due
// time. It reads at most limit active subscriptions. The next call must continue after nextID,
// which is uuid.Nil at the end.
func (s *Store) ListDue(ctx context.Context, afterID uuid.UUID, limit int) (due []Due, nextID uuid.UUID, err error) {
	rows, err := manyGenericPlan[listRow](ctx, s, listDue, pg.Args{"after": afterID, "limit": limit})
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("list due subscriptions: %w", err)
	}
	for _, row := range rows {
		if row.First {
			due = append(due, Due{SubscriptionID: row.ID, URL: row.URL, ResumedAt: row.ResumedAt})
		}
		if row.Retry {
			due = append(due, Due{SubscriptionID: row.ID, URL: row.URL, Retry: true, ResumedAt: row.ResumedAt})
		}
	}
	if len(rows) == limit {
		nextID = rows[limit-1].ID
	}
	return due, nextID, nil
}

type listRow struct {
	ID        uuid.UUID
	URL       string
	ResumedAt *time.Time
	First     bool
	Retry     bool
}

// listDue uses scalar subqueries with LIMIT. Postgres always executes such a subquery as one index
// lookup, even if the planner expects many rows.
const listDue = `
SELECT s.id, s.url, s.resumed_at,
       coalesce((SELECT true FROM delivery_queue q
                 WHERE q.subscription_id = ANY (ARRAY[s.id]) AND NOT q.is_retry AND q.due_at <= now() AND NOT s.held
                 ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT 1), false) AS first,
       coalesce((SELECT true FROM delivery_queue q
                 WHERE q.subscription_id = ANY (ARRAY[s.id]) AND q.is_retry AND q.due_at <= now() AND NOT s.held
                 ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT 1), false) AS retry
FROM (
    SELECT s.id, s.url, s.resumed_at,
           coalesce((SELECT w.deliveries_held FROM workspaces w WHERE w.id = s.workspace_id LIMIT 1), false) AS held
    FROM subscriptions s
    WHERE s.id > @after AND s.status = 'active' AND s.deleted_at IS NULL
    ORDER BY s.id
    LIMIT @limit
    OFFSET 0) AS s
ORDER BY s.id`

// Quota limits how many deliveries of one subscription a claim takes: at most Total, and among them
// at most Retries retries.
type Quota struct {
	SubscriptionID uuid.UUID
	Total          int
	Retries        int
	// FirstFrom is the due time at which reading of first attempts starts. RetryFrom is the due
	// time at which reading of retries starts.
	FirstFrom, RetryFrom time.Time
}

// Claim is the input of ClaimDue.
type Claim struct {
	Quotas []Quota
	// Lease is the time during which no other process can claim the same deliveries.
	Lease time.Duration
	// Attempts is the maximum number of attempts of a delivery.
	Attempts int
}

// Claimed is the result of ClaimDue.
type Claimed struct {
	Work []deliveries.Work
	// Remaining contains the subscriptions whose due deliveries were not all claimed.
	Remaining []Remaining
}

// Remaining describes the due deliveries of a subscription after a claim. First is the due time of
// the oldest due first attempt. Retry is the due time of the oldest due retry. nil means that no
// such delivery is due.
type Remaining struct {
	SubscriptionID uuid.UUID
	First, Retry   *time.Time
}

// StartLimit returns the maximum duration of the statement that claims deliveries. If the statement
// takes longer, the deliveries are not sent, because an attempt must end before its lease. They are
// due again after the lease.
func StartLimit(lease time.Duration) time.Duration { return min(5*time.Second, lease/5) }

// ClaimDue claims due deliveries of the given subscriptions, first attempts before retries. It
// increases the attempt number of each delivery and moves the due time by the lease. It claims
// nothing of a subscription that is not active, or whose workspace may not use webhooks.
//
// While the first attempt for an event has no result, later events of the same call are not
// claimed. If a process ended during the last permitted attempt of a delivery, the delivery is
// returned with Work.Lost and must not be sent.
func (s *Store) ClaimDue(ctx context.Context, claim Claim) (claimed Claimed, err error) {
	n := len(claim.Quotas)
	subs, total, retries := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	firstFrom, retryFrom := make([]time.Time, n), make([]time.Time, n)
	for i, quota := range claim.Quotas {
		subs[i], total[i], retries[i] = quota.SubscriptionID, quota.Total, quota.Retries
		firstFrom[i], retryFrom[i] = quota.FirstFrom, quota.RetryFrom
	}
	args := pg.Args{
		"subs": subs, "total": total, "retries": retries, "first_from": firstFrom, "retry_from": retryFrom,
		"lease": claim.Lease.Seconds(), "attempts": claim.Attempts,
	}
	var rows []claimedRow
	var batch pgx.Batch
	batch.Queue(claimSettings)
	batch.Queue(claimDue, args).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByName[claimedRow])
		return err
	})
	batch.Queue(remainingDue, args).Query(func(found pgx.Rows) (err error) {
		claimed.Remaining, err = pgx.CollectRows(found, pgx.RowToStructByName[Remaining])
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return Claimed{}, fmt.Errorf("claim due deliveries: %w", err)
	}
	claimed.Work = make([]deliveries.Work, len(rows))
	for i, row := range rows {
		claimed.Work[i] = row.work()
		// If the secret cannot be opened, it stays empty and the attempt fails without a request.
		// So a removed sealing key does not stop the deliveries of other subscriptions.
		if secret, err := s.box.Open(row.SecretSealed, row.SubscriptionID.String()); err == nil {
			claimed.Work[i].Secret = string(secret)
		}
	}
	return claimed, nil
}

type claimedRow struct {
	DeliveryID     uuid.UUID
	SubscriptionID uuid.UUID
	EventID        uuid.UUID
	EventType      string
	CreatedAt      time.Time
	CallID         *uuid.UUID
	Attempt        int
	Lost           bool
	Replay         int
	IsRetry        bool
	Traceparent    string
	URL            string
	SecretSealed   []byte
	Body           []byte
	DueAt          time.Time
	Waited         float64
	Lag            float64
}

func (r claimedRow) work() deliveries.Work {
	return deliveries.Work{
		DeliveryID: r.DeliveryID, SubscriptionID: r.SubscriptionID, EventID: r.EventID, EventType: r.EventType,
		CreatedAt: r.CreatedAt, CallID: r.CallID, Attempt: r.Attempt, Lost: r.Lost, Replay: r.Replay, Retry: r.IsRetry,
		URL: r.URL, Body: r.Body, Traceparent: r.Traceparent, DueAt: r.DueAt,
		Age: time.Duration(r.Waited * float64(time.Second)), ClaimDelay: time.Duration(r.Lag * float64(time.Second)),
	}
}

// With claimSettings, the commit of a claim does not wait for the disk. If a crash loses the claim,
// the delivery is sent again with the same attempt number.
const claimSettings = genericPlan + `, set_config('synchronous_commit', 'off', true)`

const claimDue = `
WITH pick AS MATERIALIZED (
    SELECT due.delivery_id, due.due_at, due.attempt, active.url, active.secret_sealed
    FROM unnest(@subs::uuid[], @total::int[], @retries::int[], @first_from::timestamptz[], @retry_from::timestamptz[])
         AS quota (id, total, retries, first_from, retry_from)
    CROSS JOIN LATERAL (
        SELECT s.url, s.secret_sealed FROM subscriptions s
        LEFT JOIN workspaces w ON w.id = s.workspace_id
        WHERE s.id = quota.id AND s.status = 'active' AND s.deleted_at IS NULL AND w.deliveries_held IS NOT TRUE
        LIMIT 1) AS active
    CROSS JOIN LATERAL (
        SELECT first.delivery_id, first.due_at, first.attempt FROM (
            SELECT q.delivery_id, q.due_at, q.attempt FROM delivery_queue q
            WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND NOT q.is_retry
              AND q.due_at >= quota.first_from AND q.due_at <= now()
              AND (q.call_id IS NULL OR (
                SELECT true FROM delivery_queue e
                WHERE e.subscription_id = q.subscription_id AND e.call_id = q.call_id AND NOT e.is_retry AND e.sequence < q.sequence
                LIMIT 1) IS NULL)
            ORDER BY q.subscription_id, q.is_retry, q.due_at, q.delivery_id
            LIMIT quota.total
            FOR UPDATE SKIP LOCKED) AS first
        UNION ALL
        SELECT again.delivery_id, again.due_at, again.attempt FROM (
            SELECT q.delivery_id, q.due_at, q.attempt FROM delivery_queue q
            WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND q.is_retry
              AND q.due_at >= quota.retry_from AND q.due_at <= now()
            ORDER BY q.subscription_id, q.is_retry, q.due_at, q.delivery_id
            LIMIT quota.retries
            FOR UPDATE SKIP LOCKED) AS again
        LIMIT quota.total
    ) AS due
), claimed AS (
    UPDATE delivery_queue q
    SET due_at = now() + make_interval(secs => @lease), attempt = least(q.attempt + 1, @attempts)
    WHERE q.delivery_id = ANY (ARRAY(SELECT pick.delivery_id FROM pick))
    RETURNING q.delivery_id, q.created_at, q.subscription_id, q.event_id, q.event_type, q.call_id, q.attempt, q.replay, q.is_retry,
              q.traceparent, q.queued_at
)
SELECT q.delivery_id, q.subscription_id, q.event_id, q.event_type, q.created_at, q.call_id, q.attempt,
       pick.attempt >= @attempts AS lost, q.replay, q.is_retry, q.traceparent, pick.url, pick.secret_sealed,
	pick.due_at,
       (SELECT e.body FROM events e WHERE e.id = q.event_id AND e.created_at = q.created_at) AS body,
       extract(epoch FROM now() - q.queued_at)::float8 AS waited, extract(epoch FROM now() - pick.due_at)::float8 AS lag
FROM pick JOIN claimed q ON q.delivery_id = pick.delivery_id`

// remainingDue runs after claimDue in the same transaction, so the deliveries that were just
// claimed are not due.
const remainingDue = `
SELECT quota.id AS subscription_id,
       (SELECT q.due_at FROM delivery_queue q
        WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND NOT q.is_retry
          AND q.due_at >= quota.first_from AND q.due_at <= now()
        ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT 1) AS first,
       (SELECT q.due_at FROM delivery_queue q
        WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND q.is_retry
          AND q.due_at >= quota.retry_from AND q.due_at <= now()
        ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT 1) AS retry
FROM unnest(@subs::uuid[], @first_from::timestamptz[], @retry_from::timestamptz[]) AS quota (id, first_from, retry_from)
WHERE EXISTS (
    SELECT FROM subscriptions s LEFT JOIN workspaces w ON w.id = s.workspace_id
    WHERE s.id = quota.id AND s.status = 'active' AND s.deleted_at IS NULL AND w.deliveries_held IS NOT TRUE)`

// Release undoes the claim of deliveries that were not sent: it restores their number of attempts
// and their due time. A delivery that another process has claimed again is not changed.
func (s *Store) Release(ctx context.Context, work []deliveries.Work) error {
	n := len(work)
	ids, nos, replays, due := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]time.Time, n)
	for i, w := range work {
		ids[i], nos[i], replays[i], due[i] = w.DeliveryID, w.Attempt, w.Replay, w.DueAt
	}
	args := pg.Args{"ids": ids, "nos": nos, "replays": replays, "due": due}
	if _, err := s.pool.Exec(ctx, releaseWork, args); err != nil {
		return fmt.Errorf("release %d claimed deliveries: %w", n, err)
	}
	return nil
}

const releaseWork = `
WITH open AS (
    SELECT q.delivery_id, r.due_at
    FROM delivery_queue q
    JOIN unnest(@ids::uuid[], @nos::int[], @replays::int[], @due::timestamptz[]) AS r (id, no, replay, due_at)
      ON q.delivery_id = r.id AND q.attempt = r.no AND q.replay = r.replay
    WHERE q.delivery_id = ANY (@ids)
    ORDER BY q.delivery_id
    FOR UPDATE OF q
)
UPDATE delivery_queue q SET due_at = open.due_at, attempt = q.attempt - 1
FROM open WHERE q.delivery_id = open.delivery_id`

// Backlog is the number and the age of the due deliveries of active subscriptions.
type Backlog struct {
	// Rows is the number of deliveries, counted up to a limit.
	Rows int64
	// Oldest is the number of seconds since the oldest of these deliveries could be sent.
	Oldest float64
}

// CountBacklog counts at most limit due deliveries of the given subscriptions. It starts at the due
// times FirstFrom and RetryFrom. Subscriptions that are not active are not counted.
func (s *Store) CountBacklog(ctx context.Context, subs []Quota, limit int) (Backlog, error) {
	if len(subs) == 0 {
		return Backlog{}, nil
	}
	n := len(subs)
	ids, firstFrom, retryFrom := make([]uuid.UUID, n), make([]time.Time, n), make([]time.Time, n)
	for i, sub := range subs {
		ids[i], firstFrom[i], retryFrom[i] = sub.SubscriptionID, sub.FirstFrom, sub.RetryFrom
	}
	rows, err := manyGenericPlan[Backlog](ctx, s, countBacklog, pg.Args{
		"subs": ids, "first_from": firstFrom, "retry_from": retryFrom, "limit": limit,
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("count the backlog: %w", err)
	}
	return rows[0], nil
}

// countBacklog computes the time for which deliveries have waited. If a delivery was held during a
// pause, its waiting time starts when the subscription is resumed.
const countBacklog = `
SELECT count(*) AS rows,
       coalesce(extract(epoch FROM now() - min(greatest(counted.due_at, counted.resumed_at))), 0)::float8 AS oldest
FROM (
    SELECT q.due_at, active.resumed_at
    FROM unnest(@subs::uuid[], @first_from::timestamptz[], @retry_from::timestamptz[])
         AS quota (id, first_from, retry_from)
    CROSS JOIN LATERAL (
        SELECT s.resumed_at FROM subscriptions s
        LEFT JOIN workspaces w ON w.id = s.workspace_id
        WHERE s.id = quota.id AND s.status = 'active' AND s.deleted_at IS NULL AND w.deliveries_held IS NOT TRUE
        LIMIT 1) AS active
    CROSS JOIN LATERAL (
        (SELECT q.due_at FROM delivery_queue q
         WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND NOT q.is_retry
           AND q.due_at >= quota.first_from AND q.due_at <= now()
         ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT @limit)
        UNION ALL
        (SELECT q.due_at FROM delivery_queue q
         WHERE q.subscription_id = ANY (ARRAY[quota.id]) AND q.is_retry
           AND q.due_at >= quota.retry_from AND q.due_at <= now()
         ORDER BY q.subscription_id, q.is_retry, q.due_at LIMIT @limit)
    ) AS q
    LIMIT @limit) AS counted`
