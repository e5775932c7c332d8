// Package outbox owns facts on their way out: a row written in the transaction that made the fact
// true, and the relay that publishes it to Kafka and deletes what was acknowledged. Writers lock the
// aggregate's row before they put the outbox row; that gives order per key.
package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

// Migrations is the outbox's own track: pass it to pg.Open and pgtest.New.
var Migrations pg.Migrations

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
	// Raw, with RawHeaders, is for records copied as they are (the DLQ); Message is nil then.
	Raw        []byte
	RawHeaders map[string]string
	// TopicName overrides Topic (a DLQ's name).
	TopicName string
}

// Put writes events in the caller's transaction, in order, in one round trip. The span of ctx rides along as traceparent.
func Put(ctx context.Context, tx pgx.Tx, events ...Event) error { panic("unwritten") }

// Queue adds the same inserts to a batch that the caller sends itself.
func Queue(ctx context.Context, batch *pgx.Batch, events ...Event) error { panic("unwritten") }

// Wake tells the relay, in this process and in the other replicas (coalesced NOTIFY after commit), that rows were
// committed. It never blocks. Calling it late or never costs at most the 250 ms poll.
func (r *Relay) Wake() { panic("unwritten") }

// Relay publishes one schema's outbox. Only the holder of the schema's advisory lock works; the others wait.
type Relay struct{}

// NewRelay makes a relay over the pool's schema.
func NewRelay(pool *pgxpool.Pool, client *kafka.Client, metrics prometheus.Registerer) *Relay {
	panic("unwritten")
}

// Run relays until ctx ends, then publishes what it can within a few seconds.
func (r *Relay) Run(ctx context.Context) error { panic("unwritten") }

// OldestAge is how long the oldest unpublished row waits (sampled once a second on every replica, leader or not); zero when
// the outbox is empty.
func (r *Relay) OldestAge() time.Duration { panic("unwritten") }
