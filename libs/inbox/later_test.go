package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

const (
	noSkip    = 100 // from here on a value that is there already is no skip
	tooSmall  = -1  // the database never takes it
	laterOnce = `
INSERT INTO effect (event_id, key, value)
SELECT @event_id, @key, @value::bigint / (CASE WHEN @value = -1 THEN 0 ELSE 1 END)
WHERE NOT EXISTS (SELECT FROM effect WHERE key = @key AND value = @value)`
)

// runLater starts a consumer whose handler only queues its effect; wakes counts who was woken.
func (b *bench) runLater(quiet func(value int64) bool, wakes *atomic.Int64, registry *prometheus.Registry) {
	handle := func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
		var value wrapperspb.Int64Value
		if err := rec.Decode(&value); err != nil {
			return err
		}
		if quiet(value.Value) {
			inbox.Quiet(tx)
		}
		if value.Value == noSkip {
			return b.handle(ctx, tx, rec) // at once, behind what is queued
		}
		args := pg.Args{"event_id": rec.EventID, "key": rec.Key, "value": value.Value}
		return pg.Later(ctx, tx, laterOnce, args, kafka.Skipf("there already"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	consumer := inbox.NewConsumer(service, b.cfg, b.pool, inbox.Handlers{topic.Name: handle}, nil, registry, func() { wakes.Add(1) })
	go func() {
		defer close(done)
		if err := consumer.Run(ctx); err != nil {
			b.Errorf("consumer: %v", err)
		}
	}()
	b.Cleanup(func() { cancel(); <-done })
}

func results(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "result" {
					found[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return found
}

func TestLater_KeepsTheOrderAndCountsSkips(t *testing.T) {
	t.Parallel()
	b, registry, wakes := newBench(t), prometheus.NewRegistry(), &atomic.Int64{}
	b.produce(record("a", 3), record("a", 1), record("a", noSkip), record("a", 3), record("a", 2))
	b.runLater(func(int64) bool { return false }, wakes, registry)
	b.wantEffects("a", 3, 1, noSkip, 2)
	b.eventually("all five are counted", func() bool {
		got := results(t, registry)
		return got["applied"] == 4 && got["skipped"] == 1
	})
	if wakes.Load() == 0 {
		t.Error("nobody was woken")
	}
}

func TestLater_AValueThatNeverFitsIsParkedAlone(t *testing.T) {
	t.Parallel()
	b, registry, wakes := newBench(t), prometheus.NewRegistry(), &atomic.Int64{}
	b.produce(record("a", 1), record("bad", tooSmall), record("a", 2), record("bad", 5))
	b.runLater(func(int64) bool { return false }, wakes, registry)
	b.wantEffects("a", 1, 2)
	b.eventually("the bad record and what follows it are parked", func() bool { return b.count("SELECT count(*) FROM parked") == 2 })
	b.wantEffects("bad")
}

func TestQuiet_WakesNobody(t *testing.T) {
	t.Parallel()
	b, registry, wakes := newBench(t), prometheus.NewRegistry(), &atomic.Int64{}
	b.runLater(func(value int64) bool { return value != 7 }, wakes, registry)
	b.produce(record("a", 1), record("a", 2))
	b.wantEffects("a", 1, 2)
	b.produce(record("a", 3))
	b.wantEffects("a", 1, 2, 3) // the transactions before have told whom they tell
	if n := wakes.Load(); n != 0 {
		t.Errorf("quiet records woke %d times", n)
	}
	b.produce(record("a", 7))
	b.eventually("somebody is woken", func() bool { return wakes.Load() > 0 })
}
