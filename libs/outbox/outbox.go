// Package outbox publishes events. An event is written as a row, in the transaction that changes
// the state. The relay publishes the rows to Kafka and deletes those that Kafka acknowledged. A
// writer locks the row of the aggregate before it writes an event, so that the events of a key stay
// in order.
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

// Migrations contains the migrations of the outbox's tables, for pg.Open and pgtest.New.
var Migrations = pg.Migrations{Name: "outbox", FS: migrationFiles(files)}

// migrationFiles returns the folder with the migrations. It cannot fail, because the folder is
// embedded.
func migrationFiles(files embed.FS) fs.FS {
	dir, _ := fs.Sub(files, "migrations")
	return dir
}

// MaxPayload is the maximum size of a value in bytes. If a value is larger, the transaction that
// writes the event fails.
const MaxPayload = 900 << 10

// Event is an event to publish.
type Event struct {
	// ID identifies the event in inboxes. If it is uuid.Nil, the event gets a new UUID of version 7.
	ID    uuid.UUID
	Topic kafka.Topic
	// Key is the key of the Kafka record. Events with the same key stay in order.
	Key         string
	WorkspaceID uuid.UUID
	// Message is the value of the record. Its full name becomes the header ce_type.
	Message proto.Message
	// Time is the time of the event. If it is zero, the time of the database is used. An event that is
	// written again with the same ID needs the same Time, because inboxes search for the ID by the day
	// of the event.
	Time time.Time
	// Raw and RawHeaders are used for records that are copied unchanged to a DLQ. Then Message is nil.
	Raw        []byte
	RawHeaders map[string]string
	// TopicName replaces Topic. It is used for DLQs, and is empty for other topics.
	TopicName string
}

// Put writes events in tx, in the given order and in one round trip. The header traceparent
// contains the trace of ctx.
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

// The database sets the source of an event, the name of the schema. Unless the event has a time,
// the database also sets the time, so that all events of a schema use the same clock.
const insertEvent = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload)`

const insertCopy = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb, @payload)`

// insertEventIf inserts the event only if the given SQL condition is true.
const insertEventIf = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
SELECT @event_id::uuid, @topic::text, @key::bytea, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload::bytea
WHERE `

// ErrTooLarge is returned for an event of more than MaxPayload bytes. The error is permanent. If a
// handler returns it, libs/inbox parks the record.
var ErrTooLarge = errors.New("event too large")

// Queue adds the inserts of Put to a batch. The caller sends the batch.
func Queue(ctx context.Context, batch *pgx.Batch, events ...Event) error {
	for _, event := range events {
		if err := queue(ctx, batch, insertEvent, pg.Args{}, event); err != nil {
			return err
		}
	}
	return nil
}

// QueueIf adds the insert of an event to a batch. The event is written only if condition is true.
// condition is an SQL expression with the named arguments args. Use QueueIf if the batch is the
// whole transaction, because the caller then cannot read earlier results.
func QueueIf(ctx context.Context, batch *pgx.Batch, condition string, args pg.Args, event Event) error {
	return queue(ctx, batch, insertEventIf+condition, maps.Clone(args), event)
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
	payload, headers := event.Raw, storableHeaders(event.RawHeaders)
	if event.Message == nil {
		statement = insertCopy
	} else {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(event.Message)
		if err != nil {
			return fmt.Errorf("encode event %s for %s: %w", event.ID, topic, err)
		}
		if value == nil {
			value = []byte{} // a nil value would be a tombstone
		}
		payload, headers = value, event.headerMap(ctx)
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

// headerMap returns the headers of an event, except source and time.
func (e Event) headerMap(ctx context.Context) map[string]string {
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

// storableHeaders returns the headers of another producer in a form that jsonb accepts, without NUL
// and invalid UTF-8. Otherwise a record with such headers could not be parked.
func storableHeaders(headers map[string]string) map[string]string {
	cleaned := make(map[string]string, len(headers))
	for name, value := range headers {
		cleaned[cleanText(name)] = cleanText(value)
	}
	return cleaned
}

func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
