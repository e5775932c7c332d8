package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
)

const schema = "outbox_test"

func put(t testing.TB, pool *pgxpool.Pool, events ...outbox.Event) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Put(t.Context(), tx, events...) })
}

func fact(key string, n int) outbox.Event {
	return outbox.Event{Topic: kafka.CallRequests, Key: key, Message: wrapperspb.Int64(int64(n))}
}

func newClient(t testing.TB, cfg kafka.Config, opts ...kgo.Opt) *kafka.Client {
	t.Helper()
	client, err := kafka.NewClient(cfg, "test", nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

func startRelay(t testing.TB, pool *pgxpool.Pool, cfg kafka.Config) (relay *outbox.Relay, stop func()) {
	t.Helper()
	relay = outbox.NewRelay(pool, newClient(t, cfg), nil, outbox.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := relay.Run(ctx); err != nil {
			t.Errorf("relay: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return relay, stop
}

func collect(t testing.TB, cfg kafka.Config, topic string, enough func([]*kgo.Record) bool) []*kgo.Record {
	t.Helper()
	client := newClient(t, cfg, kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	var all []*kgo.Record
	for !enough(all) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("only %d records came from %s", len(all), topic)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

func atLeast(n int) func([]*kgo.Record) bool {
	return func(records []*kgo.Record) bool { return len(records) >= n }
}

func countRows(t testing.TB, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPut_EventIsPublishedWithItsHeaders(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	relay, _ := startRelay(t, pool, cfg)
	workspace := uuid.Must(uuid.NewV7())
	event := fact("call-1", 7)
	event.ID, event.WorkspaceID = uuid.Must(uuid.NewV7()), workspace
	before := time.Now()

	if err := put(t, pool, event); err != nil {
		t.Fatal(err)
	}
	relay.Wake()

	wire := collect(t, cfg, event.Topic.Name, atLeast(1))[0]
	rec, err := kafka.Read(wire)
	if err != nil {
		t.Fatal(err)
	}
	if rec.EventID != event.ID {
		t.Errorf("record: rec.EventID = %v, want %v", rec.EventID, event.ID)
	}
	if rec.Key != "call-1" {
		t.Errorf("record: rec.Key = %q, want \"call-1\"", rec.Key)
	}
	if rec.WorkspaceID != workspace.String() {
		t.Errorf("record: rec.WorkspaceID = %v, want %v", rec.WorkspaceID, workspace.String())
	}
	if got := rec.Headers[kafka.HeaderSource]; got != "/"+schema {
		t.Errorf("ce_source = %q, want the schema", got)
	}
	if first := before.Truncate(time.Microsecond); rec.Time.Before(first) {
		t.Errorf("ce_time = %s, want at or after %s", rec.Time, first)
	}
	if last := time.Now(); rec.Time.After(last) {
		t.Errorf("ce_time = %s, want at or before %s", rec.Time, last)
	}
	var value wrapperspb.Int64Value
	if err := rec.Decode(&value); err != nil {
		t.Fatalf("Decode: %v", err)
	}
	if value.Value != 7 {
		t.Errorf("value = %d, want 7", value.Value)
	}
	testkit.Until(t, "the row is deleted", func() bool { return countRows(t, pool) == 0 })
}

func TestPut_EventThatIsTooLargeFailsItsTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, outbox.Migrations)
	large := strings.Repeat("x", outbox.MaxPayload+1)

	err := put(t, pool, fact("k", 1), outbox.Event{Topic: kafka.CallRequests, Key: "k", Message: wrapperspb.String(large)})
	if err == nil {
		t.Error("an oversize event was accepted")
	}
	if n := countRows(t, pool); n != 0 {
		t.Errorf("outbox rows = %d, want 0", n)
	}
	_, err = pool.Exec(t.Context(), "INSERT INTO outbox (event_id, topic, key, headers, payload) VALUES (gen_random_uuid(), 't', '', '{}', $1)", []byte(large))
	if err == nil {
		t.Error("the table took a payload above the bound")
	}
}

func TestPut_HeadersWithInvalidCharactersAreStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, outbox.Migrations)
	err := put(t, pool, outbox.Event{TopicName: "x.dlq", Key: "\xff\x00", Raw: []byte{0, 255}, RawHeaders: map[string]string{"a\x00": "\xff\x00b"}})
	if err != nil {
		t.Errorf("a record with binary key and headers cannot be put: %v", err)
	}
}

func TestOldestAge_GrowsWhileKafkaIsUnavailable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, outbox.Migrations)
	relay, _ := startRelay(t, pool, kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	if err := put(t, pool, fact("k", 1)); err != nil {
		t.Fatal(err)
	}
	relay.Wake()
	testkit.Until(t, "the oldest row is more than a second old", func() bool { return relay.OldestAge() > time.Second })
	if n := countRows(t, pool); n != 1 {
		t.Errorf("outbox rows = %d, want the unacknowledged one", n)
	}
}

func seqOf(t testing.TB, wire *kgo.Record) int {
	t.Helper()
	rec, err := kafka.Read(wire)
	if err != nil {
		t.Fatal(err)
	}
	var value wrapperspb.Int64Value
	if err := rec.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return int(value.Value)
}

func keyOf(n int) string { return fmt.Sprintf("aggregate-%d", n) }

// The floor is the lowest id that the relay reads. It can rise only after a read, so the test
// repeats the late commit.
func TestRelay_PublishesARowThatCommitsLate(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	startRelay(t, pool, cfg)
	const rounds = 5
	for round := range rounds {
		err := pgx.BeginFunc(t.Context(), pool, func(late pgx.Tx) error {
			if err := outbox.Put(t.Context(), late, fact("late", round+1)); err != nil {
				return err
			}
			for n := range 3 {
				if err := put(t, pool, fact("early", 3*round+n+1)); err != nil {
					return err
				}
				testkit.Until(t, "the row with the higher id is published", func() bool { return countRows(t, pool) == 0 })
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the late row is published", func() bool { return countRows(t, pool) == 0 })
	}
	if got := len(collect(t, cfg, kafka.CallRequests.Name, atLeast(4*rounds))); got != 4*rounds {
		t.Errorf("published events = %d, want %d", got, 4*rounds)
	}
}

// The late transaction gets a higher transaction id than all transactions that had ended when the
// relay read the outbox.
func TestRelay_KeepsTheOrderOfARowThatCommitsLate(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	startRelay(t, pool, cfg)
	begin := func() pgx.Tx {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	end := func(tx pgx.Tx, event outbox.Event) {
		if err := outbox.Put(t.Context(), tx, event); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	published := func(left int) {
		testkit.Until(t, "the committed rows are published", func() bool { return countRows(t, pool) == left })
	}
	early, late := begin(), begin()
	if err := outbox.Put(t.Context(), late, fact("late", 1)); err != nil {
		t.Fatal(err)
	}
	end(early, fact("early", 1))
	published(0)
	end(begin(), fact("early", 2)) // the relay reads again, after which the floor can rise
	published(0)
	end(begin(), fact("early", 3))
	published(0)
	end(late, fact("other", 1))
	end(begin(), fact("late", 2))
	published(0)

	byKey, _ := firstDeliveries(t, collect(t, cfg, kafka.CallRequests.Name, atLeast(6)))
	if diff := cmp.Diff([]int{1, 2}, byKey["late"]); diff != "" {
		t.Errorf("events of the late key in the order of the topic (-want +got):\n%s", diff)
	}
}
