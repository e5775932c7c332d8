package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Ingest stores the event once and one delivery for every subscription of the workspace that lists its type now: queued for an
// active one, skipped for a paused or failed one. The same event again changes nothing. matched is the number of subscriptions.
func (s *Store) Ingest(ctx context.Context, tx pgx.Tx, ev delivery.Event) (matched int, err error) {
	// Shared locks: a pause or suspension that is answered finds every row written before it.
	if _, err := tx.Exec(ctx, shareWorkspace, pgx.NamedArgs{"workspace_id": ev.WorkspaceID}); err != nil {
		return 0, fmt.Errorf("lock workspace %s: %w", ev.WorkspaceID, err)
	}
	subs, err := many[matchRow](ctx, tx, matchSubscriptions, pgx.NamedArgs{"workspace_id": ev.WorkspaceID, "type": ev.Type})
	if err != nil {
		return 0, fmt.Errorf("match subscriptions of event %s: %w", ev.ID, err)
	}
	if len(subs) == 0 {
		return 0, nil
	}
	return len(subs), put(ctx, tx, ev, subs)
}

type matchRow struct {
	ID     uuid.UUID
	Status subscription.Status
}

const matchSubscriptions = `
SELECT id, status FROM webhook_subscription
WHERE workspace_id = @workspace_id AND deleted_at IS NULL AND @type = ANY (events)
ORDER BY id
FOR SHARE`

// EnqueueTest queues one webhook.test for an active subscription: 409 subscription_not_active otherwise.
func (s *Store) EnqueueTest(ctx context.Context, subscriptionID uuid.UUID, ev delivery.Event) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		sub, err := share(ctx, tx, ev.WorkspaceID, subscriptionID)
		if err != nil {
			return err
		}
		if sub.Status != subscription.Active {
			return subscription.NotActive(sub.Status)
		}
		return put(ctx, tx, ev, []matchRow{sub})
	})
}

// share locks a subscription and its workspace as ingest does: a pause or deletion that is answered finds every row written before it.
func share(ctx context.Context, tx pgx.Tx, workspaceID, subscriptionID uuid.UUID) (matchRow, error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "id": subscriptionID}
	if _, err := tx.Exec(ctx, shareWorkspace, args); err != nil {
		return matchRow{}, fmt.Errorf("lock workspace %s: %w", workspaceID, err)
	}
	sub, err := one[matchRow](ctx, tx, shareSubscription, args)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("lock subscription %s: %w", subscriptionID, err)
	}
	return sub, err
}

const shareSubscription = `
SELECT id, status FROM webhook_subscription
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL
FOR SHARE`

func put(ctx context.Context, tx pgx.Tx, ev delivery.Event, subs []matchRow) error {
	ids, owners, skips := make([]uuid.UUID, len(subs)), make([]uuid.UUID, len(subs)), make([]bool, len(subs))
	for i, sub := range subs {
		ids[i], owners[i], skips[i] = delivery.ID(sub.ID, ev.ID), sub.ID, sub.Status != subscription.Active
	}
	args := pgx.NamedArgs{
		"event_id": ev.ID, "created_at": ev.CreatedAt, "workspace_id": ev.WorkspaceID, "call_id": ev.CallID, "type": ev.Type,
		"sequence": ev.Sequence, "body": ev.Body, "traceparent": ev.Traceparent, "ids": ids, "owners": owners, "skips": skips,
	}
	batch := &pgx.Batch{}
	batch.Queue(insertEvent, args)
	batch.Queue(insertDeliveries, args)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("insert deliveries of event %s: %w", ev.ID, err)
	}
	return nil
}

const insertEvent = `
INSERT INTO webhook_event (id, created_at, workspace_id, call_id, type, sequence, body)
VALUES (@event_id, @created_at, @workspace_id, @call_id, @type, @sequence, @body)
ON CONFLICT DO NOTHING`

// Only what is new in history is queued: a record read again after its delivery was done stays done.
const insertDeliveries = `
WITH fresh AS (
    INSERT INTO webhook_delivery (id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status,
                                  traceparent, done_at)
    SELECT m.id, @created_at::timestamptz, @workspace_id::uuid, m.owner, @event_id::uuid, @type::text, @call_id::uuid, @sequence::int,
           CASE WHEN m.skip THEN 'skipped' ELSE 'queued' END, @traceparent::text, CASE WHEN m.skip THEN now() END
    FROM unnest(@ids::uuid[], @owners::uuid[], @skips::boolean[]) AS m (id, owner, skip)
    ON CONFLICT DO NOTHING
    RETURNING id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status, traceparent
)
INSERT INTO webhook_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, traceparent, held)
SELECT f.id, f.created_at, f.workspace_id, f.subscription_id, f.event_id, f.event_type, f.call_id, f.sequence, f.traceparent,
       EXISTS (SELECT 1 FROM workspace w WHERE w.id = f.workspace_id AND w.suspended)
FROM fresh f
WHERE f.status = 'queued'`

// SetWorkspace keeps the newest version of a workspace. A suspension holds all of its queued deliveries, the end of one lets go
// those of its active subscriptions. changed is false for old news.
func (s *Store) SetWorkspace(ctx context.Context, tx pgx.Tx, id uuid.UUID, version int64, suspended bool) (changed bool, err error) {
	args := pgx.NamedArgs{"id": id, "version": version, "suspended": suspended}
	tag, err := tx.Exec(ctx, upsertWorkspace, args)
	if err != nil {
		return false, fmt.Errorf("keep workspace %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	if _, err := tx.Exec(ctx, holdWorkspace, args); err != nil {
		return false, fmt.Errorf("hold deliveries of workspace %s: %w", id, err)
	}
	return true, nil
}

const upsertWorkspace = `
INSERT INTO workspace (id, version, suspended) VALUES (@id, @version, @suspended)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, suspended = excluded.suspended, updated_at = now()
WHERE workspace.version < excluded.version`

const holdWorkspace = `
WITH open AS (
    SELECT q.delivery_id, @suspended OR s.status <> 'active' AS held
    FROM webhook_queue q
    JOIN webhook_subscription s ON s.id = q.subscription_id
    WHERE s.workspace_id = @id AND q.held <> (@suspended OR s.status <> 'active')
    ORDER BY q.delivery_id FOR UPDATE OF q
)
UPDATE webhook_queue q SET held = open.held FROM open WHERE q.delivery_id = open.delivery_id`
