package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/pgtest"
)

func movedBack(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "ringfence_inbox_position_moved_back_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if n := metric.GetCounter().GetValue(); label.GetName() == "cause" && n > 0 {
					found[label.GetValue()] += n
				}
			}
		}
	}
	return found
}

func (b *bench) start() (registry *prometheus.Registry, stop func()) {
	registry = prometheus.NewRegistry()
	consumer := inbox.NewConsumer(service, b.cfg, b.pool, inbox.Handlers{topic.Name: inbox.Each(b.handle, nil)}, nil,
		registry)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := consumer.Run(ctx); err != nil {
			b.Errorf("Run: %v", err)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	b.Cleanup(stop)
	return registry, stop
}

func (b *bench) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// saveState copies the tables of the inbox and the effects, like a backup. restore writes the
// copies back.
func (b *bench) saveState(t *testing.T) (restore func()) {
	t.Helper()
	owner := pgtest.Owner(t, b.pool, schema)
	tables := []string{"effect", "inbox_positions", "inbox_events"}
	for _, table := range tables {
		if _, err := owner.Exec(t.Context(), "CREATE TABLE saved_"+table+" AS SELECT * FROM "+table); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		tx, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			overriding := ""
			if table == "effect" {
				overriding = " OVERRIDING SYSTEM VALUE"
			}
			if _, err := tx.Exec(t.Context(),
				"DELETE FROM "+table+"; INSERT INTO "+table+overriding+" SELECT * FROM saved_"+table); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// After the restore, the group's committed offsets are higher than the stored positions.
func TestConsumer_ReadsRecordsAgainAfterTheDatabaseWasRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1))
	_, stop := b.start()
	b.wantEffects("a", 1)
	restore := b.saveState(t)
	b.produce(record("a", 2), record("a", 3))
	b.wantEffects("a", 1, 2, 3)
	stop()
	restore()
	b.wantEffects("a", 1)

	registry, _ := b.start()
	b.wantEffects("a", 1, 2, 3)
	b.produce(record("a", 4))
	b.wantEffects("a", 1, 2, 3, 4)
	if diff := cmp.Diff(map[string]float64{"database_restored": 1}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

// The restore simulates a failover to a standby that lacks the last commits. The consumer keeps
// running.
func TestConsumer_RunningConsumerReadsRecordsAgainAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1))
	registry, _ := b.start()
	b.wantEffects("a", 1)
	restore := b.saveState(t)
	b.produce(record("a", 2), record("a", 3))
	b.wantEffects("a", 1, 2, 3)
	restore()
	b.produce(record("a", 4)) // when the consumer applies this record, it detects the changed position
	b.wantEffects("a", 1, 2, 3, 4)
	if diff := cmp.Diff(map[string]float64{"database_restored": 1}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_IdleConsumerReadsRecordsAgainAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1))
	registry, _ := b.start()
	b.wantEffects("a", 1)
	restore := b.saveState(t)
	b.produce(record("a", 2), record("a", 3))
	b.wantEffects("a", 1, 2, 3)
	restore()
	b.wantEffects("a", 1, 2, 3)
	if diff := cmp.Diff(map[string]float64{"database_restored": 1}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_RestoredPositionOfADeletedTopicIsIgnored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1), record("a", 2))
	registry, _ := b.start()
	b.wantEffects("a", 1, 2)
	b.exec("UPDATE inbox_positions SET topic_id = gen_random_uuid(), next_offset = 7")
	b.produce(record("a", 3))
	b.wantEffects("a", 1, 2, 3)
	want := map[string]float64{"topic_recreated": float64(topic.Partitions)}
	if diff := cmp.Diff(want, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

// The group's committed offset is lower than the stored position. The event ids are deleted, so
// that only the position can prevent a second effect.
func TestConsumer_CrashBeforeTheGroupCommitAppliesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1), record("a", 2))
	_, stop := b.start()
	b.wantEffects("a", 1, 2)
	stop()
	b.commitGroup(0)
	b.exec("DELETE FROM inbox_events")

	registry, _ := b.start()
	b.produce(record("a", 3))
	b.wantEffects("a", 1, 2, 3)
	if diff := cmp.Diff(map[string]float64{}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_CountsRecordsThatExpiredBeforeTheyWereApplied(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := record("a", 1)
	b.produce(first)
	registry, stop := b.start()
	b.wantEffects("a", 1)
	if got := expired(t, registry); got != 0 {
		t.Errorf("expired records before = %v, want 0", got)
	}
	stop()
	b.produce(record("a", 2), record("a", 3), record("a", 4))
	until := kadm.Offsets{}
	until.AddOffset(topic.Name, first.Partition, 3, -1)
	if _, err := kadm.NewClient(b.wire.Client).DeleteRecords(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	registry, _ = b.start()
	b.wantEffects("a", 1, 4)
	if got := expired(t, registry); got != 2 {
		t.Errorf("expired records = %v, want 2", got)
	}
}

func expired(t *testing.T, registry *prometheus.Registry) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "ringfence_inbox_expired_records_total" {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func (b *bench) commitGroup(offset int64) {
	b.Helper()
	offsets := kadm.Offsets{}
	for number := range topic.Partitions {
		offsets.AddOffset(topic.Name, number, offset, -1)
	}
	if err := kadm.NewClient(b.wire.Client).CommitAllOffsets(b.Context(), service, offsets); err != nil {
		b.Fatal(err)
	}
}

// The database was restored to a time before the first start of the consumer. So the group has
// committed offsets, but no position is stored.
func TestConsumer_PartitionWithoutAPositionIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	restore := b.saveState(t)
	first := record("a", 1)
	b.produce(first, record("a", 2), record("a", 3))
	_, stop := b.start()
	b.wantEffects("a", 1, 2, 3)
	stop()
	restore()
	b.wantEffects("a")
	until := kadm.Offsets{}
	until.AddOffset(topic.Name, first.Partition, 1, -1)
	if _, err := kadm.NewClient(b.wire.Client).DeleteRecords(t.Context(), until); err != nil {
		t.Fatal(err)
	}

	registry, _ := b.start()
	b.wantEffects("a", 2, 3)
	b.produce(record("a", 4))
	b.wantEffects("a", 2, 3, 4)
	if diff := cmp.Diff(map[string]float64{"database_restored": 1}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_FirstStartIsNotCountedAsAPositionThatMovedBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1))
	registry, _ := b.start()
	b.wantEffects("a", 1)
	if diff := cmp.Diff(map[string]float64{}, movedBack(t, registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_RecreatedTopicIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1), record("a", 2))
	_, stop := b.start()
	b.wantEffects("a", 1, 2)
	stop()
	b.recreate()
	b.produce(record("a", 3), record("a", 4), record("a", 5))
	registry, _ := b.start()
	b.wantEffects("a", 1, 2, 3, 4, 5)
	if diff := cmp.Diff(map[string]float64{"topic_recreated": float64(topic.Partitions)}, movedBack(t,
		registry)); diff != "" {
		t.Errorf("positions moved back (-want +got):\n%s", diff)
	}
}

func TestConsumer_RunningConsumerReadsARecreatedTopic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produce(record("a", 1), record("a", 2))
	b.start()
	b.wantEffects("a", 1, 2)
	b.recreate()
	b.produce(record("a", 3))
	b.wantEffects("a", 1, 2, 3)
}

func (b *bench) recreate() {
	b.Helper()
	b.remove(topic.Name)
	b.wire.PurgeTopicsFromProducing(topic.Name)
	b.eventually("the topic is created again", func() bool {
		err := kafka.EnsureTopics(b.Context(), b.wire, []kafka.Topic{topic})
		return err == nil && b.partitions(topic.Name) == int(topic.Partitions)
	})
}

// A process hangs within a batch while another process applies the batch. The event ids are
// deleted, so that only the position can prevent a second effect.
func TestConsumer_ProcessThatHungAppliesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hangs, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.onTry(func(value int64) {
		if value == 1 {
			once.Do(func() { close(hangs); <-goOn })
		}
	})
	b.start()
	a := record("a", 1)
	b.produce(a)
	<-hangs
	// These statements have the effect of the other process's commit. The first statement ends the
	// transaction of the process that hangs, as the server does after
	// idle_in_transaction_session_timeout.
	owner := pgtest.Owner(t, b.pool, schema)
	for _, statement := range []string{
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND usename = '` + schema + `_app' AND state LIKE 'idle in transaction%'`,
		fmt.Sprintf(`UPDATE inbox_positions SET next_offset = %d WHERE partition = %d`, a.Offset+1, a.Partition),
		`INSERT INTO effect (event_id, key, value) VALUES (gen_random_uuid(), 'a', 1)`,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	b.produce(record("a", 2))
	b.wantEffects("a", 1, 2)
}

func TestConsumer_TwoProcessesOnOnePartitionApplyEachRecordOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.produceFacts(1, 10)
	b.start()
	other := b.consumer(b.pool)
	other.SetGroup("other")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- other.Run(ctx) }()
	b.produceFacts(11, 30)
	b.wantAll(30)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	b.wantAll(30)
}

func TestConsumer_LateAndOutOfOrderRecordsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two, three := record("a", 1), record("a", 2), record("a", 3)
	b.produce(two, one, again(two), three, again(one))
	b.run(b.pool)
	b.wantEffects("a", 2, 1, 3)
}
