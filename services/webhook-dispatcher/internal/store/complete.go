package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Completed is the result of Complete.
type Completed struct {
	// Settled is the number of results that were stored. The other results were ignored, because
	// the delivery had been claimed again or replayed.
	Settled int
	// Failing contains the subscriptions that had a failure in this batch and no success after it.
	Failing []SubscriptionHealth
	// Subscriptions contains the subscriptions of the stored results.
	Subscriptions []uuid.UUID
}

// SubscriptionHealth is the health of one subscription after a batch. Warned is true if MarkWarned
// was called since the last success.
type SubscriptionHealth struct {
	SubscriptionID uuid.UUID
	Health         subscriptions.Health
	Warned         bool
}

// Complete stores the results of finished attempts in one transaction. The results must be in the
// order in which the attempts ended. A result is ignored if its queue row has another attempt
// number or replay number.
func (s *Store) Complete(ctx context.Context, results []deliveries.Result) (done Completed, err error) {
	return s.storeResults(ctx, results, settleOpen)
}

// CompleteAgain repeats a call of Complete that returned an error. That call may have committed its
// results, so CompleteAgain leaves out results that are already stored.
func (s *Store) CompleteAgain(ctx context.Context, results []deliveries.Result) (done Completed, err error) {
	return s.storeResults(ctx, results, settleUnwritten)
}

// storeResults sends one batch of statements, which is one transaction and one round trip.
func (s *Store) storeResults(ctx context.Context, results []deliveries.Result,
	settle string) (done Completed, err error) {
	if len(results) == 0 {
		return done, nil
	}
	args := resultArgs(oncePerAttempt(results))
	var rows []settledRow
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(lockFinished, args)
	batch.Queue(settle, args).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByName[settledRow])
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return Completed{}, fmt.Errorf("complete %d attempts: %w", len(results), err)
	}
	for _, row := range rows {
		done.Settled += row.Settled
		done.Subscriptions = append(done.Subscriptions, row.SubscriptionID)
		if row.Failures > 0 {
			done.Failing = append(done.Failing, row.health())
		}
	}
	return done, nil
}

// settledRow is a subscription with stored results. The health in it is zero if the row in
// subscription_health was not updated.
type settledRow struct {
	healthRow
	Settled int
}

// oncePerAttempt returns one result for each attempt: the first result that is not Interrupted. If
// all results of an attempt are Interrupted, it returns one of them.
func oncePerAttempt(results []deliveries.Result) (kept []deliveries.Result) {
	type attempt struct {
		id         uuid.UUID
		no, replay int
	}
	at := make(map[attempt]int, len(results)) // the index of an attempt in kept
	for _, r := range results {
		key := attempt{r.DeliveryID, r.Attempt, r.Replay}
		switch i, known := at[key]; {
		case !known:
			at[key], kept = len(kept), append(kept, r)
		case kept[i].Response.Failure == deliveries.Interrupted:
			kept[i] = r
		}
	}
	return kept
}

func resultArgs(results []deliveries.Result) pg.Args {
	n := len(results)
	ids, nos, replays := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	at, ms, codes := make([]time.Time, n), make([]int64, n), make([]*int, n)
	errs, excerpts, reasons, causes := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	outcomes, delays, ours := make([]string, n), make([]float64, n), make([]bool, n)
	for i, r := range results {
		ids[i], nos[i], replays[i] = r.DeliveryID, r.Attempt, r.Replay
		at[i], ms[i], codes[i] = r.Response.At, r.Response.Duration.Milliseconds(), orNull(r.Response.Code)
		errs[i], excerpts[i], reasons[i] = orNull(string(r.Response.Failure)), orNull(r.Response.Excerpt), describe(r.Response)
		causes[i] = orNull(r.Response.Failure.Cause(r.Response.Code, r.Response.Detail))
		outcomes[i], delays[i], ours[i] = string(r.Outcome), r.Delay.Seconds(), r.Response.Failure.Internal()
	}
	return pg.Args{
		"ids": ids, "nos": nos, "replays": replays, "at": at, "ms": ms, "codes": codes, "errors": errs,
		"excerpts": excerpts,
		"reasons":  reasons, "causes": causes, "outcomes": outcomes,
		"delays": delays, "ours": ours, "test": subscriptions.TestEvent,
		"first": slices.MinFunc(at, time.Time.Compare), "last": slices.MaxFunc(at, time.Time.Compare),
	}
}

// lockFinished is a separate statement. If it waits for another transaction, the next statement
// reads the rows that the other transaction committed.
const lockFinished = `
SELECT FROM delivery_queue WHERE delivery_id = ANY (@ids::uuid[]) ORDER BY delivery_id FOR UPDATE`

// Unlike settleOpen, settleUnwritten ignores results that are already in the table attempts. The
// queue row does not show this, because it keeps the attempt number until the next claim.
const (
	settleOpen      = settleBegin + settleEnd
	settleUnwritten = settleBegin + `
      AND NOT EXISTS (SELECT FROM attempts a
                      WHERE a.delivery_id = q.delivery_id AND a.no = q.attempt AND a.replay = q.replay
                        AND a.at BETWEEN @first AND @last)` + settleEnd

	settleBegin = `
WITH open AS MATERIALIZED (
    SELECT r.*, q.created_at, q.subscription_id, q.event_type
    FROM unnest(@ids::uuid[], @nos::int[], @replays::int[], @at::timestamptz[], @ms::bigint[], @codes::int[],
                @errors::text[], @excerpts::text[], @reasons::text[], @causes::text[], @outcomes::text[],
                @delays::float8[], @ours::boolean[])
         WITH ORDINALITY AS r (id, no, replay, at, ms, code, error, excerpt, reason, cause, outcome, delay, ours,
                               position)
    JOIN delivery_queue q ON q.delivery_id = r.id AND q.attempt = r.no AND q.replay = r.replay
    WHERE q.delivery_id = ANY (@ids::uuid[])`
	// settleEnd stores no excerpt for an erased call, because a response can repeat the request. It
	// updates a healthy row of subscription_health at most once a second, because each update leaves a
	// dead row version.
	settleEnd = `
), ended AS (
    DELETE FROM delivery_queue q USING open
    WHERE q.delivery_id = ANY (@ids::uuid[]) AND q.delivery_id = open.id AND open.outcome <> 'retry'
), again AS (
    UPDATE delivery_queue q SET due_at = now() + make_interval(secs => open.delay), is_retry = true
    FROM open
    WHERE q.delivery_id = ANY (@ids::uuid[]) AND q.delivery_id = open.id AND open.outcome = 'retry'
), history AS (
    UPDATE deliveries d
    SET status = CASE open.outcome WHEN 'retry' THEN 'queued' ELSE open.outcome END, attempts = open.no,
        last_code = open.code, last_error = open.error,
        done_at = CASE open.outcome WHEN 'retry' THEN NULL ELSE now() END
    FROM open
    WHERE d.id = open.id AND d.created_at = open.created_at
    RETURNING d.id, d.erased_at
), inserted_attempts AS (
    INSERT INTO attempts (delivery_id, replay, no, at, ms, code, error, cause, excerpt)
    SELECT open.id, open.replay, open.no, open.at, open.ms, open.code, open.error, open.cause,
           CASE WHEN history.id IS NOT NULL AND history.erased_at IS NULL THEN open.excerpt END
    FROM open LEFT JOIN history ON history.id = open.id
    ON CONFLICT DO NOTHING
), counted AS (
    SELECT open.*, max(open.position) FILTER (WHERE open.outcome = 'delivered')
                       OVER (PARTITION BY open.subscription_id) AS succeeded_at
    FROM open WHERE NOT open.ours
), failed AS (
    SELECT counted.*, outcome <> 'delivered' AND position > coalesce(succeeded_at, 0) AS failed FROM counted
), tally AS (
    SELECT subscription_id AS id, max(succeeded_at) IS NOT NULL AS succeeded,
           count(*) FILTER (WHERE failed) AS in_row,
           count(*) FILTER (WHERE failed AND event_type <> @test) AS failures,
           count(*) FILTER (WHERE failed AND event_type <> @test AND outcome = 'failed') AS exhausted,
           (array_agg(reason ORDER BY position DESC) FILTER (WHERE failed))[1] AS error,
           (array_agg(cause ORDER BY position DESC) FILTER (WHERE failed))[1] AS cause
    FROM failed GROUP BY subscription_id
), health AS (
    INSERT INTO subscription_health AS h (subscription_id, consecutive_failures, failures, exhausted, failing_since,
                                     last_success_at, last_failure_at, last_error, last_cause)
    SELECT r.id, r.in_row, r.failures, r.exhausted, CASE WHEN r.failures > 0 THEN now() END,
           CASE WHEN r.succeeded THEN now() END, CASE WHEN r.in_row > 0 THEN now() END, r.error, r.cause
    FROM tally r
    JOIN subscription_health was ON was.subscription_id = r.id
    WHERE r.in_row > 0
       OR r.succeeded AND (was.last_success_at IS NULL OR was.last_success_at < now() - interval '1 second'
                           OR was.consecutive_failures > 0)
    ORDER BY r.id
    ON CONFLICT (subscription_id) DO UPDATE SET
        consecutive_failures = excluded.consecutive_failures
            + CASE WHEN excluded.last_success_at IS NULL THEN h.consecutive_failures ELSE 0 END,
        failures = excluded.failures + CASE WHEN excluded.last_success_at IS NULL THEN h.failures ELSE 0 END,
        exhausted = excluded.exhausted + CASE WHEN excluded.last_success_at IS NULL THEN h.exhausted ELSE 0 END,
        failing_since = CASE WHEN excluded.last_success_at IS NULL
                             THEN coalesce(h.failing_since, excluded.failing_since) ELSE excluded.failing_since END,
        warned_at = CASE WHEN excluded.last_success_at IS NULL THEN h.warned_at END,
        last_success_at = coalesce(excluded.last_success_at, h.last_success_at),
        last_failure_at = coalesce(excluded.last_failure_at, h.last_failure_at),
        last_error = CASE WHEN excluded.last_success_at IS NULL
                          THEN coalesce(excluded.last_error, h.last_error) ELSE excluded.last_error END,
        last_cause = CASE WHEN excluded.last_success_at IS NULL
                          THEN coalesce(excluded.last_cause, h.last_cause) ELSE excluded.last_cause END
    RETURNING h.subscription_id, h.failures, h.exhausted,
              coalesce(extract(epoch FROM now() - h.failing_since), 0)::float8 AS failing,
              h.warned_at IS NOT NULL AS warned
)
SELECT settled.subscription_id, settled.number AS settled, coalesce(h.failures, 0) AS failures,
       coalesce(h.exhausted, 0) AS exhausted, coalesce(h.failing, 0) AS failing, coalesce(h.warned, false) AS warned
FROM (SELECT subscription_id, count(*) AS number FROM open GROUP BY subscription_id) AS settled
LEFT JOIN health h ON h.subscription_id = settled.subscription_id`
)

type healthRow struct {
	SubscriptionID uuid.UUID
	Failures       int
	Exhausted      int
	Failing        float64
	Warned         bool
}

func (r healthRow) health() SubscriptionHealth {
	return SubscriptionHealth{SubscriptionID: r.SubscriptionID, Warned: r.Warned, Health: subscriptions.Health{
		Failures: r.Failures, Exhausted: r.Exhausted, FailingFor: time.Duration(r.Failing * float64(time.Second)),
	}}
}

// MarkWarned stores the event webhook_subscription.failing. first is false if an earlier call has
// stored the event, if a delivery has succeeded since, or if the subscription is not active.
func (s *Store) MarkWarned(ctx context.Context, subscriptionID uuid.UUID) (first bool, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		first = false
		active, err := lockFailing(ctx, tx, subscriptionID)
		if err != nil || !active {
			return err
		}
		first, err = s.warn(ctx, tx, subscriptionID)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store warning of subscription %s: %w", subscriptionID, err)
	}
	return first, nil
}

func (s *Store) warn(ctx context.Context, tx pgx.Tx, subscriptionID uuid.UUID) (first bool, err error) {
	tag, err := tx.Exec(ctx, setWarned, pgx.NamedArgs{"id": subscriptionID})
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	return true, s.announce(ctx, tx, subscriptionID, openapi.SubscriptionEventTypeWebhookSubscriptionFailing)
}

// lockFailing locks the subscription and the subscriptions that receive its events, in the order of
// their ids, as Ingest does. active is false if the subscription is not active or was deleted.
func lockFailing(ctx context.Context, tx pgx.Tx, subscriptionID uuid.UUID) (active bool, err error) {
	locked, err := pg.Many[idStatusRow](ctx, tx, lockWorkspaceOfFailing, pgx.NamedArgs{
		"id": subscriptionID, "types": []openapi.EventType{
			openapi.EventTypeWebhookSubscriptionFailing, openapi.EventTypeWebhookSubscriptionFailed,
		},
	})
	if err != nil {
		return false, fmt.Errorf("lock subscriptions: %w", err)
	}
	return slices.Contains(locked, idStatusRow{subscriptionID, subscriptions.Active}), nil
}

type idStatusRow struct {
	ID     uuid.UUID
	Status subscriptions.Status
}

const lockWorkspaceOfFailing = `
SELECT s.id, s.status FROM subscriptions s
WHERE s.workspace_id = (SELECT workspace_id FROM subscriptions WHERE id = @id) AND s.deleted_at IS NULL
  AND (s.id = @id OR s.events && @types::text[])
ORDER BY s.id
FOR NO KEY UPDATE`

// announce stores an event of a subscription, and its deliveries to the other subscriptions of the
// workspace.
func (s *Store) announce(
	ctx context.Context, tx pgx.Tx, subscriptionID uuid.UUID, event openapi.SubscriptionEventType,
) error {
	counted, err := pg.One[countedEvent](ctx, tx, countEvent, pgx.NamedArgs{"id": subscriptionID})
	if err != nil {
		return fmt.Errorf("count event of subscription %s: %w", subscriptionID, err)
	}
	sub, err := pg.One[subscriptions.Subscription](
		ctx,
		tx,
		selectSubscription+` WHERE s.id = @id`,
		pgx.NamedArgs{"id": subscriptionID},
	)
	if err != nil {
		return fmt.Errorf("read subscription %s: %w", subscriptionID, err)
	}
	ev, err := deliveries.NewSubscriptionEvent(event, sub, counted.EventCount, counted.At)
	if err != nil {
		return err
	}
	ev.Traceparent = telemetry.Carrier(ctx)
	_, err = s.Ingest(ctx, tx, ev)
	return err
}

type countedEvent struct {
	EventCount int32
	At         time.Time
}

const countEvent = `
UPDATE subscription_health SET event_count = event_count + 1 WHERE subscription_id = @id
RETURNING event_count, clock_timestamp() AS at`

const setWarned = `UPDATE subscription_health SET warned_at = now() WHERE subscription_id = @id AND warned_at IS NULL AND failures > 0`

// Disable sets an active subscription to failed if its health still meets the rule, stores the
// event webhook_subscription.failed, and returns the reason for operators. If no warning was
// recorded, it stores webhook_subscription.failing first. disabled is false if a success or a PATCH
// was committed first.
func (s *Store) Disable(ctx context.Context, subscriptionID uuid.UUID, rule subscriptions.FailureRule) (reason string, disabled bool, err error) {
	key := pgx.NamedArgs{"id": subscriptionID}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		reason, disabled = "", false
		active, err := lockFailing(ctx, tx, subscriptionID)
		if err != nil || !active {
			return err
		}
		row, err := pg.One[healthRow](ctx, tx, healthOf, key)
		if err != nil {
			return err
		}
		if reason, disabled = rule.Met(row.health().Health); !disabled {
			return nil
		}
		if _, err := s.warn(ctx, tx, subscriptionID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, setFailed, pgx.NamedArgs{"id": subscriptionID, "reason": reason}); err != nil {
			return err
		}
		return s.announce(ctx, tx, subscriptionID, openapi.SubscriptionEventTypeWebhookSubscriptionFailed)
	})
	if err != nil {
		return "", false, fmt.Errorf("disable subscription %s: %w", subscriptionID, err)
	}
	return reason, disabled, nil
}

// healthOf runs after lockFailing as a separate statement. So it reads rows that were committed
// while lockFailing waited.
const healthOf = `
SELECT subscription_id, failures, exhausted, coalesce(extract(epoch FROM now() - failing_since), 0)::float8 AS failing,
       warned_at IS NOT NULL AS warned
FROM subscription_health
WHERE subscription_id = @id`

const setFailed = `
UPDATE subscriptions SET status = 'failed', failed_at = now(), failed_reason = @reason, updated_at = now() WHERE id = @id`

func describe(a deliveries.Response) *string {
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
