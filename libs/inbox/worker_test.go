package inbox

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit/pgtest"
)

// The position must not move past a record that was not applied. So the worker must not apply the
// following records either.
func TestWorker_AppliesNoRecordAfterAFailedRecord(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "inbox_test", Migrations, outbox.Migrations)
	client, err := kgo.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	topic := kafka.CallRequests.Name
	tried := make(chan struct{}, 1)
	handle := func(_ context.Context, _ pgx.Tx, rec kafka.Record) error {
		if string(rec.Value) != "first" {
			return nil
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return errors.New("away")
	}
	c := NewConsumer("dialer", kafka.Config{}, pool, Handlers{topic: Each(handle, nil)}, nil, nil)
	one := func(offset int64, value string) []*kgo.Record {
		id := kgo.RecordHeader{Key: kafka.HeaderID, Value: []byte(uuid.NewString())}
		return []*kgo.Record{{Topic: topic, Offset: offset, Value: []byte(value), Headers: []kgo.RecordHeader{id}}}
	}
	// Each select chooses one of two ready channels at random, so the test is repeated to cover both
	// choices.
	for round := range 20 {
		w := newWorker(&group{consumer: c}, client, partition{topic, 0})
		w.start(startAt(t, c, w.partition))
		go w.run()
		w.queueRecords(one(0, "first"))
		<-tried
		for offset := range int64(3) {
			w.queueRecords(one(1+offset, "later"))
		}
		close(w.stopping)
		<-w.done
		if got := countRows(t, pool, "inbox_events"); got != 0 {
			t.Fatalf("round %d: applied records = %d, want 0", round, got)
		}
		select {
		case <-tried:
		default:
		}
	}
}
