package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// MaxReplay is the maximum number of deliveries that one call of ReplayPeriod queues.
const MaxReplay = 10_000

// ErrTooMany means that a period has more than MaxReplay deliveries.
var ErrTooMany = errors.New("the period has too many deliveries")

// ErrErased means that the body of an event was erased or has expired.
var ErrErased = errors.New("the body of the event was erased or has expired")

// ErrInProgress means that a retry of the delivery is in progress.
var ErrInProgress = errors.New("an attempt of the delivery is in progress")

// Period selects the deliveries of events that were created at Since or later and before Until.
type Period struct {
	Since, Until time.Time
	// OnlyFailed leaves out delivered and skipped deliveries.
	OnlyFailed bool
	// Traceparent is the W3C trace context of the request. The attempts continue its trace.
	Traceparent string
}

// ReplayPeriod queues the ended deliveries of a period again, and returns their number. It queues
// either all of them or none. It leaves out queued deliveries, deliveries of webhook.test, and
// deliveries whose body was deleted or erased.
//
// It returns ErrTooMany, the 409 error subscription_not_active if the subscription is not active,
// or pg.ErrNotFound if the subscription does not exist.
func (s *Store) ReplayPeriod(
	ctx context.Context,
	workspaceID, subscriptionID uuid.UUID,
	period Period,
) (count int, err error) {
	args := pgx.NamedArgs{
		"workspace_id": workspaceID, "id": subscriptionID, "since": period.Since, "until": period.Until, "before": nil,
		"limit": MaxReplay + 1,
	}
	choose := choosePeriod
	if period.OnlyFailed {
		choose = chooseFailedPeriod
	}
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		count = 0
		if err := lockActiveShared(ctx, tx, workspaceID, subscriptionID); err != nil {
			return err
		}
		ended, err := selectEnded(ctx, tx, choose, args)
		if err != nil {
			return fmt.Errorf("select deliveries of subscription %s: %w", subscriptionID, err)
		}
		if len(ended) > MaxReplay {
			return ErrTooMany
		}
		if count = len(ended); count == 0 {
			return nil
		}
		return requeue(ctx, tx, ended, period.Traceparent)
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

// chooseFailedPeriod is a separate statement, because failed deliveries are few and can be found
// with an index.
const (
	choosePeriod       = chooseEnded + ` AND d.status IN ('failed', 'delivered', 'skipped')` + inPeriod
	chooseFailedPeriod = chooseEnded + ` AND d.status = 'failed'` + inPeriod
	inPeriod           = `
  AND d.created_at >= @since AND d.created_at < @until AND d.event_type <> 'webhook.test'
ORDER BY d.created_at, d.id LIMIT @limit FOR UPDATE OF d`
)

func lockActiveShared(ctx context.Context, tx pgx.Tx, workspaceID, subscriptionID uuid.UUID) error {
	sub, err := lockShared(ctx, tx, workspaceID, subscriptionID)
	if err != nil {
		return err
	}
	if sub.Status != subscriptions.Active {
		return subscriptions.NotReplayable(sub.Status)
	}
	return nil
}

// Resend begins one new series of attempts and returns the queued delivery. The series replaces a
// series whose next retry waits or is due. If a series has only begun, because its first attempt is
// due or in progress, Resend changes nothing: a repeated request begins no second series.
//
// It returns ErrErased, ErrInProgress if a retry is in progress, the 409 error
// subscription_not_active if the subscription is not active, or pg.ErrNotFound if the delivery does
// not exist.
func (s *Store) Resend(
	ctx context.Context,
	workspaceID, id uuid.UUID,
	traceparent string,
) (queued Delivery, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		found, err := deliveryOf(ctx, tx, workspaceID, id)
		if err != nil {
			return err
		}
		if err := lockActiveShared(ctx, tx, workspaceID, found.SubscriptionID); err != nil {
			return err
		}
		if err := resend(ctx, tx, found, traceparent); err != nil {
			return err
		}
		queued, err = deliveryOf(ctx, tx, workspaceID, id)
		return err
	})
	return queued, err
}

// resend locks the queue row before the delivery, as Complete does, to prevent deadlocks.
func resend(ctx context.Context, tx pgx.Tx, d Delivery, traceparent string) error {
	args := pgx.NamedArgs{"id": d.ID, "created_at": d.CreatedAt, "event_id": d.EventID, "traceparent": traceparent}
	if _, err := tx.Exec(ctx, lockQueued, args); err != nil {
		return fmt.Errorf("lock queued delivery %s: %w", d.ID, err)
	}
	row, err := pg.One[resendRow](ctx, tx, lockDelivery, args)
	if err != nil {
		return err
	}
	switch {
	case row.Erased:
		return ErrErased
	case row.Status != deliveries.Queued:
		return requeue(ctx, tx, []endedRow{{d.ID, d.CreatedAt}}, traceparent)
	case row.Attempt > max(row.Attempts, 1):
		return ErrInProgress
	}
	if _, err := tx.Exec(ctx, restartWaiting, args); err != nil {
		return fmt.Errorf("begin a new series of delivery %s: %w", d.ID, err)
	}
	return nil
}

// Attempt is the number of attempts that have begun, or 0 if the delivery is not queued. Attempts
// is the number of attempts with a result.
type resendRow struct {
	Status            deliveries.Status
	Erased            bool
	Attempt, Attempts int
}

const lockQueued = `SELECT FROM delivery_queue WHERE delivery_id = @id FOR UPDATE`

const lockDelivery = `
SELECT d.status, d.erased_at IS NOT NULL
       OR coalesce((SELECT e.body = '' FROM events e WHERE e.id = @event_id AND e.created_at = @created_at), true)
       AS erased,
       coalesce((SELECT q.attempt FROM delivery_queue q WHERE q.delivery_id = @id), 0) AS attempt, d.attempts
FROM deliveries d WHERE d.id = @id AND d.created_at = @created_at
FOR UPDATE OF d`

// restartWaiting changes only a delivery that waits for a retry. During an attempt,
// delivery_queue.attempt is larger than deliveries.attempts.
const restartWaiting = `
WITH again AS (
    UPDATE delivery_queue q
    SET attempt = 0, replay = q.replay + 1, is_retry = false, due_at = clock_timestamp(), queued_at = now(),
        traceparent = @traceparent
    FROM deliveries d
    WHERE q.delivery_id = @id AND q.is_retry
      AND d.id = @id AND d.created_at = @created_at AND d.attempts = q.attempt
    RETURNING q.replay
)
UPDATE deliveries d SET attempts = 0, replays = again.replay, queued_at = now(), traceparent = @traceparent
FROM again WHERE d.id = @id AND d.created_at = @created_at`
