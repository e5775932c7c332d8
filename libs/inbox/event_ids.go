package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"ringfence.dev/libs/pg"
)

// keepLateDays is how long the ids in inbox_late_events are kept. The DLQ keeps records for 30 days.
const keepLateDays = 31

// insertEventIDs stores the ids that are new and returns them. A relay can publish an event twice; both
// records then have the same id and time. The day of an event in the future is limited to tomorrow,
// because partitions exist for a few days only.
const insertEventIDs = `
WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day),
incoming AS (
	SELECT e.id, least(e.day, today.day + 1) AS day, e.day < today.day - 8 AS late
	FROM unnest(@ids::uuid[], @days::date[]) AS e (id, day), today
	WHERE NOT EXISTS (SELECT FROM inbox_late_events l WHERE l.consumer = @consumer AND l.topic = @topic AND l.event_id = e.id)
	  AND NOT EXISTS (SELECT FROM parked p WHERE p.consumer = @consumer AND p.topic = @topic AND p.event_id = e.id)
	  AND NOT EXISTS (SELECT FROM inbox i WHERE i.consumer = @consumer AND i.topic = @topic AND i.event_id = e.id)
), recent AS (
	INSERT INTO inbox_events (consumer, topic, event_id, event_day)
	SELECT @consumer, @topic, id, day FROM incoming WHERE NOT late ORDER BY id
	ON CONFLICT DO NOTHING
	RETURNING event_id
), late AS (
	INSERT INTO inbox_late_events (consumer, topic, event_id)
	SELECT @consumer, @topic, id FROM incoming WHERE late ORDER BY id
	ON CONFLICT DO NOTHING
	RETURNING event_id
)
SELECT event_id FROM recent UNION ALL SELECT event_id FROM late`

// insertOldEventIDs is for replicas of the release before positions. An id that one of them has stored
// is not returned.
const insertOldEventIDs = `
INSERT INTO inbox (consumer, topic, event_id, has_position)
SELECT @consumer, @topic, id, true FROM unnest(@ids::uuid[]) AS id GROUP BY id ORDER BY id
ON CONFLICT DO NOTHING
RETURNING event_id`

// A statement after the insert: if that waited for another transaction, this one reads what it parked.
const selectParkedKeys = `
SELECT DISTINCT key_hash FROM parked
WHERE consumer = @consumer AND topic = @topic AND key_hash = ANY(@hashes::bytea[])`

// keyHash identifies a key in the table parked.
type keyHash [sha256.Size]byte

func hashOf(key string) keyHash { return sha256.Sum256([]byte(key)) }

// begun is what the first statements of a transaction found.
type begun struct {
	fresh      map[uuid.UUID]bool
	parkedKeys map[keyHash]bool
}

// begin moves the positions of the chunks, stores the ids of their records and finds parked keys, in one
// round trip. It returns errPositionChanged if one of the positions has changed.
func (c *Consumer) begin(ctx context.Context, tx *pg.Pipeline, chunks []*chunk) (*begun, error) {
	var batch pgx.Batch
	moved := make([]pgtype.TID, len(chunks))
	var ids []uuid.UUID
	var days []time.Time
	var hashes [][]byte
	for i, ch := range chunks {
		c.queueMove(&batch, ch, &moved[i])
		for _, rec := range ch.records {
			ids, days = append(ids, rec.EventID), append(days, rec.Time)
			if rec.Key != "" { // records without a key have no order
				hash := hashOf(rec.Key)
				hashes = append(hashes, hash[:])
			}
		}
	}
	topic := chunks[0].partition.topic
	args := pg.Args{"consumer": c.name, "topic": topic, "ids": ids, "days": days, "hashes": hashes}
	fresh, alsoFresh := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	into := func(set map[uuid.UUID]bool) func(rows pgx.Rows) error {
		return func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			for _, id := range found {
				set[id] = true
			}
			return err
		}
	}
	found := &begun{fresh: fresh, parkedKeys: map[keyHash]bool{}}
	batch.Queue(insertEventIDs, args).Query(into(fresh))
	upgrading := c.upgrading.Load()
	if upgrading {
		batch.Queue(insertOldEventIDs, args).Query(into(alsoFresh))
	}
	if len(hashes) > 0 {
		batch.Queue(selectParkedKeys, args).Query(func(rows pgx.Rows) error {
			keys, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			for _, hash := range keys {
				found.parkedKeys[keyHash(hash)] = true
			}
			return err
		})
	}
	if err := tx.Ask(ctx, &batch); err != nil {
		return nil, fmt.Errorf("begin a transaction for %d records of %s: %w", len(ids), topic, err)
	}
	for i, ch := range chunks {
		if !moved[i].Valid {
			return nil, fmt.Errorf("%s is no longer at %d: %w", ch.partition, ch.before.next, errPositionChanged)
		}
		ch.moved = position{topicID: ch.before.topicID, next: ch.after, row: moved[i]}
	}
	if upgrading {
		for id := range fresh {
			if !alsoFresh[id] {
				delete(fresh, id)
			}
		}
	}
	return found, nil
}

const rotateDays = `SELECT inbox_rotate_days()`

// deleteRows is the number of rows that one statement of the retention deletes.
const deleteRows = 5000

const deleteLateEvents = `
DELETE FROM inbox_late_events WHERE (consumer, topic, event_id) IN (
	SELECT consumer, topic, event_id FROM inbox_late_events
	WHERE received_at < now() - make_interval(days => @days)
	ORDER BY received_at LIMIT @rows
	FOR UPDATE SKIP LOCKED)`

// The release before positions kept ids for 45 days. Kafka keeps records for 7 days.
const deleteOldEventIDs = `
DELETE FROM inbox WHERE (consumer, topic, event_id) IN (
	SELECT consumer, topic, event_id FROM inbox
	WHERE received_at < now() - interval '8 days'
	ORDER BY received_at LIMIT @rows
	FOR UPDATE SKIP LOCKED)`

// Retain creates the partitions of event ids for the next days, and deletes ids that are older than the
// records in Kafka. Run calls it at the start and every hour.
func (c *Consumer) Retain(ctx context.Context) error {
	if err := c.rotateDays(ctx); err != nil {
		return err
	}
	for _, statement := range []string{deleteLateEvents, deleteOldEventIDs} {
		for {
			tag, err := c.pool.Exec(ctx, statement, pgx.NamedArgs{"days": keepLateDays, "rows": deleteRows})
			if err != nil {
				return fmt.Errorf("delete event ids: %w", err)
			}
			if tag.RowsAffected() < deleteRows {
				break
			}
		}
	}
	return nil
}

func (c *Consumer) rotateDays(ctx context.Context) error {
	var dropped int
	if err := c.pool.QueryRow(ctx, rotateDays).Scan(&dropped); err != nil {
		return fmt.Errorf("rotate the partitions of event ids: %w", err)
	}
	c.metrics.droppedDays.Add(float64(dropped))
	return nil
}

// retain calls Retain about every hour, not in all replicas at the same time.
func (c *Consumer) retain(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.Retain(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("inbox retention failed", "consumer", c.name, "error", err)
		}
		pause(ctx, 30*time.Minute+rand.N(time.Hour))
	}
}

// isMissingPartition reports whether a row belongs to a partition that does not exist (yet).
func isMissingPartition(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && fault.Code == "23514" && fault.ConstraintName == ""
}
