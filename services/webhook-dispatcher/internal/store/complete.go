package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Completed is what a batch of results did.
type Completed struct {
	// Settled is how many results counted; the others came after their lease had passed to somebody else.
	Settled int
	// Failing is the health of the subscriptions that had a failure in this batch and no success since.
	Failing []Standing
	// Subscriptions are those of the results that counted.
	Subscriptions []uuid.UUID
}

// Standing is the health of one subscription after a batch.
type Standing struct {
	SubscriptionID uuid.UUID
	Health         subscription.Health
	Warned         bool
}

// Complete writes finished attempts into history in one transaction: each counts only while its row still carries the same
// attempt of the same replay, and once. Results of one subscription stand in the order in which they ended.
func (s *Store) Complete(ctx context.Context, results []delivery.Result) (done Completed, err error) {
	return s.complete(ctx, results, lockOpen)
}

// CompleteAgain is Complete after one that failed: what that has written all the same, when only its answer was lost, is left out.
func (s *Store) CompleteAgain(ctx context.Context, results []delivery.Result) (done Completed, err error) {
	return s.complete(ctx, results, lockUnwritten)
}

func (s *Store) complete(ctx context.Context, results []delivery.Result, lock string) (done Completed, err error) {
	if len(results) == 0 {
		return done, nil
	}
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		done = Completed{}
		rows, byID, err := stillOpen(ctx, tx, results, lock)
		if err != nil || len(rows) == 0 {
			return err
		}
		done.Settled = len(rows)
		changes := tally(results, rows)
		var all pgx.Batch
		queueHistory(&all, rows, byID)
		queueHealth(&all, changes, &done.Failing)
		done.Subscriptions = changes.ids
		tx.LaterAll(&all)
		return nil
	})
	if err != nil {
		return Completed{}, fmt.Errorf("complete %d attempts: %w", len(results), err)
	}
	return done, nil
}

type openRow struct {
	DeliveryID     uuid.UUID
	CreatedAt      time.Time
	SubscriptionID uuid.UUID
	EventType      string
	Attempt        int
	Replay         int
}

// is says that the result is of the attempt the row now waits for.
func (o openRow) is(r delivery.Result) bool { return o.Attempt == r.Attempt && o.Replay == r.Replay }

// stillOpen locks the rows that wait for these results, and says for which each does. Of several for the same attempt it is the first that
// was seen to end: what was given up for lost may have been on its way.
func stillOpen(ctx context.Context, tx *pg.Pipeline, results []delivery.Result, lock string) (rows []openRow, byID map[uuid.UUID]delivery.Result, err error) {
	ids, at := make([]uuid.UUID, len(results)), make([]time.Time, len(results))
	for i, r := range results {
		ids[i], at[i] = r.DeliveryID, r.Answer.At
	}
	args := pg.Args{"ids": ids, "first": slices.MinFunc(at, time.Time.Compare), "last": slices.MaxFunc(at, time.Time.Compare)}
	var asked pgx.Batch
	asked.Queue(planOnce)
	asked.Queue(lock, args).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByName[openRow])
		return err
	})
	if err := tx.Ask(ctx, &asked); err != nil {
		return nil, nil, fmt.Errorf("lock %d finished deliveries: %w", len(ids), err)
	}
	open := make(map[uuid.UUID]openRow, len(rows))
	for _, row := range rows {
		open[row.DeliveryID] = row
	}
	byID = make(map[uuid.UUID]delivery.Result, len(rows))
	for _, r := range results {
		row, found := open[r.DeliveryID]
		if other, known := byID[r.DeliveryID]; found && row.is(r) && (!known || other.Answer.Failure == delivery.Interrupted) {
			byID[r.DeliveryID] = r
		}
	}
	rows = slices.DeleteFunc(rows, func(row openRow) bool {
		_, counts := byID[row.DeliveryID]
		return !counts
	})
	return rows, byID, nil
}

const lockOpen = `
SELECT delivery_id, created_at, subscription_id, event_type, attempt, replay FROM webhook_queue
WHERE delivery_id = ANY (@ids)
ORDER BY delivery_id
FOR UPDATE`

// A failed attempt stays the row's until the next one is claimed: that its result was written, history alone knows.
const lockUnwritten = `
SELECT q.delivery_id, q.created_at, q.subscription_id, q.event_type, q.attempt, q.replay FROM webhook_queue q
WHERE q.delivery_id = ANY (@ids)
  AND NOT EXISTS (SELECT 1 FROM webhook_attempt a WHERE a.delivery_id = q.delivery_id AND a.no = q.attempt AND a.replay = q.replay
                  AND a.at BETWEEN @first AND @last)
ORDER BY q.delivery_id
FOR UPDATE OF q`

func queueHistory(all *pgx.Batch, rows []openRow, byID map[uuid.UUID]delivery.Result) {
	n, retries := len(rows), 0
	ids, created, nos, replays := make([]uuid.UUID, n), make([]time.Time, n), make([]int, n), make([]int, n)
	at, ms, codes := make([]time.Time, n), make([]int64, n), make([]*int, n)
	errs, excerpts := make([]*string, n), make([]*string, n)
	outcomes, delays := make([]string, n), make([]float64, n)
	for i, row := range rows {
		r := byID[row.DeliveryID]
		ids[i], created[i], nos[i] = row.DeliveryID, row.CreatedAt, row.Attempt
		replays[i] = row.Replay
		at[i], ms[i] = r.Answer.At, r.Answer.Took.Milliseconds()
		outcomes[i], delays[i] = string(r.Outcome), r.Delay.Seconds()
		codes[i] = orNull(r.Answer.Code)
		errs[i], excerpts[i] = orNull(string(r.Answer.Failure)), orNull(r.Answer.Excerpt)
		if r.Outcome == delivery.Again {
			retries++
		}
	}
	args := pg.Args{
		"ids": ids, "created": created, "nos": nos, "at": at, "ms": ms, "codes": codes, "errors": errs, "excerpts": excerpts,
		"outcomes": outcomes, "delays": delays, "replays": replays,
		"oldest": slices.MinFunc(created, time.Time.Compare), "newest": slices.MaxFunc(created, time.Time.Compare),
	}
	if retries < n {
		all.Queue(deleteOpen, args)
	}
	if retries > 0 {
		all.Queue(pushBack, args)
	}
	all.Queue(updateDeliveries, args)
	all.Queue(insertAttempts, args)
}

const deleteOpen = `
DELETE FROM webhook_queue q
USING unnest(@ids::uuid[], @outcomes::text[]) AS r (id, outcome)
WHERE q.delivery_id = ANY (@ids) AND q.delivery_id = r.id AND r.outcome <> 'retry'`

const pushBack = `
UPDATE webhook_queue q SET due_at = now() + make_interval(secs => r.delay), is_retry = true
FROM unnest(@ids::uuid[], @outcomes::text[], @delays::float8[]) AS r (id, outcome, delay)
WHERE q.delivery_id = ANY (@ids) AND q.delivery_id = r.id AND r.outcome = 'retry'`

// The bounds say which days it is about before it is read; the ids, given twice, that it is read by their index, whatever the planner thinks of
// a day that was empty when it last looked.
const updateDeliveries = `
UPDATE webhook_delivery d
SET status = CASE r.outcome WHEN 'retry' THEN 'queued' ELSE r.outcome END, attempts = r.no, last_code = r.code, last_error = r.error,
    done_at = CASE r.outcome WHEN 'retry' THEN NULL ELSE now() END
FROM unnest(@ids::uuid[], @created::timestamptz[], @nos::int[], @codes::int[], @errors::text[], @outcomes::text[])
     AS r (id, created_at, no, code, error, outcome)
WHERE d.id = ANY (@ids) AND d.id = r.id AND d.created_at = r.created_at AND d.created_at BETWEEN @oldest AND @newest`

// What was answered to one that was erased meanwhile is not kept: it may repeat what it was sent.
const insertAttempts = `
INSERT INTO webhook_attempt (delivery_id, replay, no, at, ms, code, error, excerpt)
SELECT r.id, r.replay, r.no, r.at, r.ms, r.code, r.error, CASE WHEN r.excerpt IS NULL THEN NULL ELSE (
           SELECT CASE WHEN d.erased_at IS NULL THEN r.excerpt END FROM webhook_delivery d
           WHERE d.id = r.id AND d.created_at = r.created_at AND d.created_at BETWEEN @oldest AND @newest) END
FROM unnest(@ids::uuid[], @created::timestamptz[], @replays::int[], @nos::int[], @at::timestamptz[], @ms::bigint[], @codes::int[], @errors::text[], @excerpts::text[])
     AS r (id, created_at, replay, no, at, ms, code, error, excerpt)
ON CONFLICT DO NOTHING`

// changes are what a batch does to the health of its subscriptions, in the order of their ids.
type changes struct {
	ids       []uuid.UUID
	succeeded []bool
	inRow     []int // failed attempts since the last success in the batch
	failures  []int // the same of real deliveries
	exhausted []int
	lastError []*string
}

// tally walks the settled results in the order they ended. What we lost ourselves says nothing about the endpoint.
func tally(results []delivery.Result, rows []openRow) changes {
	settled := make(map[uuid.UUID]openRow, len(rows))
	for _, row := range rows {
		settled[row.DeliveryID] = row
	}
	var c changes
	at := map[uuid.UUID]int{} // where a subscription stands in ids
	for _, row := range rows {
		if _, known := at[row.SubscriptionID]; !known {
			at[row.SubscriptionID] = 0
			c.ids = append(c.ids, row.SubscriptionID)
		}
	}
	slices.SortFunc(c.ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for i, id := range c.ids {
		at[id] = i
	}
	n := len(c.ids)
	c.succeeded, c.inRow, c.failures, c.exhausted, c.lastError = make([]bool, n), make([]int, n), make([]int, n), make([]int, n), make([]*string, n)
	for _, r := range results {
		row, counts := settled[r.DeliveryID]
		if !counts || !row.is(r) || r.Answer.Failure.Ours() {
			continue
		}
		delete(settled, r.DeliveryID)
		i := at[row.SubscriptionID]
		if r.Outcome == delivery.Done {
			c.succeeded[i], c.inRow[i], c.failures[i], c.exhausted[i], c.lastError[i] = true, 0, 0, 0, nil
			continue
		}
		c.inRow[i]++
		c.lastError[i] = describe(r.Answer)
		if row.EventType == subscription.TestEvent {
			continue
		}
		c.failures[i]++
		if r.Outcome == delivery.Over {
			c.exhausted[i]++
		}
	}
	return c
}

// queueHealth reads into failing who is in trouble afterwards.
func queueHealth(all *pgx.Batch, c changes, failing *[]Standing) {
	all.Queue(updateHealth, pg.Args{
		"ids": c.ids, "succeeded": c.succeeded, "in_row": c.inRow, "failures": c.failures, "exhausted": c.exhausted, "errors": c.lastError,
	}).Query(func(found pgx.Rows) error {
		rows, err := pgx.CollectRows(found, pgx.RowToStructByName[healthRow])
		for _, row := range rows {
			if row.Failures > 0 {
				*failing = append(*failing, row.standing())
			}
		}
		return err
	})
}

type healthRow struct {
	SubscriptionID uuid.UUID
	Failures       int
	Exhausted      int
	Failing        float64
	Warned         bool
}

func (r healthRow) standing() Standing {
	return Standing{SubscriptionID: r.SubscriptionID, Warned: r.Warned, Health: subscription.Health{
		Failures: r.Failures, Exhausted: r.Exhausted, Failing: time.Duration(r.Failing * float64(time.Second)),
	}}
}

// An upsert locks in the order of its input; the row always exists. A healthy subscription is updated
// at most once a second: each update leaves an old version of the row, and every later update reads
// all of them until a vacuum removes them.
const updateHealth = `
INSERT INTO webhook_health AS h (subscription_id, consecutive_failures, failures, exhausted, failing_since,
                                 last_success_at, last_failure_at, last_error)
SELECT r.id, r.in_row, r.failures, r.exhausted, CASE WHEN r.failures > 0 THEN now() END,
       CASE WHEN r.succeeded THEN now() END, CASE WHEN r.in_row > 0 THEN now() END, r.error
FROM unnest(@ids::uuid[], @succeeded::boolean[], @in_row::int[], @failures::int[], @exhausted::int[], @errors::text[])
     AS r (id, succeeded, in_row, failures, exhausted, error)
JOIN webhook_health was ON was.subscription_id = r.id
WHERE r.in_row > 0
   OR r.succeeded AND (was.last_success_at IS NULL OR was.last_success_at < now() - interval '1 second'
                       OR was.consecutive_failures > 0)
ORDER BY r.id
ON CONFLICT (subscription_id) DO UPDATE SET
    consecutive_failures = excluded.consecutive_failures + CASE WHEN excluded.last_success_at IS NULL THEN h.consecutive_failures ELSE 0 END,
    failures = excluded.failures + CASE WHEN excluded.last_success_at IS NULL THEN h.failures ELSE 0 END,
    exhausted = excluded.exhausted + CASE WHEN excluded.last_success_at IS NULL THEN h.exhausted ELSE 0 END,
    failing_since = CASE WHEN excluded.last_success_at IS NULL THEN coalesce(h.failing_since, excluded.failing_since)
                         ELSE excluded.failing_since END,
    warned_at = CASE WHEN excluded.last_success_at IS NULL THEN h.warned_at END,
    last_success_at = coalesce(excluded.last_success_at, h.last_success_at),
    last_failure_at = coalesce(excluded.last_failure_at, h.last_failure_at),
    last_error = CASE WHEN excluded.last_success_at IS NULL THEN coalesce(excluded.last_error, h.last_error) ELSE excluded.last_error END
RETURNING h.subscription_id, h.failures, h.exhausted, coalesce(extract(epoch FROM now() - h.failing_since), 0)::float8 AS failing,
          h.warned_at IS NOT NULL AS warned`

// Warn notes that the owner was warned; first is false when that had been done or a success came first.
func (s *Store) Warn(ctx context.Context, subscriptionID uuid.UUID) (first bool, err error) {
	tag, err := s.pool.Exec(ctx, setWarned, pgx.NamedArgs{"id": subscriptionID})
	if err != nil {
		return false, fmt.Errorf("note warning of subscription %s: %w", subscriptionID, err)
	}
	return tag.RowsAffected() > 0, nil
}

const setWarned = `UPDATE webhook_health SET warned_at = now() WHERE subscription_id = @id AND warned_at IS NULL AND failures > 0`

// Disable sets an active subscription to failed if its health still meets the rule. The reason is
// what operators read; disabled is false when a success or a PATCH came first.
func (s *Store) Disable(ctx context.Context, subscriptionID uuid.UUID, rule subscription.FailureRule) (reason string, disabled bool, err error) {
	key := pgx.NamedArgs{"id": subscriptionID}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		reason, disabled = "", false
		if _, err := pg.One[idRow](ctx, tx, lockActive, key); err != nil {
			if errors.Is(err, pg.ErrNotFound) {
				return nil
			}
			return err
		}
		row, err := pg.One[healthRow](ctx, tx, healthOf, key)
		if err != nil {
			return err
		}
		if reason, disabled = rule.Met(row.standing().Health); !disabled {
			return nil
		}
		if _, err := tx.Exec(ctx, setFailed, pgx.NamedArgs{"id": subscriptionID, "reason": reason}); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return "", false, fmt.Errorf("disable subscription %s: %w", subscriptionID, err)
	}
	return reason, disabled, nil
}

const lockActive = `
SELECT id FROM webhook_subscription WHERE id = @id AND status = 'active' AND deleted_at IS NULL
FOR NO KEY UPDATE`

// A statement of its own after the lock: when that had to wait, this one sees what happened meanwhile.
const healthOf = `
SELECT subscription_id, failures, exhausted, coalesce(extract(epoch FROM now() - failing_since), 0)::float8 AS failing,
       warned_at IS NOT NULL AS warned
FROM webhook_health
WHERE subscription_id = @id`

const setFailed = `
UPDATE webhook_subscription SET status = 'failed', failed_at = now(), failed_reason = @reason, updated_at = now() WHERE id = @id`

func describe(a delivery.Answer) *string {
	text := string(a.Failure)
	if a.Code != 0 {
		text = fmt.Sprintf("%s %d", a.Failure, a.Code)
	}
	return &text
}

func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
