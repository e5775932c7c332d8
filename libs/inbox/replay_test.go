package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	frame "ringfence.dev/libs/service"
)

func TestReplay_AppliesParkedRecordsOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	refuse := func(_ kafka.Record, value int64) error {
		if value == 2 || value == 50 {
			return kafka.Parkf("newer than this build")
		}
		return nil
	}
	b.failWith(refuse)
	b.run(b.pool)
	b.produce(record("a", 1), record("a", 2), record("a", 3), record("b", 50), record("b", 51), record("c", 1))
	b.eventually("four records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 4 })
	b.putsBack(t.Context(), "", `^TOPIC +PARKED AT +EVENT +KEY +ERROR\n(`+topic.Name+` +\S+Z +\S{36} +"[ab]" +"(newer than this build|an earlier record of this key is parked)"\n){4}$`)
	b.putsBack(frame.ForScript(t.Context()), "", `^\[(\{"topic":"`+topic.Name+`","parked_at":"[^"]+Z","event_id":"[^"]{36}","key":"[ab]","error":"(newer than this build|an earlier record of this key is parked)"\},?){4}\]\n$`)

	// From now on the handler fails only for the records of key b, as if a newer version could decode
	// the records of key a.
	b.failWith(func(rec kafka.Record, value int64) error {
		if rec.Key == "b" {
			return refuse(rec, value)
		}
		return nil
	})
	applied, parked, err := b.consumer(b.pool).Replay(t.Context(), topic.Name)
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	if applied != 2 {
		t.Fatalf("Replay: applied = %v, want 2", applied)
	}
	if parked != 2 {
		t.Fatalf("Replay: parked = %v, want 2", parked)
	}
	b.wantEffects("a", 1, 2, 3)
	b.produce(record("a", 4), record("b", 52))
	b.wantEffects("a", 1, 2, 3, 4) // key a is no longer parked
	b.eventually("b is still parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 3 })

	b.failWith(nil)
	b.putsBack(frame.ForScript(t.Context()), topic.Name, `^\{"applied":3,"parked":0,"topic":"`+topic.Name+`"\}\n$`)
	b.wantEffects("b", 50, 51, 52)
	b.putsBack(t.Context(), topic.Name, `^`+topic.Name+`: 0 records applied, 0 still parked\n$`)
	b.wantEffects("a", 1, 2, 3, 4)
}

func TestReplayRecord_AppliesTheRecordsOfOneKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	b.failWith(func(_ kafka.Record, value int64) error {
		if value == 2 || value == 50 {
			return kafka.Parkf("newer than this build")
		}
		return nil
	})
	b.run(b.pool)
	b.produce(record("a", 1), record("a", 2), record("a", 3), record("b", 50))
	b.eventually("three records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 3 })
	consumer := b.consumer(b.pool)
	found, err := consumer.Parked(t.Context(), 2)
	if err != nil {
		t.Fatalf("Parked: %v", err)
	}
	if len(found) != 2 {
		t.Fatalf("parked records = %d, want the newest 2", len(found))
	}
	var id uuid.UUID
	const first = "SELECT event_id FROM dead_letters WHERE key = 'a' ORDER BY parked_at, event_id LIMIT 1"
	err = b.pool.QueryRow(t.Context(), first).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}

	applied, parked, err := consumer.ReplayRecord(t.Context(), topic.Name, id)
	if err != nil {
		t.Fatalf("ReplayRecord with the same build: %v", err)
	}
	if applied != 0 {
		t.Errorf("applied by the same build = %d, want 0", applied)
	}
	if parked != 2 {
		t.Errorf("parked after the same build = %d, want 2", parked)
	}
	b.failWith(nil)
	applied, parked, err = consumer.ReplayRecord(t.Context(), topic.Name, id)
	if err != nil {
		t.Fatalf("ReplayRecord: %v", err)
	}
	if applied != 2 {
		t.Errorf("applied = %d, want 2", applied)
	}
	if parked != 0 {
		t.Errorf("still parked = %d, want 0", parked)
	}
	b.wantEffects("a", 1, 2, 3)
	if got := b.count("SELECT count(*) FROM dead_letters WHERE key = 'b'"); got != 1 {
		t.Errorf("parked records of the other key = %d, want 1", got)
	}
	if _, _, err := consumer.ReplayRecord(t.Context(), topic.Name, id); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("ReplayRecord of an applied record = %v, want ErrNotFound", err)
	}
}

// The id of a replayed record is kept longer than the other ids of its day, because a dead letter
// can be replayed later.
func TestReplay_KeepsTheIDsOfReplayedRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	b.failWith(func(_ kafka.Record, value int64) error {
		if value == 1 {
			return kafka.Parkf("newer than this build")
		}
		return nil
	})
	b.run(b.pool)
	parked := record("a", 1)
	b.produce(parked)
	b.eventually("the record is parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 1 })
	b.failWith(nil)
	applied, left, err := b.consumer(b.pool).Replay(t.Context(), topic.Name)
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	if applied != 1 {
		t.Errorf("applied records = %d, want 1", applied)
	}
	if left != 0 {
		t.Errorf("parked records = %d, want 0", left)
	}
	if _, err := b.pool.Exec(t.Context(), "DELETE FROM inbox_events"); err != nil {
		t.Fatalf("delete the ids of the day: %v", err)
	}
	b.produce(parked, record("a", 2))
	b.wantEffects("a", 1, 2)
}

func (b *bench) putsBack(ctx context.Context, topic, want string) {
	b.Helper()
	var output bytes.Buffer
	if err := b.consumer(b.pool).PutBack(ctx, topic, &output); err != nil {
		b.Errorf("PutBack: %v", err)
	} else if !regexp.MustCompile(want).Match(output.Bytes()) {
		b.Errorf("regexp.MustCompile(want).Match(output.Bytes()) = false, want true; output.String() = %s", output.String())
	}
}

// A replay of one key reads the dead letters from the time of its first parked record, and not
// beyond its last one.
func TestReplayRecord_ReadsOnlyTheDeadLettersThatItNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	b.failWith(func(_ kafka.Record, value int64) error {
		if value == 1 {
			return kafka.Parkf("newer than this build")
		}
		return nil
	})
	b.run(b.pool)
	b.produce(record("a", 1), record("a", 2))
	b.eventually("two records are parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 2 })
	b.eventually("two dead letters are published", func() bool { return b.count("SELECT count(*) FROM outbox") == 0 })
	var later []*kgo.Record // dead letters of the key that are not parked
	for range 5 {
		letter := record("a", 3)
		letter.Topic = kafka.DLQ(topic, service).Name
		later = append(later, letter)
	}
	b.produce(later...)
	consumer := b.consumer(b.pool)
	for _, row := range []struct {
		name, parkedAt string
		accepts        bool
		applied        int
		next           []int64
	}{
		{name: "parked after all dead letters", parkedAt: "now() + interval '1 hour'", accepts: true},
		{name: "the first is refused", parkedAt: "now()", next: []int64{1}},
		{
			name: "a clock that differs by minutes", parkedAt: "now() + interval '8 minutes'", accepts: true, applied: 2,
			next: []int64{2},
		},
	} {
		if _, err := b.pool.Exec(t.Context(), "UPDATE dead_letters SET parked_at = "+row.parkedAt); err != nil {
			t.Fatal(err)
		}
		if row.accepts {
			b.failWith(nil)
		} else {
			b.failWith(func(kafka.Record, int64) error { return kafka.Parkf("newer than this build") })
		}
		applied, next, err := consumer.ReplayPass(t.Context(), topic.Name, "a")
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if applied != row.applied {
			t.Errorf("%s: applied = %d, want %d", row.name, applied, row.applied)
		}
		if got := slices.Collect(maps.Values(next)); !slices.Equal(got, row.next) {
			t.Errorf("%s: offsets after the pass = %v, want %v", row.name, got, row.next)
		}
	}
}

func TestReplayRecord_OnlyOneReplayRunsAtATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay()
	b.failWith(func(kafka.Record, int64) error { return kafka.Parkf("newer than this build") })
	b.run(b.pool)
	b.produce(record("a", 1))
	b.eventually("the record is parked", func() bool { return b.count("SELECT count(*) FROM dead_letters") == 1 })
	b.failWith(nil)
	var id uuid.UUID
	if err := b.pool.QueryRow(t.Context(), "SELECT event_id FROM dead_letters").Scan(&id); err != nil {
		t.Fatal(err)
	}
	consumer := b.consumer(b.pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tried := make(chan struct{})
	b.onTry(func(int64) {
		close(tried)
		<-ctx.Done()
	})
	done := make(chan error, 1)
	go func() {
		_, _, err := consumer.ReplayRecord(ctx, topic.Name, id)
		done <- err
	}()
	<-tried
	if _, _, err := consumer.ReplayRecord(t.Context(), topic.Name, id); !errors.Is(err, inbox.ErrReplayRuns) {
		t.Errorf("second replay = %v, want ErrReplayRuns", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("replay with a canceled context = %v, want context.Canceled", err)
	}
	b.onTry(nil)
	applied, _, err := consumer.ReplayRecord(t.Context(), topic.Name, id)
	if err != nil {
		t.Errorf("replay after the first has ended: %v", err)
	}
	if applied != 1 {
		t.Errorf("applied = %d, want 1", applied)
	}
}
