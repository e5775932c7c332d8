// Package inbox owns facts on their way in: the row that makes a record's effect happen once, and
// the parking of records that can not be understood. It turns a topic's records into transactions.
package inbox

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations is the inbox's own track: pass it to pg.Open and pgtest.New. A consumer needs the outbox's track as well, which
// carries what it parks.
var Migrations = pg.Migrations{Name: "inbox", FS: sub(files)}

// sub cannot fail: the folder is embedded.
func sub(files embed.FS) fs.FS {
	dir, _ := fs.Sub(files, "migrations")
	return dir
}

// Keep is how long event ids are remembered (architecture.md, Topics).
const Keep = 45 * 24 * time.Hour

// Handle applies one record inside the transaction that also holds its inbox row. What it gives to pg.Later runs together with the
// statements of the other records in the transaction; an error there counts as its own, no row as a skip. nil commits;
// kafka.Skipf commits and counts; kafka.Parkf rolls its effects back and parks the record and its
// key, and so do a panic, a value that the database can never take and outbox.ErrTooLarge. After
// any other error the record is tried again, with the partition paused. If the database refuses the
// same record for refusedTime because of a constraint, while it takes other records of this
// consumer, the record is parked as well. A database that is away never parks a record. Handle may
// be called again for a record whose earlier transaction was rolled back, so it does nothing
// outside of tx.
type Handle func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error

// Handlers maps a topic to its function.
type Handlers map[string]Handle

// Consumer reads topics for one service: a worker a partition, what the partitions of a topic bring at a time in one
// transaction, a batch a transaction when that fails, and one record a transaction when the batch fails.
type Consumer struct {
	name     string
	cfg      kafka.Config
	pool     *pgxpool.Pool
	handlers Handlers
	relay    *outbox.Relay
	wakes    []func()
	registry prometheus.Registerer
	metrics  *metrics
	backlog  *kafka.Backlog
	slots    chan struct{} // one for each transaction at a time
	desk     *desk
	// applied is the number of records that were applied.
	applied atomic.Int64
	// refusedTime is refusedTime, or less in tests.
	refusedTime time.Duration
}

// NewConsumer makes a consumer; name is the service's ("calls") and is the Kafka group and the middle part of its DLQ topics.
// relay is woken after each commit (handlers may put events), unless all of its records were Quiet; it may be nil. So are wakes, for
// what waits for rows that the handlers write; they must not block. At most half of the pool's connections are used. A registry takes one consumer; nil
// registers no metrics.
func NewConsumer(name string, cfg kafka.Config, pool *pgxpool.Pool, handlers Handlers, relay *outbox.Relay, metrics prometheus.Registerer, wakes ...func()) *Consumer {
	c := &Consumer{
		name: name, cfg: cfg, pool: pool, handlers: handlers, relay: relay, wakes: wakes,
		registry: metrics, metrics: newMetrics(metrics),
		// There are more partitions than connections, and customers need some too.
		slots: make(chan struct{}, max(1, pool.Config().MaxConns/2)),

		refusedTime: refusedTime,
	}
	topics := slices.Collect(maps.Keys(handlers))
	c.backlog = kafka.NewBacklog(name, topics, metrics)
	c.metrics.begin(topics)
	c.desk = &desk{consumer: c, waiting: map[string][]*bundle{}, serving: map[string]int{}}
	return c
}

// dlq is where this consumer's parked records of a topic go.
func (c *Consumer) dlq(topic string) string {
	return kafka.DLQ(kafka.Topic{Name: topic}, c.name).Name
}

// wake tells everybody who waits for committed rows.
func (c *Consumer) wake() {
	c.relay.Wake()
	for _, wake := range c.wakes {
		wake()
	}
}

const pruneRows = 5000

// In small steps, so that no transaction is long. What is parked is on a list of its own and stays.
const pruneIDs = `
DELETE FROM inbox WHERE (consumer, topic, event_id) IN (
	SELECT consumer, topic, event_id FROM inbox
	WHERE received_at < now() - $1::float8 * interval '1 second'
	ORDER BY received_at LIMIT $2)`

// Prune forgets event ids older than Keep. Run does it hourly.
func (c *Consumer) Prune(ctx context.Context) error {
	for {
		tag, err := c.pool.Exec(ctx, pruneIDs, Keep.Seconds(), pruneRows)
		if err != nil {
			return fmt.Errorf("prune inbox: %w", err)
		}
		c.metrics.pruned.Add(float64(tag.RowsAffected()))
		if tag.RowsAffected() < pruneRows {
			return nil
		}
	}
}

func (c *Consumer) keepPruning(ctx context.Context) {
	for {
		pause(ctx, 30*time.Minute+rand.N(time.Hour)) // hourly, and not all replicas at once
		if ctx.Err() != nil {
			return
		}
		if err := c.Prune(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("inbox was not pruned", "consumer", c.name, "err", err)
		}
	}
}
