// Package outbox publishes events. An event is a row that is written in the transaction that changes
// state. The relay publishes the rows to Kafka and deletes those that Kafka acknowledged. Writers lock the
// row of their aggregate before they write its event: that keeps the events of a key in order.
package outbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations is the outbox's own track: pass it to pg.Open and pgtest.New.
var Migrations = pg.Migrations{Name: "outbox", FS: sub(files)}

// sub cannot fail: the folder is embedded.
func sub(files embed.FS) fs.FS {
	dir, _ := fs.Sub(files, "migrations")
	return dir
}

// MaxPayload bounds a record's value in bytes; a larger one fails the transaction that wrote it.
const MaxPayload = 900 << 10

// Event is one fact to publish.
type Event struct {
	// ID is the event's identity for every reader's inbox; uuid.Nil: a new UUIDv7.
	ID    uuid.UUID
	Topic kafka.Topic
	// Key is the aggregate whose order matters.
	Key         string
	WorkspaceID uuid.UUID
	// Message becomes the value; its full name becomes ce_type.
	Message proto.Message
	// Time is the time of the event. If it is zero, the database's clock is used. An event that is written
	// again with the same ID needs the same time, because inboxes find an id by the day of its event.
	Time time.Time
	// Raw, with RawHeaders, is for records copied as they are (the DLQ); Message is nil then.
	Raw        []byte
	RawHeaders map[string]string
	// TopicName overrides Topic (a DLQ's name).
	TopicName string
}

// Put writes events in the caller's transaction, in order, in one round trip. The span of ctx rides along as traceparent.
func Put(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	var batch pgx.Batch
	if err := Queue(ctx, &batch, events...); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("put %d events into the outbox: %w", len(events), err)
	}
	return nil
}

// Source and time are the database's: it knows the schema, and its clock orders what one schema says.
const insertFact = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload)`

const insertCopy = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb, @payload)`

// The same for an event that is to be only under a condition.
const insertFactIf = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
SELECT @event_id::uuid, @topic::text, @key::bytea, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload::bytea
WHERE `

// ErrTooLarge is returned for an event with more than MaxPayload bytes. It is permanent: the same
// event can never be published. libs/inbox parks the record whose handler returns it.
var ErrTooLarge = errors.New("event too large")

// Queue adds the same inserts to a batch that the caller sends itself.
func Queue(ctx context.Context, batch *pgx.Batch, events ...Event) error {
	for _, event := range events {
		if err := queue(ctx, batch, insertFact, pg.Args{}, event); err != nil {
			return err
		}
	}
	return nil
}

// QueueIf adds the insert of a fact that is put only where condition, SQL of the caller's with the named arguments args, holds. It is
// for a batch that is a transaction by itself: nobody can look at the earlier results before it commits.
func QueueIf(ctx context.Context, batch *pgx.Batch, condition string, args pg.Args, fact Event) error {
	return queue(ctx, batch, insertFactIf+condition, maps.Clone(args), fact)
}

func queue(ctx context.Context, batch *pgx.Batch, statement string, args pg.Args, event Event) error {
	topic := event.TopicName
	if topic == "" {
		topic = event.Topic.Name
	}
	if event.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make event id: %w", err)
		}
		event.ID = id
	}
	payload, headers := event.Raw, clean(event.RawHeaders)
	if event.Message == nil {
		statement = insertCopy
	} else {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(event.Message)
		if err != nil {
			return fmt.Errorf("encode event %s for %s: %w", event.ID, topic, err)
		}
		if value == nil {
			value = []byte{} // an empty message is a value; nil would be a tombstone
		}
		payload, headers = value, event.headers(ctx)
	}
	if len(payload) > MaxPayload {
		return fmt.Errorf("event %s for %s has %d bytes and at most %d can be published: %w", event.ID, topic, len(payload),
			MaxPayload, ErrTooLarge)
	}
	args["event_id"], args["topic"], args["key"] = event.ID, topic, []byte(event.Key)
	args["headers"], args["payload"] = headers, payload
	args["time"] = (*time.Time)(nil)
	if !event.Time.IsZero() {
		args["time"] = &event.Time
	}
	batch.Queue(statement, args)
	return nil
}

// headers are those of a fact of ours, all but source and time.
func (e Event) headers(ctx context.Context) map[string]string {
	headers := map[string]string{
		kafka.HeaderSpecVersion: "1.0",
		kafka.HeaderID:          e.ID.String(),
		kafka.HeaderType:        string(e.Message.ProtoReflect().Descriptor().FullName()),
		kafka.HeaderSubject:     e.Key,
		kafka.HeaderKey:         e.Key,
		kafka.HeaderContentType: "application/protobuf",
	}
	if e.WorkspaceID != uuid.Nil {
		headers[kafka.HeaderWorkspaceID] = e.WorkspaceID.String()
	}
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(headers))
	return headers
}

// clean makes foreign headers storable: jsonb takes neither NUL nor broken UTF-8, and a poison record must not become a
// statement that fails for ever.
func clean(headers map[string]string) map[string]string {
	cleaned := make(map[string]string, len(headers))
	for name, value := range headers {
		cleaned[cleanText(name)] = cleanText(value)
	}
	return cleaned
}

func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
