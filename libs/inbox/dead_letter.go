package inbox

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
)

// Headers that a dead letter has in addition to those of the original record.
const (
	headerDLQTopic     = "dlq_topic"
	headerDLQPartition = "dlq_partition"
	headerDLQOffset    = "dlq_offset"
	headerDLQEventID   = "dlq_event_id"
	headerDLQError     = "dlq_error"
	// headerDLQCut lists the parts of the record that are missing in the dead letter because they were
	// too large. Only the original record contains them.
	headerDLQCut = "dlq_cut"
)

const (
	maxErrorBytes  = 2000
	maxKeyBytes    = 4 << 10
	maxHeaderBytes = 20 << 10
)

var errKeyParked = errors.New("an earlier record of this key is parked")

const insertDeadLetter = `
INSERT INTO dead_letters (consumer, topic, event_id, key, error)
VALUES (@consumer, @topic, @event_id, @key, @error)`

// parkRecords stores the records in the table dead_letters and writes them to the outbox. The relay
// publishes them to the DLQ.
func (c *Consumer) parkRecords(ctx context.Context, tx pgx.Tx, records []*incoming) error {
	if len(records) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, rec := range records {
		batch.Queue(insertDeadLetter, pgx.NamedArgs{
			"consumer": c.name, "topic": rec.Topic, "event_id": rec.EventID, "key": []byte(rec.Key),
			"error": shortText(rec.resultReason),
		})
		if err := outbox.Queue(ctx, &batch, c.deadLetter(rec)); err != nil {
			return fmt.Errorf("park event %s: %w", rec.EventID, err)
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("park %d records of %s: %w", len(records), records[0].Topic, err)
	}
	return nil
}

// deadLetter returns the dead letter of a record: the unchanged record, its origin and the reason.
// Parts that do not fit into a row of the outbox are omitted, so that every record can be parked.
func (c *Consumer) deadLetter(rec *incoming) outbox.Event {
	headers, key, value := maps.Clone(rec.Headers), rec.Key, rec.Value
	if headers == nil {
		headers = map[string]string{}
	}
	var cut []string
	if len(value) > outbox.MaxPayload {
		value, cut = nil, append(cut, "value")
	}
	if len(key) > maxKeyBytes {
		hash := hashOf(key)
		key, cut = hex.EncodeToString(hash[:]), append(cut, "key")
	}
	if text, err := json.Marshal(headers); err != nil || len(text) > maxHeaderBytes {
		headers, cut = map[string]string{}, append(cut, "headers")
	}
	if len(cut) > 0 {
		headers[headerDLQCut] = strings.Join(cut, ",")
	}
	headers[headerDLQTopic] = rec.Topic
	headers[headerDLQPartition] = strconv.Itoa(int(rec.Partition))
	headers[headerDLQOffset] = strconv.FormatInt(rec.Offset, 10)
	headers[headerDLQEventID] = rec.EventID.String()
	headers[headerDLQError] = shortText(rec.resultReason)
	return outbox.Event{ID: rec.EventID, TopicName: c.dlqName(rec.Topic), Key: key, Raw: value, RawHeaders: headers}
}

// originalRecord returns the original record of a dead letter.
func originalRecord(letter kafka.Record) (kafka.Record, error) {
	rec, headers := letter, letter.Headers
	if cut := headers[headerDLQCut]; cut != "" {
		return rec, fmt.Errorf("the %s of the record was too large for the DLQ: read it from %s, partition %s, offset %s",
			cut, headers[headerDLQTopic], headers[headerDLQPartition], headers[headerDLQOffset])
	}
	number, err := strconv.ParseInt(headers[headerDLQPartition], 10, 32)
	if err != nil {
		return rec, fmt.Errorf("read header %s: %w", headerDLQPartition, err)
	}
	offset, err := strconv.ParseInt(headers[headerDLQOffset], 10, 64)
	if err != nil {
		return rec, fmt.Errorf("read header %s: %w", headerDLQOffset, err)
	}
	rec.Topic, rec.Partition, rec.Offset = headers[headerDLQTopic], int32(number), offset
	rec.Headers = maps.Clone(headers)
	maps.DeleteFunc(rec.Headers, func(name, _ string) bool { return strings.HasPrefix(name, "dlq_") })
	return rec, nil
}

func (c *Consumer) logParked(rec *incoming) {
	slog.Error("record parked; later records with the same key are parked too",
		"consumer", c.name, "topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset,
		"event_id", rec.EventID, "event_type", rec.Type, "dlq", c.dlqName(rec.Topic), "error", rec.resultReason)
}

// shortText returns the text of an error in a form that rows and headers can contain: shortened,
// and without invalid characters.
func shortText(err error) string {
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, text)
}
