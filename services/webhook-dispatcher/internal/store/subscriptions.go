package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Create stores an active subscription with its secret. It returns the 409 error
// subscription_limit_reached if the workspace has subscriptions.MaxActive active subscriptions or
// subscriptions.MaxSubscriptions in total. Concurrent calls do not exceed these limits.
func (s *Store) Create(ctx context.Context, sub subscriptions.Subscription, secret string) error {
	sealed, last4, err := s.sealSecret(sub.ID, secret)
	if err != nil {
		return err
	}
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		kept, err := checkActiveLimit(ctx, tx, sub.WorkspaceID)
		if err != nil {
			return err
		}
		if kept >= subscriptions.MaxSubscriptions {
			return subscriptions.TotalLimitReached()
		}
		if _, err := tx.Exec(ctx, insertSubscription, pgx.NamedArgs{
			"id": sub.ID, "workspace_id": sub.WorkspaceID, "name": sub.Name, "url": sub.URL, "description": sub.Description,
			"events": sub.Events, "sealed": sealed, "last4": last4,
		}); err != nil {
			return fmt.Errorf("insert subscription %s: %w", sub.ID, err)
		}
		return nil
	})
}

const insertSubscription = `
WITH added AS (
    INSERT INTO subscriptions (id, workspace_id, name, url, description, events, secret_sealed, secret_last4)
    VALUES (@id, @workspace_id, @name, @url, @description, @events, @sealed, @last4)
)
INSERT INTO subscription_health (subscription_id) VALUES (@id)`

// checkActiveLimit locks the workspace until the end of the transaction, so that creations and
// resumptions run one after the other. It returns an error if MaxActive subscriptions are active.
// kept is the number of all subscriptions that are not deleted.
func checkActiveLimit(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) (kept int, err error) {
	if _, err := tx.Exec(ctx, lockWorkspace, pgx.NamedArgs{"workspace_id": workspaceID}); err != nil {
		return 0, fmt.Errorf("lock subscriptions of workspace %s: %w", workspaceID, err)
	}
	var active int
	if err := tx.QueryRow(ctx, countSubscriptions, pgx.NamedArgs{"workspace_id": workspaceID}).Scan(&active, &kept); err != nil {
		return 0, fmt.Errorf("count subscriptions of workspace %s: %w", workspaceID, err)
	}
	if active >= subscriptions.MaxActive {
		return kept, subscriptions.ActiveLimitReached()
	}
	return kept, nil
}

const lockWorkspace = `SELECT pg_advisory_xact_lock(hashtextextended('subscriptions ' || @workspace_id::uuid::text, 0))`

const countSubscriptions = `
SELECT count(*) FILTER (WHERE status = 'active'), count(*) FROM subscriptions
WHERE workspace_id = @workspace_id AND deleted_at IS NULL`

const selectSubscription = `
SELECT s.id, s.workspace_id, s.name, s.url, s.description, s.events, s.status, s.secret_last4, s.failed_at, s.failed_reason,
       h.consecutive_failures, h.last_success_at, h.last_failure_at, h.warned_at, h.last_error, h.last_cause
FROM subscriptions s
JOIN subscription_health h ON h.subscription_id = s.id`

// Subscription returns a subscription of the workspace. It returns pg.ErrNotFound if the
// subscription does not exist or was deleted.
func (s *Store) Subscription(ctx context.Context, workspaceID, id uuid.UUID) (subscriptions.Subscription, error) {
	return pg.One[subscriptions.Subscription](ctx, s.pool, subscriptionByID, pgx.NamedArgs{"workspace_id": workspaceID,
		"id": id})
}

const subscriptionByID = selectSubscription + `
WHERE s.workspace_id = @workspace_id AND s.id = @id AND s.deleted_at IS NULL`

// Subscriptions returns the subscriptions of the workspace from the newest to the oldest. It
// returns one row more than the page size if there is a next page.
func (s *Store) Subscriptions(ctx context.Context, workspaceID uuid.UUID, req page.Request) ([]subscriptions.Subscription, error) {
	if req.After != uuid.Nil {
		if _, err := s.Subscription(ctx, workspaceID, req.After); err != nil {
			return nil, unknownCursor(err)
		}
	}
	return pg.Many[subscriptions.Subscription](ctx, s.pool, subscriptionsOf, pgx.NamedArgs{
		"workspace_id": workspaceID, "below": req.Below(), "rows": req.Rows(),
	})
}

const subscriptionsOf = selectSubscription + `
WHERE s.workspace_id = @workspace_id AND s.deleted_at IS NULL AND s.id < @below
ORDER BY s.id DESC
LIMIT @rows`

// Change describes a change of a subscription. A field that is nil is not changed.
type Change struct {
	URL    *string
	Events []openapi.EventType
	Status *subscriptions.Status
}

// Change applies a PATCH in one transaction. It changes no delivery, because each claim reads the
// status of the subscription. If the status changes to active, Change checks the limit of active
// subscriptions and clears the failure counters.
func (s *Store) Change(ctx context.Context, workspaceID, id uuid.UUID, change Change) (changed subscriptions.Subscription, err error) {
	key := pgx.NamedArgs{"workspace_id": workspaceID, "id": id}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		before, err := pg.One[statusRow](ctx, tx, lockSubscription, key)
		if err != nil {
			return err
		}
		after := before.Status
		if change.Status != nil {
			after = *change.Status
		}
		resumes := after == subscriptions.Active && before.Status != subscriptions.Active
		if resumes {
			if _, err := checkActiveLimit(ctx, tx, workspaceID); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, updateSubscription, pgx.NamedArgs{
			"id": id, "url": change.URL, "events": change.Events, "status": after,
		}); err != nil {
			return fmt.Errorf("update subscription %s: %w", id, err)
		}
		if resumes {
			if _, err := tx.Exec(ctx, clearHealth, key); err != nil {
				return fmt.Errorf("clear counters of subscription %s: %w", id, err)
			}
		}
		changed, err = pg.One[subscriptions.Subscription](ctx, tx, subscriptionByID, key)
		return err
	})
	return changed, err
}

type statusRow struct{ Status subscriptions.Status }

const lockSubscription = `
SELECT status FROM subscriptions WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL
FOR NO KEY UPDATE`

// updateSubscription clears failed_at and failed_reason when the status changes from failed to
// another status.
const updateSubscription = `
UPDATE subscriptions
SET url = coalesce(@url, url), events = coalesce(@events, events), status = @status,
    failed_at = CASE WHEN @status = 'failed' THEN failed_at END,
    failed_reason = CASE WHEN @status = 'failed' THEN failed_reason END,
    resumed_at = CASE WHEN @status = 'active' AND status <> 'active' THEN now() ELSE resumed_at END,
    updated_at = now()
WHERE id = @id`

const clearHealth = `
UPDATE subscription_health
SET consecutive_failures = 0, failures = 0, exhausted = 0, failing_since = NULL, warned_at = NULL, last_error = NULL,
    last_cause = NULL
WHERE subscription_id = @id`

// Rotate replaces the secret. Attempts that are claimed afterwards are signed with the new secret.
func (s *Store) Rotate(ctx context.Context, workspaceID, id uuid.UUID, secret string) error {
	sealed, last4, err := s.sealSecret(id, secret)
	if err != nil {
		return err
	}
	tag, err := s.pool.Exec(ctx, updateSecret, pgx.NamedArgs{
		"workspace_id": workspaceID, "id": id, "sealed": sealed, "last4": last4,
	})
	if err != nil {
		return fmt.Errorf("rotate secret of subscription %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return pg.ErrNotFound
	}
	return nil
}

const updateSecret = `
UPDATE subscriptions SET secret_sealed = @sealed, secret_last4 = @last4, updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL`

// Resealed is the result of Reseal.
type Resealed struct {
	// Last is the id of the last subscription that was read. It is uuid.Nil if no subscription was
	// read.
	Last uuid.UUID
	// Resealed is the number of secrets that were sealed again. Current is the number of secrets
	// that the first key had already sealed.
	Resealed, Current int
	Unopened          []Unopened
}

// Unopened is a secret that could not be opened.
type Unopened struct {
	// Key is the id of the key with which the secret is sealed. Missing is true if that key is not
	// configured.
	Key     string
	Missing bool
}

// Reseal seals the secrets of at most limit subscriptions after afterID with the first key. Deleted
// subscriptions are included.
func (s *Store) Reseal(ctx context.Context, afterID uuid.UUID, limit int) (done Resealed, err error) {
	rows, err := pg.Many[sealedRow](ctx, s.pool, sealedAfter, pgx.NamedArgs{"after": afterID, "limit": limit})
	for err == nil && len(rows) > 0 {
		if last := rows[len(rows)-1].ID; done.Last == uuid.Nil {
			done.Last = last
		}
		var ids []uuid.UUID
		var olds, news [][]byte
		for _, row := range rows {
			again, current, err := s.box.Reseal(row.SecretSealed, row.ID.String())
			switch {
			case err != nil:
				done.Unopened = append(done.Unopened, Unopened{Key: seal.KeyID(row.SecretSealed), Missing: errors.Is(err, seal.ErrUnknownKey)})
			case current:
				done.Current++
			default:
				ids, olds, news = append(ids, row.ID), append(olds, row.SecretSealed), append(news, again)
			}
		}
		if len(ids) == 0 {
			return done, nil
		}
		swapped, swap := pg.Many[idRow](ctx, s.pool, swapSealed, pgx.NamedArgs{"ids": ids, "olds": olds, "news": news})
		if swap != nil {
			return done, fmt.Errorf("reseal %d secrets: %w", len(ids), swap)
		}
		done.Resealed += len(swapped)
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return slices.Contains(swapped, idRow{id}) })
		// these secrets were rotated in the meantime, possibly by a replica that seals with the old key
		rows, err = pg.Many[sealedRow](ctx, s.pool, sealedOf, pgx.NamedArgs{"ids": ids})
	}
	if err != nil {
		return done, fmt.Errorf("read sealed secrets: %w", err)
	}
	return done, nil
}

type sealedRow struct {
	ID           uuid.UUID
	SecretSealed []byte
}

type idRow struct{ ID uuid.UUID }

const sealedAfter = `
SELECT id, secret_sealed FROM subscriptions
WHERE id > @after
ORDER BY id
LIMIT @limit`

// swapSealed locks the rows in the order of their ids, like Ingest, to prevent deadlocks.
const swapSealed = `
WITH same AS (
    SELECT s.id, r.again
    FROM subscriptions s
    JOIN unnest(@ids::uuid[], @olds::bytea[], @news::bytea[]) AS r (id, old, again) ON r.id = s.id
    WHERE s.secret_sealed = r.old
    ORDER BY s.id
    FOR NO KEY UPDATE OF s
)
UPDATE subscriptions s SET secret_sealed = same.again FROM same WHERE s.id = same.id
RETURNING s.id`

const sealedOf = `SELECT id, secret_sealed FROM subscriptions WHERE id = ANY (@ids) ORDER BY id`

// Delete marks the subscription as deleted. From then on, it is not listed, it receives no events,
// and its deliveries are not sent. DeleteQueued, DeleteHistory and DeleteSubscription remove its
// rows later.
func (s *Store) Delete(ctx context.Context, workspaceID, id uuid.UUID) error {
	tag, err := s.pool.Exec(ctx, markDeleted, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return fmt.Errorf("delete subscription %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return pg.ErrNotFound
	}
	return nil
}

const markDeleted = `
UPDATE subscriptions SET deleted_at = now()
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL`

func (s *Store) sealSecret(id uuid.UUID, secret string) (sealed []byte, last4 string, err error) {
	sealed, err = s.box.Seal([]byte(secret), id.String())
	if err != nil {
		return nil, "", fmt.Errorf("seal secret of subscription %s: %w", id, err)
	}
	return sealed, secret[max(0, len(secret)-4):], nil
}
