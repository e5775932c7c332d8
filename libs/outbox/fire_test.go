package outbox_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
)

const aggregates = 16

// writeAll numbers the events of each aggregate in order. Its transactions wait between insert and
// commit, so that they commit in another order than their ids.
func writeAll(t testing.TB, pool *pgxpool.Pool, perAggregate int, wake func()) {
	t.Helper()
	_, err := pgtest.Owner(t, pool, schema).Exec(t.Context(), `
		CREATE TABLE IF NOT EXISTS aggregate (id int PRIMARY KEY, seq int NOT NULL DEFAULT 0);
		INSERT INTO aggregate (id) SELECT generate_series(0, 15) ON CONFLICT DO NOTHING`)
	if err != nil {
		t.Fatal(err)
	}
	var left [aggregates]atomic.Int64
	for i := range left {
		left[i].Store(int64(perAggregate))
	}
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for misses := 0; misses < 200; {
				id := rand.IntN(aggregates)
				if left[id].Add(-1) < 0 {
					misses++
					continue
				}
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					var seq int
					if err := tx.QueryRow(t.Context(), "UPDATE aggregate SET seq = seq + 1 WHERE id = $1 RETURNING seq", id).Scan(&seq); err != nil {
						return err
					}
					if err := outbox.Put(t.Context(), tx, fact(keyOf(id), seq)); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), "SELECT pg_sleep($1::float8 / 1000)", rand.Float64()*4)
					return err
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				wake()
			}
		})
	}
	writers.Wait()
}

// firstDeliveries returns, by key, the events in the order of their first delivery.
func firstDeliveries(t testing.TB, records []*kgo.Record) (byKey map[string][]int, duplicates int) {
	byKey, seen := map[string][]int{}, map[string]bool{}
	for _, wire := range records {
		rec, err := kafka.Read(wire)
		if err != nil {
			t.Fatal(err)
		}
		if seen[rec.EventID.String()] {
			duplicates++
			continue
		}
		seen[rec.EventID.String()] = true
		byKey[rec.Key] = append(byKey[rec.Key], seqOf(t, wire))
	}
	return byKey, duplicates
}

func wantComplete(t testing.TB, byKey map[string][]int, perAggregate int) {
	t.Helper()
	for id := range aggregates {
		got := byKey[keyOf(id)]
		if len(got) != perAggregate {
			t.Errorf("%s has %d facts, want %d", keyOf(id), len(got), perAggregate)
		}
		for i, seq := range got {
			if seq != i+1 {
				t.Errorf("%s: fact %d came at place %d", keyOf(id), seq, i+1)
				break
			}
		}
	}
}

func collectAll(t testing.TB, pool *pgxpool.Pool, cfg kafka.Config, facts int) []*kgo.Record {
	t.Helper()
	testkit.Until(t, "the outbox is empty", func() bool { return countRows(t, pool) == 0 })
	return collect(t, cfg, kafka.CallRequests.Name, func(records []*kgo.Record) bool {
		_, duplicates := firstDeliveries(t, records)
		return len(records)-duplicates >= facts
	})
}

func TestRelay_ConcurrentWritersKeepAllEventsInOrder(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	relay, _ := startRelay(t, pool, cfg)
	writeAll(t, pool, 60, relay.Wake)
	byKey, _ := firstDeliveries(t, collectAll(t, pool, cfg, 60*aggregates))
	wantComplete(t, byKey, 60)
}

const (
	// relaySession selects the session of a relay by the session's last statement. The statements that
	// read the age of the oldest row do not use this session.
	relaySession = ` FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE ANY (ARRAY['DELETE FROM outbox WHERE%', '%bytes_before%', '%outbox_leases%', 'LISTEN%'])
			AND query NOT LIKE '%AS bounded%' AND pid <> pg_backend_pid()`
	leading = `SELECT count(pg_terminate_backend(pid))` + relaySession
	// lingers counts the sessions that have published rows and are about to delete them.
	lingers = `SELECT count(*)` + relaySession + ` AND wait_event = 'PgSleep'`
)

func TestRelay_KillBetweenAckAndDeleteRepeatsEvents(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	super := pgtest.Super(t, pool, schema)
	// A trigger delays the deletion of published rows. The first deletion waits until its relay is
	// killed, so that this kill happens between acknowledgement and deletion. Later deletions wait for
	// a moment, and the later kills happen at any time.
	_, err := super.Exec(t.Context(), `
		CREATE TABLE lingering AS SELECT 3600::float8 AS seconds;
		GRANT SELECT ON lingering TO PUBLIC;
		CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(seconds) FROM lingering; RETURN NULL; END $$;
		CREATE TRIGGER linger BEFORE DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION linger()`)
	if err != nil {
		t.Fatal(err)
	}
	kill := func(ctx context.Context, victim string) (hit int) {
		_ = super.QueryRow(ctx, victim).Scan(&hit)
		return hit
	}
	startRelay(t, pool, cfg)
	if err := put(t, pool, fact("first", 1)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a relay lingers", func() bool { return kill(t.Context(), lingers) > 0 })
	if _, err := super.Exec(t.Context(), "UPDATE lingering SET seconds = 0.03"); err != nil {
		t.Fatal(err)
	}
	first := kill(t.Context(), leading)
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		n := first
		for ctx.Err() == nil {
			n += kill(ctx, leading)
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(60 * time.Millisecond)):
			}
		}
		killed <- n
	}()
	writeAll(t, pool, 60, func() {})
	stop()
	kills := <-killed
	byKey, duplicates := firstDeliveries(t, collectAll(t, pool, cfg, 1+60*aggregates))
	wantComplete(t, byKey, 60)
	t.Logf("%d kills, %d duplicates", kills, duplicates)
	if kills == 0 {
		t.Error("kills = 0, want more")
	} else if duplicates == 0 {
		t.Error("duplicates = 0, want more")
	}
}

func TestRelay_KeepsTheOrderWhenAnotherReplicaTakesOver(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	first, stop := startRelay(t, pool, cfg)
	if err := put(t, pool, fact(keyOf(0), 0)); err != nil {
		t.Fatal(err)
	}
	first.Wake()
	testkit.Until(t, "the first replica leads", func() bool { return countRows(t, pool) == 0 })
	second, _ := startRelay(t, pool, cfg)
	var n atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		testkit.Until(t, "half is written", func() bool { return n.Load() > 300 })
		stop()
	}()
	writeAll(t, pool, 40, func() { n.Add(1); second.Wake() })
	<-done
	// If a leader is killed between an acknowledgement and the deletion of the rows, the next leader
	// publishes these events again.
	byKey, _ := firstDeliveries(t, collectAll(t, pool, cfg, 1+40*aggregates))
	byKey[keyOf(0)] = byKey[keyOf(0)][1:]
	wantComplete(t, byKey, 40)
}

func TestRelay_MissingTopicDoesNotDelayOtherTopics(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	relay, _ := startRelay(t, pool, cfg)
	lost := fact("k", 1)
	lost.TopicName = "nowhere.v1"
	dlq := fact("k", 2)
	// This topic is in the catalogue, but it does not exist.
	dlq.TopicName = kafka.DLQ(kafka.CallRequests, "newcomer").Name
	if err := put(t, pool, lost, dlq, fact("k", 3)); err != nil {
		t.Fatal(err)
	}
	relay.Wake()
	if got := seqOf(t, collect(t, cfg, kafka.CallRequests.Name, atLeast(1))[0]); got != 3 {
		t.Errorf("record = %d, want 3", got)
	}
	if got := seqOf(t, collect(t, cfg, dlq.TopicName, atLeast(1))[0]); got != 2 {
		t.Errorf("record = %d, want 2", got)
	}
	testkit.Until(t, "only the lost one is left", func() bool { return countRows(t, pool) == 1 })
}
