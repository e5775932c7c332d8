package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// historyTables are the tables that lie in days (UTC).
func historyTables() []string { return []string{"events", "deliveries", "attempts"} }

// Now is the database's time: replicas whose own clocks differ must not differ about what is old.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	if err := s.pool.QueryRow(ctx, selectNow).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("ask the database for the time: %w", err)
	}
	return now, nil
}

const selectNow = `SELECT now()`

// AddDays makes the partitions of every day from the first to the last (dates in UTC) that has none. Again, or by several at once, it
// changes nothing more; added counts the partitions of this call.
func (s *Store) AddDays(ctx context.Context, first, last time.Time) (added int, err error) {
	for _, table := range historyTables() {
		for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
			var made bool
			// Each in a transaction of its own: none holds the locks of two tables.
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

// DropDays drops every partition of a day before the given date (UTC), and what the default partitions hold from before it. What is
// still queued stays, in the default partition, until a call after its end. dropped counts the partitions.
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

// Erasure is a call whose person is erased.
type Erasure struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	CallID      uuid.UUID
	// EventIDs are all events that the call may have had.
	EventIDs []uuid.UUID
}

const deliveriesOfCall = `
SELECT id FROM deliveries WHERE workspace_id = @workspace_id AND call_id = @call_id`

// In the order in which results lock, and before history as they do.
const lockQueueOf = `
SELECT delivery_id FROM delivery_queue WHERE delivery_id = ANY (@ids::uuid[]) ORDER BY delivery_id FOR UPDATE`

const markErased = `
UPDATE deliveries SET erased_at = coalesce(erased_at, now()) WHERE workspace_id = @workspace_id AND call_id = @call_id`

const eraseExcerpts = `SELECT erase_excerpts(@ids::uuid[])`

// This statement runs after markErased: it sees replays that markErased had to wait for, and no
// replay of the call begins after markErased. A body that a delivery waits for is stripped, every
// other body becomes empty.
const eraseBodies = `
SELECT erase_body(e.id, e.created_at, EXISTS (
           SELECT FROM delivery_queue q
           WHERE q.delivery_id = ANY (@ids::uuid[]) AND q.event_id = e.id AND q.created_at = e.created_at),
       @removed, @nulled)
FROM events e
WHERE e.id = ANY (@events::uuid[]) AND e.workspace_id = @workspace_id AND e.body <> ''`

// EraseCall erases the bodies of a call's events and the responses of endpoints. If a delivery still
// waits for a body, it is sent without the members that an erasure takes away. No delivery of the
// call can be replayed. An attempt that is in flight is not affected. A second erasure changes
// nothing.
func (s *Store) EraseCall(ctx context.Context, tx pgx.Tx, e Erasure) error {
	args := pgx.NamedArgs{
		"workspace_id": e.WorkspaceID, "call_id": e.CallID, "events": e.EventIDs,
		"removed": deliveries.RemovedMembers, "nulled": deliveries.NulledMembers,
	}
	found, err := pg.Many[idRow](ctx, tx, deliveriesOfCall, args)
	if err != nil {
		return fmt.Errorf("find deliveries of call %s: %w", e.CallID, err)
	}
	ids := make([]uuid.UUID, len(found))
	for i, row := range found {
		ids[i] = row.ID
	}
	args["ids"] = ids
	for _, sql := range []string{lockQueueOf, markErased, eraseExcerpts, eraseBodies} {
		if _, err := tx.Exec(ctx, sql, args); err != nil {
			return fmt.Errorf("erase deliveries of call %s: %w", e.CallID, err)
		}
	}
	return outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.ErasureReports, Key: e.ID.String(), WorkspaceID: e.WorkspaceID,
		Message: &eventv1.ErasureReport{
			ErasureId: e.ID.String(), WorkspaceId: e.WorkspaceID.String(), OccurredAt: timestamppb.Now(), Service: "webhook-dispatcher",
			Event: &eventv1.ErasureReport_StepDone{StepDone: &eventv1.StepDone{Ref: e.CallID.String()}},
		},
	})
}

const emptyBodies = `SELECT empty_bodies($1)`

// EmptyBodies forgets up to limit erased bodies that nobody waits for any more, and says how many.
func (s *Store) EmptyBodies(ctx context.Context, limit int) (emptied int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		return tx.QueryRow(ctx, emptyBodies, limit).Scan(&emptied)
	})
	if err != nil {
		return 0, fmt.Errorf("empty erased bodies: %w", err)
	}
	return emptied, nil
}

// RetentionPeriod is a workspace that wants its history kept for so many days.
type RetentionPeriod struct {
	ID       uuid.UUID
	KeepDays int
}

const selectRetentionPeriods = `SELECT id, keep_days FROM workspaces WHERE keep_days IS NOT NULL ORDER BY id`

// RetentionPeriods lists those that do not leave it to the standard.
func (s *Store) RetentionPeriods(ctx context.Context) ([]RetentionPeriod, error) {
	found, err := pg.Many[RetentionPeriod](ctx, s.pool, selectRetentionPeriods, nil)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return found, nil
}

// An event goes with the last of its deliveries. What the statement deletes it still sees.
const deleteExpired = `
WITH oldest AS (
    SELECT d.id, d.created_at FROM subscriptions s CROSS JOIN LATERAL (
        SELECT id, created_at FROM deliveries
        WHERE subscription_id = s.id AND created_at < @before AND status <> 'queued'
        ORDER BY created_at DESC, id DESC LIMIT @limit) d
    WHERE s.workspace_id = @workspace_id
    LIMIT @limit
), gone AS (
    DELETE FROM deliveries d USING oldest o WHERE d.id = o.id AND d.created_at = o.created_at RETURNING d.id, d.created_at, d.event_id
), tries AS (
    DELETE FROM attempts a USING gone WHERE a.delivery_id = gone.id
), bodies AS (
    DELETE FROM events e USING (SELECT DISTINCT event_id, created_at FROM gone) g
    WHERE e.id = g.event_id AND e.created_at = g.created_at AND NOT EXISTS (
        SELECT FROM deliveries o WHERE o.call_id = e.call_id AND o.event_id = e.id AND o.id NOT IN (SELECT id FROM gone))
)
SELECT count(*) FROM gone`

// DeleteExpired erases up to limit ended deliveries of the workspace's events from before the time, with attempts and bodies, and says how many.
func (s *Store) DeleteExpired(ctx context.Context, workspaceID uuid.UUID, before time.Time, limit int) (gone int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, useIndexes); err != nil {
			return err
		}
		return tx.QueryRow(ctx, deleteExpired, pgx.NamedArgs{"workspace_id": workspaceID, "before": before, "limit": limit}).Scan(&gone)
	})
	if err != nil {
		return 0, fmt.Errorf("forget history of workspace %s: %w", workspaceID, err)
	}
	return gone, nil
}
