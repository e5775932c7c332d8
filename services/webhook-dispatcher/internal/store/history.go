package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// historyTables returns the tables that have a partition for each day (UTC).
func historyTables() []string { return []string{"events", "deliveries", "attempts", "stream_events"} }

// Now returns the time of the database. All replicas use it, so that they delete the same rows even
// if their clocks differ.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	if err := s.pool.QueryRow(ctx, selectNow).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the time of the database: %w", err)
	}
	return now, nil
}

const selectNow = `SELECT now()`

// AddDays creates the missing partitions of the days from first to last (UTC), and returns the
// number of created partitions. Concurrent calls create each partition once.
func (s *Store) AddDays(ctx context.Context, first, last time.Time) (added int, err error) {
	for _, table := range historyTables() {
		for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
			var made bool
			// Each partition has its own transaction, so that no transaction locks two tables.
			if err := s.pool.QueryRow(ctx, addDay, pgx.NamedArgs{"table": table, "day": day}).Scan(&made); err != nil {
				return added, fmt.Errorf("add %s to %s: %w", day.Format(time.DateOnly), table, err)
			}
			if made {
				added++
			}
		}
	}
	return added, nil
}

const addDay = `SELECT add_day(@table, @day::date)`

// DropDays drops the partitions of the days before the given date (UTC), and deletes older rows
// from the default partitions. It moves the rows of queued deliveries to the default partition.
// dropped is the number of partitions that were dropped or replaced.
func (s *Store) DropDays(ctx context.Context, before time.Time) (dropped int, err error) {
	for _, table := range historyTables() {
		args := pgx.NamedArgs{"table": table, "before": before}
		for {
			var day *time.Time
			if err := s.pool.QueryRow(ctx, dropDay, args).Scan(&day); err != nil {
				return dropped, fmt.Errorf("drop days of %s before %s: %w", table, before.Format(time.DateOnly), err)
			}
			if day == nil {
				break
			}
			dropped++
		}
		var renewed bool
		if err := s.pool.QueryRow(ctx, pruneDefault, args).Scan(&renewed); err != nil {
			return dropped, fmt.Errorf("prune default partition of %s before %s: %w", table, before.Format(time.DateOnly), err)
		}
		if renewed {
			dropped++
		}
	}
	return dropped, nil
}

const (
	dropDay      = `SELECT drop_day(@table, @before::date)`
	pruneDefault = `SELECT prune_default(@table, @before::date)`
)

// RetentionPeriod is the retention period of a workspace in days.
type RetentionPeriod struct {
	ID       uuid.UUID
	KeepDays int
}

const selectRetentionPeriods = `SELECT id, keep_days FROM workspaces WHERE keep_days IS NOT NULL ORDER BY id`

// RetentionPeriods returns the retention periods of the workspaces that do not use WEBHOOK_KEEP.
func (s *Store) RetentionPeriods(ctx context.Context) ([]RetentionPeriod, error) {
	found, err := pg.Many[RetentionPeriod](ctx, s.pool, selectRetentionPeriods, nil)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return found, nil
}

// deleteExpired deletes an event together with its last delivery. Rows that this statement deletes
// are still visible within the statement.
const deleteExpired = `
WITH oldest AS (
    SELECT d.id, d.created_at FROM subscriptions s CROSS JOIN LATERAL (
        SELECT id, created_at FROM deliveries
        WHERE subscription_id = s.id AND created_at < @before AND status <> 'queued'
        ORDER BY created_at DESC, id DESC LIMIT @limit) d
    WHERE s.workspace_id = @workspace_id
    LIMIT @limit
), deleted AS (
    DELETE FROM deliveries d USING oldest o WHERE d.id = o.id AND d.created_at = o.created_at RETURNING d.id, d.created_at, d.event_id
), tries AS (
    DELETE FROM attempts a USING deleted WHERE a.delivery_id = deleted.id
), bodies AS (
    DELETE FROM events e USING (SELECT DISTINCT event_id, created_at FROM deleted) g
    WHERE e.id = g.event_id AND e.created_at = g.created_at AND NOT EXISTS (
        SELECT FROM deliveries o WHERE o.call_id = e.call_id AND o.event_id = e.id AND o.id NOT IN (SELECT id FROM deleted))
)
SELECT count(*) FROM deleted`

// DeleteExpired deletes at most limit ended deliveries of the workspace whose events are older than
// the given time, with their attempts and bodies. It returns the number of deliveries.
func (s *Store) DeleteExpired(ctx context.Context, workspaceID uuid.UUID, before time.Time, limit int) (deleted int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		return tx.QueryRow(ctx, deleteExpired, pgx.NamedArgs{"workspace_id": workspaceID, "before": before, "limit": limit}).Scan(&deleted)
	})
	if err != nil {
		return 0, fmt.Errorf("delete expired history of workspace %s: %w", workspaceID, err)
	}
	return deleted, nil
}

// deleteExpiredStream deletes the body of an event only if the event has no delivery. Otherwise
// DeleteExpired deletes the body together with the last delivery.
const deleteExpiredStream = `
WITH oldest AS MATERIALIZED (
    SELECT position, ingested_at FROM stream_events
    WHERE workspace_id = @workspace_id AND ingested_at < @before
    ORDER BY position LIMIT @limit
), deleted AS (
    DELETE FROM stream_events s USING oldest o
    WHERE s.workspace_id = @workspace_id AND s.position = o.position AND s.ingested_at = o.ingested_at
    RETURNING s.event_id, s.event_created_at
), bodies AS (
    DELETE FROM events e USING deleted d
    WHERE e.id = d.event_id AND e.created_at = d.event_created_at
      AND NOT EXISTS (SELECT FROM deliveries o WHERE o.call_id = e.call_id AND o.event_id = e.id)
)
SELECT count(*) FROM deleted`

// DeleteExpiredStream deletes at most limit events from the stream of the workspace that were
// stored before the given time. It also deletes their bodies if they have no delivery. It returns
// the number of events.
func (s *Store) DeleteExpiredStream(
	ctx context.Context,
	workspaceID uuid.UUID,
	before time.Time,
	limit int,
) (deleted int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		args := pgx.NamedArgs{"workspace_id": workspaceID, "before": before, "limit": limit}
		return tx.QueryRow(ctx, deleteExpiredStream, args).Scan(&deleted)
	})
	if err != nil {
		return 0, fmt.Errorf("delete expired stream of workspace %s: %w", workspaceID, err)
	}
	return deleted, nil
}
