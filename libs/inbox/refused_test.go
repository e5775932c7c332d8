package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
)

// produceTo produces a record to the given partition, or to any other one if samePartition is
// false. It returns the record's key.
func (b *bench) produceTo(partition int32, samePartition bool, value int64) (key string) {
	b.Helper()
	for n := 0; ; n++ {
		key := fmt.Sprintf("key %d for %d", n, value)
		probe := record(key, 0)
		if onto := int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic.Name).Partition(probe,
			int(topic.Partitions))); (onto == partition) != samePartition {
			continue
		}
		rec := record(key, value)
		b.produce(rec)
		if (rec.Partition == partition) != samePartition {
			b.Fatalf("record went to partition %d, and %d was computed for the key", rec.Partition, partition)
		}
		return key
	}
}

func parkedKeys(t *testing.T, b *bench) []string {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), "SELECT convert_from(key, 'UTF8') FROM dead_letters ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// A record that always violates a constraint blocks its partition. It is parked as soon as the
// consumer has applied other records.
func TestConsumer_RefusedRecordIsParkedWhileOthersSucceed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	owner := pgtest.Owner(t, b.pool, schema)
	if _, err := owner.Exec(t.Context(), "CREATE UNIQUE INDEX one_value ON effect (value)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(t.Context(),
		"INSERT INTO effect (event_id, key, value) VALUES (gen_random_uuid(), 'first', 7)"); err != nil {
		t.Fatal(err)
	}
	consumer := b.consumer(b.pool)
	consumer.SetViolationTimeout(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	var tries atomic.Int64
	b.onTry(func(value int64) {
		if value == 7 {
			tries.Add(1)
		}
	})
	bad := record("bad", 7)
	b.produce(bad)
	testkit.Until(t, "several tries", func() bool { return tries.Load() >= 4 })
	if got := parkedKeys(t, b); len(got) != 0 {
		t.Errorf("parked keys while no other record was applied = %q, want none", got)
	}

	other := b.produceTo(bad.Partition, false, 1)
	behind := b.produceTo(bad.Partition, true, 2)
	testkit.Until(t, "the record of the other partition", func() bool { return len(b.effects(other)) == 1 })
	testkit.Until(t, "the record behind the refused one", func() bool { return len(b.effects(behind)) == 1 })
	if got, want := parkedKeys(t, b), []string{"bad"}; !slices.Equal(got, want) {
		t.Errorf("parked keys = %q, want %q", got, want)
	}
}

func TestConsumer_EventTooLargeIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.failWith(func(rec kafka.Record, _ int64) error {
		if rec.Key != "bad" {
			return nil
		}
		var batch pgx.Batch
		large := outbox.Event{Topic: topic, Key: rec.Key, Raw: make([]byte, outbox.MaxPayload+1)}
		return fmt.Errorf("publish: %w", outbox.Queue(t.Context(), &batch, large))
	})
	bad := record("bad", 1)
	b.produce(bad)
	behind := b.produceTo(bad.Partition, true, 2)
	b.run(b.pool)
	testkit.Until(t, "the record behind the refused one", func() bool { return len(b.effects(behind)) == 1 })
	if got, want := parkedKeys(t, b), []string{"bad"}; !slices.Equal(got, want) {
		t.Errorf("parked keys = %q, want %q", got, want)
	}
}
