package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
)

const (
	schema  = "inbox_test"
	service = "dialer" // one of the services that have a DLQ for the topic
)

var topic = kafka.CallRequests

// bench contains a database, Kafka, and a handler that stores the effect of each record.
type bench struct {
	testing.TB
	pool *pgxpool.Pool
	cfg  kafka.Config
	wire *kafka.Client

	mu   sync.Mutex
	sick func(rec kafka.Record, value int64) error
	// beforeEffect is called before the effect of a record is written.
	beforeEffect func(value int64)
}

func newBench(t testing.TB) *bench {
	b := &bench{TB: t, pool: pgtest.New(t, schema, inbox.Migrations, outbox.Migrations), cfg: kafkatest.New(t)}
	_, err := pgtest.Owner(t, b.pool, schema).Exec(t.Context(),
		"CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, event_id uuid NOT NULL, key text NOT NULL, value bigint NOT NULL)")
	if err != nil {
		t.Fatal(err)
	}
	b.wire, err = kafka.NewClient(b.cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.wire.Close)
	return b
}

func (b *bench) handle(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var value wrapperspb.Int64Value
	if err := rec.Decode(&value); err != nil {
		return err
	}
	b.mu.Lock()
	tried := b.beforeEffect
	b.mu.Unlock()
	if tried != nil {
		tried(value.Value)
	}
	_, err := tx.Exec(ctx, "INSERT INTO effect (event_id, key, value) VALUES ($1, $2, $3)", rec.EventID, rec.Key, value.Value)
	if err != nil {
		return fmt.Errorf("write effect: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sick != nil {
		return b.sick(rec, value.Value)
	}
	return nil
}

// failWith makes the handler return the error of f after it has stored the record's effect. If f is
// nil, the handler succeeds.
func (b *bench) failWith(f func(rec kafka.Record, value int64) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sick = f
}

func (b *bench) onTry(f func(value int64)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beforeEffect = f
}

func (b *bench) consumer(pool *pgxpool.Pool) *inbox.Consumer {
	return inbox.NewConsumer(service, b.cfg, pool, inbox.Handlers{topic.Name: inbox.Each(b.handle, nil)}, nil,
		prometheus.NewRegistry())
}

func (b *bench) run(pool *pgxpool.Pool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.consumer(pool).Run(ctx); err != nil {
			b.Errorf("consumer: %v", err)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	b.Cleanup(stop)
	return stop
}

func (b *bench) relay() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = outbox.NewRelay(b.pool, b.wire, nil, outbox.Config{}).Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
}

func (b *bench) produce(records ...*kgo.Record) {
	b.Helper()
	if err := b.wire.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

func record(key string, value int64) *kgo.Record {
	message := wrapperspb.Int64(value)
	bytes, _ := proto.Marshal(message)
	return &kgo.Record{Topic: topic.Name, Key: []byte(key), Value: bytes, Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(uuid.NewString())},
		{Key: kafka.HeaderType, Value: []byte(message.ProtoReflect().Descriptor().FullName())},
	}}
}

func again(rec *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: rec.Topic, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
}

func (b *bench) effects(key string) []int64 {
	b.Helper()
	rows, err := b.pool.Query(b.Context(), "SELECT value FROM effect WHERE key = $1 ORDER BY n", key)
	if err != nil {
		b.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		b.Fatal(err)
	}
	return values
}

func (b *bench) count(query string) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), query).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bench) eventually(what string, condition func() bool) {
	b.Helper()
	testkit.Until(b, what, condition)
}

func (b *bench) wantEffects(key string, want ...int64) {
	b.Helper()
	b.eventually(fmt.Sprintf("%d effects of %s are there", len(want), key), func() bool { return len(b.effects(key)) >= len(want) })
	if got := b.effects(key); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("effects of %s = %v, want %v", key, got, want)
	}
}

func TestConsumer_RepeatedRecordHasOneEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := record("a", 1), record("a", 2)
	// Records are repeated within one batch, before and after newer records of the same key.
	b.produce(one, again(one), two, again(one), again(two))
	stop := b.run(b.pool)
	b.wantEffects("a", 1, 2)
	stop()

	b.produce(again(two), again(one), record("a", 3)) // records are repeated after a restart of the consumer
	b.run(b.pool)
	b.wantEffects("a", 1, 2, 3)
}

func TestConsumer_SkippedRecordIsNotParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.failWith(func(_ kafka.Record, value int64) error {
		if value == 1 {
			return kafka.Skipf("no interest")
		}
		return nil
	})
	b.produce(record("a", 1), record("a", 2))
	b.run(b.pool)
	b.wantEffects("a", 1, 2) // the transaction of a skipped record commits
	if n := b.count("SELECT count(*) FROM dead_letters"); n != 0 {
		t.Errorf("parked = %d, want 0", n)
	}
}

func TestConsumer_ParksAnInvalidRecordAndLaterRecordsOfItsKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	poison := record("sick", 2)
	poison.Value = []byte{0xff, 0xff}
	headless := record("headless", 1)
	headless.Headers = []kgo.RecordHeader{{Key: kafka.HeaderID, Value: []byte("not \x00 an id \xff")}}
	b.failWith(func(rec kafka.Record, value int64) error {
		if value == 13 {
			panic("unlucky")
		}
		return nil
	})
	b.produce(record("sick", 1), poison, record("sick", 3), record("well", 1), headless, record("unlucky", 13), record("well", 2))
	b.run(b.pool)

	b.wantEffects("well", 1, 2)
	b.wantEffects("sick", 1)
	b.eventually("four records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 4 })
	b.produce(record("sick", 4), record("well", 3))
	b.wantEffects("well", 1, 2, 3)
	b.eventually("five records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 5 })
	b.wantEffects("sick", 1)

	letters := b.dlq(5)
	first := letters["sick"][0]
	if string(first.Value) != "\xff\xff" {
		t.Errorf("the DLQ's value is %x, want the original", first.Value)
	}
	rec, err := kafka.Read(first)
	if err != nil {
		t.Fatalf("DLQ headers: %v", err)
	}
	if rec.Headers["dlq_topic"] != topic.Name {
		t.Errorf("DLQ headers: dlq_topic = %v, want %v", rec.Headers["dlq_topic"], topic.Name)
	}
	if rec.Headers["dlq_offset"] == "" {
		t.Errorf("DLQ headers: dlq_offset is empty")
	}
	if rec.Headers["dlq_error"] == "" {
		t.Errorf("DLQ headers: dlq_error is empty")
	}
}

// A value that the database can never store must not block its partition.
func TestConsumer_InvalidValueIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := pgtest.Owner(t, b.pool, schema).Exec(t.Context(), "ALTER TABLE effect ADD CHECK (value <> 13), ADD CHECK (1000 / (value - 14) <> 1001)")
	if err != nil {
		t.Fatal(err)
	}
	b.produce(record("a", 1), record("a", 13), record("a", 2), record("b", 14), record("c", 1)) // the value 14 causes a division by zero
	b.run(b.pool)
	b.eventually("three records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 3 })
	b.wantEffects("a", 1)
	b.wantEffects("b")
	b.wantEffects("c", 1)
}

func (b *bench) dlq(n int) map[string][]*kgo.Record {
	b.Helper()
	client, err := kafka.NewClient(b.cfg, "dlq", nil, kgo.ConsumeTopics(kafka.DLQ(topic, service).Name), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), testkit.Timeout)
	defer cancel()
	letters := map[string][]*kgo.Record{}
	for n > 0 {
		for _, rec := range client.PollFetches(ctx).Records() {
			letters[string(rec.Key)] = append(letters[string(rec.Key)], rec)
			n--
		}
		if ctx.Err() != nil {
			b.Fatalf("%d letters never came", n)
		}
	}
	return letters
}

func TestConsumer_RecordIsRetriedUntilTheHandlerSucceeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.failWith(func(_ kafka.Record, value int64) error {
		if value == 2 {
			return errors.New("the other side is away")
		}
		return nil
	})
	b.produce(record("a", 1), record("a", 2), record("a", 3))
	b.run(b.pool)
	b.wantEffects("a", 1)
	b.failWith(nil)
	b.wantEffects("a", 1, 2, 3)
}

func TestConsumer_ReadsFromTheStartIfTheOffsetIsOutOfRange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := record("a", 1)
	b.produce(one)
	stop := b.run(b.pool)
	b.wantEffects("a", 1)
	stop()
	// This simulates brokers that were restored to a state older than the group's committed offsets.
	offsets := kadm.Offsets{}
	for number := range topic.Partitions {
		offsets.AddOffset(topic.Name, number, 1000, -1)
	}
	if err := kadm.NewClient(b.wire.Client).CommitAllOffsets(t.Context(), service, offsets); err != nil {
		t.Fatal(err)
	}
	b.produce(record("a", 2))
	stop = b.run(b.pool)
	b.wantEffects("a", 1, 2)
	stop()
	committed, err := kadm.NewClient(b.wire.Client).FetchOffsets(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	behind := 0
	committed.Each(func(offset kadm.OffsetResponse) {
		if offset.At == 2 {
			behind++
		}
	})
	// The committed offset must move back. Otherwise the log could grow past it, and the consumer
	// would skip records.
	if behind != 1 {
		t.Errorf("%d partitions are committed at 2, want the one with the records: %v", behind, committed)
	}
}

func TestConsumer_HandlerContinuesTheTraceOfTheProducer(t *testing.T) {
	b := newBench(t)
	provider := sdktrace.NewTracerProvider()
	otel.SetTracerProvider(provider)
	b.relay()
	traces := make(chan trace.TraceID, 1)
	consumer := inbox.NewConsumer(service, b.cfg, b.pool, inbox.Handlers{topic.Name: inbox.Each(
		func(ctx context.Context, _ pgx.Tx, _ kafka.Record) error {
			traces <- trace.SpanContextFromContext(ctx).TraceID()
			return nil
		}, nil)}, nil, nil)
	running, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = consumer.Run(running) }()
	defer func() { stop(); <-done }()

	ctx, span := provider.Tracer("test").Start(t.Context(), "POST")
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		return outbox.Put(ctx, tx, outbox.Event{Topic: topic, Key: "a", Message: wrapperspb.Int64(1)})
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-traces:
		if want := span.SpanContext().TraceID(); got != want {
			t.Errorf("the handler's trace is %s, want the writer's, %s", got, want)
		}
	case <-time.After(testkit.Timeout):
		t.Fatal("the record never came")
	}
}
