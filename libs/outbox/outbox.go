// Package outbox publishes events. An event is a row that is written in the transaction that
// changes state. The relay publishes the rows to Kafka and deletes those that Kafka acknowledged.
// Writers lock the row of their aggregate before they write its event: that keeps the events of a
// key in order.
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

// Migrations are the tables of the outbox, for pg.Open and pgtest.New.
var Migrations = pg.Migrations{Name: "outbox", FS: sub(files)}

// sub cannot fail: the folder is embedded.
func sub(files embed.FS) fs.FS {
	dir, _ := fs.Sub(files, "migrations")
	return dir
}

// MaxPayload is the maximum size of a value in bytes. A larger one is an error in the transaction
// that writes it.
const MaxPayload = 900 << 10

// Event is an event to publish.
type Event struct {
	// ID identifies the event for inboxes. uuid.Nil means a new UUID of version 7.
	ID    uuid.UUID
	Topic kafka.Topic
	// Key is the key of the record. Events of one key stay in order.
	Key         string
	WorkspaceID uuid.UUID
	// Message is the value. Its full name is ce_type.
	Message proto.Message
	// Time is the time of the event. If it is zero, the database's clock is used. An event that is
	// written again with the same ID needs the same time, because inboxes find an id by the day of
	// its event.
	Time time.Time
	// Raw and RawHeaders are for records that are copied unchanged to a DLQ. Message is then nil.
	Raw        []byte
	RawHeaders map[string]string
	// TopicName replaces Topic if it is set, for DLQs.
	TopicName string
}

// Put writes events in tx, in order, in one round trip. The trace of ctx is stored in the header
// traceparent.
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

// The database sets source and time: it knows the schema, and one clock is used for all events of a
// schema.
const insertEvent = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload)`

const insertCopy = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
VALUES (@event_id, @topic, @key, @headers::jsonb, @payload)`

// insertEventIf inserts the event only if a condition is true.
const insertEventIf = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
SELECT @event_id::uuid, @topic::text, @key::bytea, @headers::jsonb || jsonb_build_object(
	'ce_source', '/' || current_schema(),
	'ce_time', to_char(coalesce(@time::timestamptz, clock_timestamp()) AT TIME ZONE 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), @payload::bytea
WHERE `

// ErrTooLarge is returned for an event with more than MaxPayload bytes. It is permanent: the same
// event can never be published. libs/inbox parks the record whose handler returns it.
var ErrTooLarge = errors.New("event too large")

// Queue adds the inserts of Put to a batch, which the caller sends.
func Queue(ctx context.Context, batch *pgx.Batch, events ...Event) error {
	for _, event := range events {
		if err := queue(ctx, batch, insertEvent, pg.Args{}, event); err != nil {
			return err
		}
	}
	return nil
}

// QueueIf adds the insert of an event that is written only if condition is true. condition is SQL
// with the named arguments args. Use it in a batch that is its own transaction, where earlier
// results cannot be read.
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
	payload, headers := event.Raw, clean(event.RawHeaders)
	if event.Message == nil {
		statement = insertCopy
	} else {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(event.Message)
		if err != nil {
			return fmt.Errorf("encode event %s for %s: %w", event.ID, topic, err)
		}
		if value == nil {
			value = []byte{} // nil would be a tombstone
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

// headers returns the headers of an event, except source and time.
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

// clean makes headers of other producers storable: jsonb accepts neither NUL nor invalid UTF-8.
// Otherwise a record with such headers could not be parked.
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
