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

// lateIDDays is the number of days for which the ids in inbox_late_events are kept. It is longer
// than the 30 days for which a record in the DLQ can be replayed.
const lateIDDays = 31

// insertIDs and insertIDsOfAnyDay store the ids that are new, and return them. They differ in how
// they find ids that are already stored.
//
// insertIDs searches only the day of the event's time. This is enough for ids of the outbox (UUID
// version 7), because the outbox never changes the id or the time of an event.
//
// insertIDsOfAnyDay searches all days, which is slower. It is for ids of other producers, which can
// publish an event again with another time.
//
// If the day has no partition, the id is stored in inbox_late_events.
const (
	insertIDs         = selectNewIDs + insertNewIDs
	insertIDsOfAnyDay = selectNewIDs + `
	  AND (
		SELECT true FROM inbox_events i WHERE i.consumer = @consumer AND i.topic = @topic AND i.event_id = e.id LIMIT 1
	  ) IS NULL` +
		insertNewIDs

	selectNewIDs = `
WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day),
incoming AS (
	SELECT e.id, e.day, e.day NOT BETWEEN today.day - 8 AND today.day + 1 AS late
	FROM unnest(@ids::uuid[], @days::date[]) AS e (id, day), today
	WHERE NOT EXISTS (SELECT FROM inbox_late_events l WHERE l.consumer = @consumer AND l.topic = @topic AND
		l.event_id = e.id)
	  AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.consumer = @consumer AND d.topic = @topic AND d.event_id = e.id)`

	insertNewIDs = `
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
)

// mayBeOfAnotherDay reports whether the id must be stored with insertIDsOfAnyDay. It returns true
// if the id can already be stored under another day, or if it will soon be too old for
// inbox_events.
func (rec *incoming) mayBeOfAnotherDay() bool {
	return rec.EventID.Version() != 7 || time.Since(rec.Time) > 7*24*time.Hour
}

// selectParkedKeys runs after the insert of the ids. The insert can wait until another transaction
// commits. The query then also returns the keys that the other transaction parked.
const selectParkedKeys = `
SELECT DISTINCT key_hash FROM dead_letters
WHERE consumer = @consumer AND topic = @topic AND key_hash = ANY(@hashes::bytea[])`

// keyHash is the hash of a record's key, as stored in dead_letters.
type keyHash [sha256.Size]byte

func hashOf(key string) keyHash { return sha256.Sum256([]byte(key)) }

// lookup is the result of the first statements of a transaction: the ids of new events, and the
// keys that have parked records.
type lookup struct {
	fresh      map[uuid.UUID]bool
	parkedKeys map[keyHash]bool
}

// beginChunks moves the positions of the chunks, stores the ids of their records and finds the
// parked keys, in one round trip. It returns errPositionChanged if a stored position has changed.
func (c *Consumer) beginChunks(ctx context.Context, tx *pg.Pipeline, chunks []*chunk) (*lookup, error) {
	var batch pgx.Batch
	moved := make([]pgtype.TID, len(chunks))
	var ids []uuid.UUID
	var days []time.Time
	var hashes [][]byte
	anyDay := false
	for i, ch := range chunks {
		c.queueMove(&batch, ch, &moved[i])
		for _, rec := range ch.records {
			ids, days = append(ids, rec.EventID), append(days, rec.Time)
			anyDay = anyDay || rec.mayBeOfAnotherDay()
			if rec.Key != "" { // records without a key have no order
				hash := hashOf(rec.Key)
				hashes = append(hashes, hash[:])
			}
		}
	}
	topic := chunks[0].partition.topic
	args := pg.Args{"consumer": c.name, "topic": topic, "ids": ids, "days": days, "hashes": hashes}
	found := &lookup{fresh: map[uuid.UUID]bool{}, parkedKeys: map[keyHash]bool{}}
	insert := insertIDs
	if anyDay {
		insert = insertIDsOfAnyDay
	}
	batch.Queue(insert, args).Query(func(rows pgx.Rows) error {
		newIDs, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		for _, id := range newIDs {
			found.fresh[id] = true
		}
		return err
	})
	if len(hashes) > 0 {
		batch.Queue(selectParkedKeys, args).Query(func(rows pgx.Rows) error {
			keys, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			for _, hash := range keys {
				found.parkedKeys[keyHash(hash)] = true
			}
			return err
		})
	}
	if err := tx.RunBatch(ctx, &batch); err != nil {
		return nil, fmt.Errorf("begin a transaction for %d records of %s: %w", len(ids), topic, err)
	}
	for i, ch := range chunks {
		if !moved[i].Valid {
			return nil, fmt.Errorf("%s is no longer at %d: %w", ch.partition, ch.startPosition.nextOffset, errPositionChanged)
		}
		ch.newPosition = position{topicID: ch.startPosition.topicID, nextOffset: ch.endOffset, ctid: moved[i]}
	}
	return found, nil
}

const (
	createDays = `SELECT inbox_create_days()`
	dropDays   = `SELECT inbox_drop_days()`
)

const deleteRows = 5000

const deleteLateEvents = `
DELETE FROM inbox_late_events WHERE (consumer, topic, event_id) IN (
	SELECT consumer, topic, event_id FROM inbox_late_events
	WHERE received_at < now() - make_interval(days => @days)
	ORDER BY received_at LIMIT @rows
	FOR UPDATE SKIP LOCKED)`

// Retain creates the partitions of event ids for the next days, and deletes ids that are older than
// the records in Kafka. Run calls it at the start and once an hour.
func (c *Consumer) Retain(ctx context.Context) error {
	if err := c.createDays(ctx); err != nil {
		return err
	}
	var dropped int
	if err := c.pool.QueryRow(ctx, dropDays).Scan(&dropped); err != nil {
		return fmt.Errorf("drop old partitions of event ids: %w", err)
	}
	c.metrics.droppedDays.Add(float64(dropped))
	for {
		tag, err := c.pool.Exec(ctx, deleteLateEvents, pgx.NamedArgs{"days": lateIDDays, "rows": deleteRows})
		if err != nil {
			return fmt.Errorf("delete event ids: %w", err)
		}
		if tag.RowsAffected() < deleteRows {
			return nil
		}
	}
}

func (c *Consumer) createDays(ctx context.Context) error {
	if _, err := c.pool.Exec(ctx, createDays); err != nil {
		return fmt.Errorf("create partitions of event ids: %w", err)
	}
	return nil
}

// retain calls Retain about once an hour, at a different time in each replica.
func (c *Consumer) retain(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.Retain(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("retention of inbox event ids failed", "consumer", c.name, "error", err)
		}
		pause(ctx, 30*time.Minute+rand.N(time.Hour))
	}
}

// isMissingPartition reports whether the error means that no partition accepts the row.
func isMissingPartition(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && fault.Code == "23514" && fault.ConstraintName == ""
}
