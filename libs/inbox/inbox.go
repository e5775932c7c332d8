// Package inbox applies Kafka records to a service's schema. One transaction stores the effect of a
// record, its event id and the new position of its partition. So each record is applied once.
// Records that cannot be applied are parked and published to a dead-letter topic.
package inbox

import (
	"context"
	"embed"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations contains the migrations of the inbox's tables, for pg.Open and pgtest.New. A consumer
// also needs the tables of the outbox, which publishes parked records.
var Migrations = pg.Migrations{Name: "inbox", FS: migrationFiles(files)}

// migrationFiles returns the folder with the migrations. It cannot fail, because the folder is
// embedded.
func migrationFiles(files embed.FS) fs.FS {
	dir, _ := fs.Sub(files, "migrations")
	return dir
}

// Record is a Kafka record that has not been applied yet.
type Record struct {
	kafka.Record
	// Span continues the trace of the event's producer. The inbox ends the span.
	Span trace.Span
}

// Context returns ctx with the record's span.
func (r Record) Context(ctx context.Context) context.Context {
	return trace.ContextWithSpan(ctx, r.Span)
}

// Result is the outcome of one record. The zero value means applied.
type Result struct {
	outcome string
	reason  error
}

// Skip returns the result of a record that needs no effect.
func Skip(reason error) Result { return Result{outcome: skipped, reason: reason} }

// Park returns the result of a record that this version can never apply.
func Park(reason error) Result { return Result{outcome: parked, reason: reason} }

// IsParked reports whether the record must be parked.
func (r Result) IsParked() bool { return r.outcome == parked }

// Reason returns why the record was skipped or parked, or nil if it was applied.
func (r Result) Reason() error { return r.reason }

// ResultOf converts the error of a function that handles one record to a result. nil means applied,
// an error of kafka.Skipf means skipped, and an error of kafka.Parkf means parked. ResultOf returns
// any other error unchanged.
func ResultOf(err error) (Result, error) {
	switch {
	case err == nil:
		return Result{}, nil
	case kafka.IsSkip(err):
		return Skip(err), nil
	case kafka.IsPark(err):
		return Park(err), nil
	}
	return Result{}, err
}

// Outcome is the outcome of a batch.
type Outcome struct {
	// Results contains one result per record of the batch.
	Results []Result
	// Last contains the last statements of the handler. It can be nil. They are sent together with
	// COMMIT, which saves a round trip. An error of these statements counts as an error of the
	// handler.
	Last *pgx.Batch
	// OnCommit is called once after the transaction has committed. It is not called after a rollback,
	// or if it is not known whether the transaction committed. OnCommit must not block, and it can be
	// nil.
	OnCommit func()
}

// Handler applies a batch of records of one topic in tx. The same transaction stores their ids and
// positions. None of the records has been applied before. Records of one partition are in the order
// of the log.
//
// If a result is Park, tx is rolled back, and the handler is called again without this record and
// without later records of its key. These records are parked in the same transaction.
//
// If the handler returns an error, tx is rolled back, and the records are handled one by one. A
// single record is parked if the handler panics, returns outbox.ErrTooLarge or writes a value that
// the database can never store. After a constraint violation, the record is parked if retries fail
// for 15 minutes while other records are applied. After any other error, the partition waits until
// a retry succeeds.
//
// A handler must not begin, commit or roll back tx. It can be called several times for a record, so
// effects outside of tx belong in Outcome.OnCommit.
type Handler func(ctx context.Context, tx pgx.Tx, batch []Record) (Outcome, error)

// Handlers contains the handlers of topics, by the topic's name.
type Handlers map[string]Handler

// Each returns a handler that calls apply for each record of the batch, in the order of the batch.
// It converts the error of apply with ResultOf. onCommit becomes Outcome.OnCommit and can be nil.
func Each(apply func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error, onCommit func()) Handler {
	return func(ctx context.Context, tx pgx.Tx, batch []Record) (Outcome, error) {
		outcome := Outcome{Results: make([]Result, len(batch)), OnCommit: onCommit}
		for i, rec := range batch {
			var err error
			if outcome.Results[i], err = ResultOf(apply(rec.Context(ctx), tx, rec.Record)); err != nil {
				return outcome, err
			}
		}
		return outcome, nil
	}
}

// Consumer reads topics for one service. Each assigned partition has a worker, and the workers of a
// topic share transactions. If a shared transaction fails, each worker applies its records in its
// own transaction. If this transaction fails too, the worker applies the records one by one.
type Consumer struct {
	name     string
	group    string // name of the consumer group; differs from name only in tests
	cfg      kafka.Config
	pool     *pgxpool.Pool
	handlers Handlers
	relay    *outbox.Relay
	registry prometheus.Registerer
	metrics  *metrics
	backlog  *kafka.Backlog
	// slots limits the number of concurrent transactions. A transaction sends a value to slots when it
	// begins, and receives a value when it ends.
	slots   chan struct{}
	batcher *batcher
	// appliedCount is the number of records that this consumer has applied since its start.
	appliedCount atomic.Int64
	// violationTimeout is defaultViolationTimeout, except in tests.
	violationTimeout time.Duration
	// replaying is locked while ReplayRecord runs.
	replaying sync.Mutex
}

// NewConsumer returns a consumer. name is the name of the service ("calls") and of the consumer
// group. The consumer uses at most half of the pool's connections.
//
// The consumer wakes the relay after it has parked records. The relay can be nil. A handler that
// writes events must wake the relay in Outcome.OnCommit.
//
// A registry accepts the metrics of only one consumer. If metrics is nil, no metrics are
// registered.
func NewConsumer(
	name string, cfg kafka.Config, pool *pgxpool.Pool, handlers Handlers, relay *outbox.Relay,
	metrics prometheus.Registerer,
) *Consumer {
	c := &Consumer{
		name: name, group: name, cfg: cfg, pool: pool, handlers: handlers, relay: relay,
		registry: metrics, metrics: newMetrics(metrics),
		slots:            make(chan struct{}, max(1, pool.Config().MaxConns/2)),
		violationTimeout: defaultViolationTimeout,
	}
	topics := slices.Collect(maps.Keys(handlers))
	c.backlog = kafka.NewBacklog(name, topics, metrics)
	c.metrics.initialize(topics)
	c.batcher = &batcher{consumer: c, waiting: map[string][]*chunk{}, running: map[string]int{}}
	return c
}

// dlqName returns the name of the consumer's dead-letter topic for a topic.
func (c *Consumer) dlqName(topic string) string {
	return kafka.DLQ(kafka.Topic{Name: topic}, c.name).Name
}
