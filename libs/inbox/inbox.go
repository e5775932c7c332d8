// Package inbox owns facts on their way in: the row that makes a record's effect happen once, and
// the parking of records that can not be understood. It turns a topic's records into transactions.
package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

// Migrations is the inbox's own track: pass it to pg.Open and pgtest.New.
var Migrations pg.Migrations

// Keep is how long event ids are remembered (architecture.md, Topics).
const Keep = 45 * 24 * time.Hour

// Handle applies one record inside the transaction that also holds its inbox row. nil commits;
// kafka.Skipf commits and counts; kafka.Parkf rolls its effects back and parks the record and its key; any other
// error is tried again for ever with the partition paused.
type Handle func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error

// Consumer reads topics for one service: a worker a partition, a batch a transaction, one record a
// transaction when the batch fails.
type Consumer struct{}

// Handlers maps a topic to its function.
type Handlers map[string]Handle

// NewConsumer makes a consumer; name is the service's ("calls") and is the Kafka group and the middle part of its DLQ topics.
// relay is woken after each commit (handlers may put events); it may be nil.
func NewConsumer(name string, cfg kafka.Config, pool *pgxpool.Pool, handlers Handlers, relay *outbox.Relay, metrics prometheus.Registerer) *Consumer {
	panic("unwritten")
}

// Run consumes until ctx ends, then drains the workers, commits and leaves the group.
func (c *Consumer) Run(ctx context.Context) error { panic("unwritten") }

// Replay puts parked records of one topic back: it reads <topic>.<name>.dlq, hands every record to the handlers again in order, and
// unparks the keys whose records all succeeded. It reports how many were applied and how many stay parked.
func (c *Consumer) Replay(ctx context.Context, topic string) (applied, parked int, err error) {
	panic("unwritten")
}
