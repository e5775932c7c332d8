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
	"ringfence.dev/libs/pgtest"
)

// TestWorker_NothingBehindAnUnsettledRecordIsApplied stops a worker that cannot apply a record while more wait: what is applied is marked,
// and what lies before a mark is never read again.
func TestWorker_NothingBehindAnUnsettledRecordIsApplied(t *testing.T) {
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
	c := NewConsumer("dialer", kafka.Config{}, pool, Handlers{topic: handle}, nil, nil)
	one := func(value string) []*kgo.Record {
		id := kgo.RecordHeader{Key: kafka.HeaderID, Value: []byte(uuid.NewString())}
		return []*kgo.Record{{Topic: topic, Value: []byte(value), Headers: []kgo.RecordHeader{id}}}
	}
	for round := range 20 { // which of two ready channels a select takes is chance
		w := newWorker(&group{consumer: c}, client, partition{topic, 0})
		go w.run()
		w.take(one("first"))
		<-tried
		for range 3 {
			w.take(one("later"))
		}
		close(w.stopping)
		<-w.done
		var applied int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM inbox").Scan(&applied); err != nil {
			t.Fatal(err)
		}
		if applied != 0 {
			t.Fatalf("round %d: %d records behind the unsettled one were applied", round, applied)
		}
		select {
		case <-tried:
		default:
		}
	}
}
