package httpapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
)

func wire(topic kafka.Topic, key string, id uuid.UUID, event proto.Message) *kgo.Record {
	value, _ := proto.Marshal(event)
	return &kgo.Record{Topic: topic.Name, Key: []byte(key), Value: value, Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(id.String())},
		{Key: kafka.HeaderType, Value: []byte(event.ProtoReflect().Descriptor().FullName())},
	}}
}

func TestKafka_EventsArePublishedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := kafkatest.New(t)
	client, err := kafka.NewClient(cfg, "test", prometheus.NewRegistry(), kgo.ConsumeTopics(kafka.CallEvents.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	relay := outbox.NewRelay(r.pool, client, prometheus.NewRegistry(), outbox.Config{})
	listening := inbox.NewConsumer("calls", cfg, r.pool, r.handlers, relay, prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, run := range []func(context.Context) error{relay.Run, listening.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part ended: %v", err)
			}
		})
	}

	const calls = 8
	var records []*kgo.Record
	for i := range calls {
		a := r.account(r.place("to", number(i)))
		for _, event := range []proto.Message{a.fenced(), a.dialing(), a.ringing(), a.answered(), a.ended("completed",
			"normal_clearing"), a.analysed()} {
			records = append(records, wire(kafka.DialEvents, a.request.String(), uuid.New(), event))
		}
		records = append(records, wire(kafka.WalletEvents, a.request.String(), uuid.New(), a.captured(5000)))
	}
	poison := wire(kafka.DialEvents, "poison", uuid.New(), &eventv1.DialEvent{})
	poison.Value = []byte("no protobuf")
	records = append(records, poison)
	for range 2 {
		for _, rec := range records {
			again := *rec
			if err := client.ProduceSync(ctx, &again).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}

	got := map[string][]string{}
	reading, cancel := context.WithTimeout(ctx, testkit.Timeout)
	defer cancel()
	for complete := 0; complete < calls; {
		fetches := client.PollFetches(reading)
		if reading.Err() != nil {
			t.Fatalf("public events = %v; inbox %d, outbox %d, parked %d, calls %d", got,
				r.count(`SELECT count(*) FROM inbox_events`), r.count(`SELECT count(*) FROM outbox`), r.count(`SELECT count(*)
				FROM dead_letters`), r.count(`SELECT count(*) FROM calls`))
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			var ev eventv1.CallEvent
			if err := proto.Unmarshal(rec.Value, &ev); err != nil {
				t.Error(err)
			}
			var envelope struct {
				Type string
				Data struct {
					CallID string `json:"call_id"`
				}
			}
			if err := json.Unmarshal(ev.GetPublic().GetBody(), &envelope); err != nil {
				t.Errorf("json.Unmarshal: %v", err)
			} else if envelope.Data.CallID != string(rec.Key) {
				t.Errorf("envelope.Data.CallID = %q, want %q; envelope.Type = %s",
					envelope.Data.CallID, string(rec.Key), envelope.Type)
			}
			got[string(rec.Key)] = append(got[string(rec.Key)], envelope.Type)
			if envelope.Type == "call.completed" {
				complete++
			}
		})
	}
	for id, types := range got {
		if !slices.Equal(types, []string{"call.ringing", "call.answered", "call.completed"}) {
			t.Errorf("call %s: events %v", id, types)
		}
	}
	testkit.Until(t, "the poison record to be parked", func() bool {
		return r.count(`SELECT count(*) FROM calls WHERE NOT closed`) == 0 && r.count(`SELECT count(*) FROM dead_letters`) > 0
	})
}
