package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"ringfence.dev/libs/pg"
)

type position struct {
	// topicID is Kafka's id of the topic. A topic that is deleted and created again gets a new id.
	topicID uuid.UUID
	// nextOffset is the offset of the next record that must be applied.
	nextOffset int64
	// ctid is the physical location of the row. An UPDATE by ctid does not read old versions of the
	// row, which vacuum cannot remove while another transaction has an old snapshot.
	ctid pgtype.TID
}

// errPositionChanged means that the stored position is not the position from which the records were
// read. Either another process has applied the records, or the database was restored.
var errPositionChanged = errors.New("the stored position of the partition has changed")

const movePosition = `
UPDATE inbox_positions SET next_offset = @after
WHERE ctid = @row AND consumer = @consumer AND topic = @topic AND partition = @partition
	AND topic_id = @topic_id AND next_offset = @before
RETURNING ctid`

// queueMove adds the update of a chunk's position to the batch. Sending the batch sets newCTID
// to the ctid of the updated row. If another process changed the position, newCTID stays invalid.
func (c *Consumer) queueMove(batch *pgx.Batch, ch *chunk, newCTID *pgtype.TID) {
	args := c.positionArgs(ch.partition, ch.startPosition.topicID)
	args["row"], args["before"], args["after"] = ch.startPosition.ctid, ch.startPosition.nextOffset, ch.endOffset
	batch.Queue(movePosition, args).Query(func(rows pgx.Rows) error {
		places, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		if err == nil && len(places) == 1 {
			*newCTID = places[0]
		}
		return err
	})
}

// assignedPartition is a partition that was just assigned to this process, with the committed
// offset of the group.
type assignedPartition struct {
	partition
	topicID uuid.UUID
	// committed is the offset that the group has committed, or a negative number if there is none.
	committed int64
}

const insertPosition = `
INSERT INTO inbox_positions (consumer, topic, partition, topic_id, next_offset)
VALUES (@consumer, @topic, @partition, @topic_id, 0)
ON CONFLICT DO NOTHING`

const adoptTopic = `
UPDATE inbox_positions SET topic_id = @topic_id, next_offset = 0
WHERE consumer = @consumer AND topic = @topic AND partition = @partition AND topic_id <> @topic_id
RETURNING next_offset`

const selectPosition = `
SELECT topic_id, next_offset, ctid FROM inbox_positions
WHERE consumer = @consumer AND topic = @topic AND partition = @partition`

// startPositions returns the positions from which partitions are read. If no position is stored, or
// if the topic was deleted and created again, the partition is read from its start. The group's
// committed offset is not used, because it can be ahead of the tables.
func (c *Consumer) startPositions(ctx context.Context, added []assignedPartition) (map[partition]position, error) {
	// All processes insert the rows in the same order, so that they do not deadlock.
	slices.SortFunc(added, func(a, b assignedPartition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
	})
	found := make([]started, len(added))
	var batch pgx.Batch
	for i, a := range added {
		args := c.positionArgs(a.partition, a.topicID)
		batch.Queue(insertPosition, args)
		batch.Queue(adoptTopic, args).Query(readAny(&found[i].recreated))
		batch.Queue(selectPosition, args).QueryRow(found[i].scan)
	}
	if err := c.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read positions of %d partitions: %w", len(added), err)
	}
	positions := map[partition]position{}
	for i, a := range added {
		positions[a.partition] = found[i].position
		c.reportStart(a, found[i])
	}
	return positions, nil
}

type started struct {
	position
	// recreated is true if the stored position has another topic id, which means that the topic was
	// created again.
	recreated bool
}

// reportStart logs and counts that a partition is read from a position before the group's committed
// offset.
func (c *Consumer) reportStart(a assignedPartition, s started) {
	switch {
	case s.recreated:
		c.reportMovedBack(a.partition, topicRecreated, max(a.committed, 0), 0)
	case s.nextOffset < a.committed:
		c.reportMovedBack(a.partition, databaseRestored, a.committed, s.nextOffset)
	}
}

var errTopicRecreated = errors.New("the stored position belongs to another topic id")

// reloadPosition returns the stored position of a partition that this process reads. previous is
// the position that the process used before. If no position is stored, the database was restored to
// an earlier time. The partition is then read from its start.
func (c *Consumer) reloadPosition(ctx context.Context, of partition, previous position) (p position, err error) {
	args := c.positionArgs(of, previous.topicID)
	var batch pgx.Batch
	batch.Queue(insertPosition, args)
	batch.Queue(selectPosition, args).QueryRow(p.scan)
	if err := c.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return p, fmt.Errorf("read position of %s: %w", of, err)
	}
	switch {
	case p.topicID != previous.topicID:
		return p, fmt.Errorf("topic %s: stored id %s, id of this process %s: %w",
			of.topic, p.topicID, previous.topicID, errTopicRecreated)
	case p.nextOffset < previous.nextOffset:
		c.reportMovedBack(of, databaseRestored, previous.nextOffset, p.nextOffset)
	case p.nextOffset > previous.nextOffset:
		slog.InfoContext(ctx, "another process has moved the inbox position", "consumer", c.name,
			"topic", of.topic, "partition", of.number, "previous_position", previous.nextOffset,
			"position", p.nextOffset)
	}
	return p, nil
}

const selectPositions = `
SELECT topic, partition, topic_id, next_offset, ctid FROM inbox_positions
WHERE consumer = @consumer`

func (c *Consumer) storedPositions(ctx context.Context) (map[partition]position, error) {
	ctx, cancel := context.WithTimeout(ctx, positionInterval)
	defer cancel()
	rows, err := c.pool.Query(ctx, selectPositions, pg.Args{"consumer": c.name})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	found, of, p := map[partition]position{}, partition{}, position{}
	_, err = pgx.ForEachRow(rows, []any{&of.topic, &of.number, &p.topicID, &p.nextOffset, &p.ctid}, func() error {
		found[of] = p
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

func (c *Consumer) positionArgs(of partition, topicID uuid.UUID) pg.Args {
	return pg.Args{"consumer": c.name, "topic": of.topic, "partition": of.number, "topic_id": topicID}
}

func (p *position) scan(row pgx.Row) error { return row.Scan(&p.topicID, &p.nextOffset, &p.ctid) }

// readAny returns a function that sets found to true if the statement returned a row.
func readAny(found *bool) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*found = rows.Next()
		rows.Close()
		return rows.Err()
	}
}

// reportMovedBack logs and counts that a partition is read again from an earlier offset.
func (c *Consumer) reportMovedBack(p partition, cause string, was, is int64) {
	c.metrics.movedBack.WithLabelValues(p.topic, cause).Inc()
	slog.Error("inbox position moved back, records are read again",
		"consumer", c.name, "topic", p.topic, "partition", p.number, "cause", cause,
		"previous_position", was, "position", is)
}

// reportExpired logs and counts the records that Kafka deleted before they were applied: those from
// the offset next up to, but not including, the offset logStart.
func (c *Consumer) reportExpired(p partition, next, logStart int64) {
	c.metrics.expired.WithLabelValues(p.topic).Add(float64(logStart - next))
	slog.Error("records were deleted before they were applied", "consumer", c.name, "topic", p.topic,
		"partition", p.number, "position", next, "log_start", logStart)
}
