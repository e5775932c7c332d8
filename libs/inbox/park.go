package inbox

import (
	"context"
	"crypto/sha256"
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

// The headers that a parked record has besides its own.
const (
	headerDLQTopic     = "dlq_topic"
	headerDLQPartition = "dlq_partition"
	headerDLQOffset    = "dlq_offset"
	headerDLQEventID   = "dlq_event_id"
	headerDLQError     = "dlq_error"
	// headerDLQCut says that the record was too large to be carried whole: it is to be fetched from its topic and offset.
	headerDLQCut = "dlq_cut"
)

const (
	maxErrorBytes  = 2000
	maxKeyBytes    = 4 << 10
	maxHeaderBytes = 20 << 10
)

var errKeyParked = errors.New("an earlier record of this key is parked")

const insertParked = `
INSERT INTO parked (consumer, topic, event_id, key, error)
VALUES (@consumer, @topic, @event_id, @key, @error)`

// park keeps a record for later in the same transaction as its inbox row: on the list of what is parked, and on its way to
// the DLQ through our own outbox.
func (c *Consumer) park(ctx context.Context, tx pgx.Tx, d delivery) error {
	_, err := tx.Exec(ctx, insertParked, pgx.NamedArgs{
		"consumer": c.name, "topic": d.Topic, "event_id": d.EventID, "key": []byte(d.Key), "error": brief(d.fault),
	})
	if err != nil {
		return fmt.Errorf("park event %s: %w", d.EventID, err)
	}
	if err := outbox.Put(ctx, tx, c.deadLetter(d)); err != nil {
		return fmt.Errorf("park event %s: %w", d.EventID, err)
	}
	return nil
}

// deadLetter is the record as it was, with where it came from and why it is here. What is larger than an outbox row may be
// is left out, for a poison record must never be one that cannot even be parked.
func (c *Consumer) deadLetter(d delivery) outbox.Event {
	headers, key, value := maps.Clone(d.Headers), d.Key, d.Value
	var cut []string
	if len(value) > outbox.MaxPayload {
		value, cut = nil, append(cut, "value")
	}
	if len(key) > maxKeyBytes {
		hash := sha256.Sum256([]byte(key))
		key, cut = hex.EncodeToString(hash[:]), append(cut, "key")
	}
	if text, err := json.Marshal(headers); err != nil || len(text) > maxHeaderBytes {
		headers, cut = map[string]string{}, append(cut, "headers")
	}
	if len(cut) > 0 {
		headers[headerDLQCut] = strings.Join(cut, ",")
	}
	headers[headerDLQTopic] = d.Topic
	headers[headerDLQPartition] = strconv.Itoa(int(d.Partition))
	headers[headerDLQOffset] = strconv.FormatInt(d.Offset, 10)
	headers[headerDLQEventID] = d.EventID.String()
	headers[headerDLQError] = brief(d.fault)
	return outbox.Event{ID: d.EventID, TopicName: c.dlq(d.Topic), Key: key, Raw: value, RawHeaders: headers}
}

// revive is the opposite of deadLetter: the record as its topic had it.
func revive(letter kafka.Record) (kafka.Record, error) {
	rec, headers := letter, letter.Headers
	if cut := headers[headerDLQCut]; cut != "" {
		return rec, fmt.Errorf("its %s was too large for the DLQ: it stands in %s, partition %s, offset %s",
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

func (c *Consumer) tellParked(d delivery) {
	reason := errKeyParked
	if d.fault != nil {
		reason = d.fault
	}
	slog.Error("consumer parked a record and its key", "consumer", c.name, "topic", d.Topic, "partition", d.Partition,
		"offset", d.Offset, "event_id", d.EventID, "event_type", d.Type, "dlq", c.dlq(d.Topic), "err", reason)
}

// brief is an error as a row and a header can hold it.
func brief(err error) string {
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, text)
}
