package consumer_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/consumer"
	"ringfence.dev/services/dialer/internal/store"
)

func order(id uuid.UUID, overdue bool) *eventv1.CallRequestEvent {
	now := timestamppb.Now()
	return &eventv1.CallRequestEvent{
		CallRequestId: id.String(), WorkspaceId: uuid.NewString(), OccurredAt: now,
		Event: &eventv1.CallRequestEvent_Requested{Requested: &eventv1.Requested{
			ToE164: "+14155550101", AgentId: uuid.NewString(), ScheduledFor: now, MaxCallSeconds: 60, QueuedAt: now, Overdue: overdue,
		}},
	}
}

func TestOverdueOrder_IsCountedUnderTheStateOfItsRequest(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	cfg, metrics := kafkatest.New(t), prometheus.NewRegistry()
	bus, err := kafka.NewClient(cfg, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	wakes := consumer.Wakes{Dialing: func() {}, Relay: func() {}}
	handlers := consumer.New(store.New(pool, uuid.New(), store.Timing{}), wakes, metrics).Handlers()
	groupConsumer := inbox.NewConsumer("dialer", cfg, pool, handlers, nil, metrics)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- groupConsumer.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	waiting, lost, eventID := uuid.New(), uuid.New(), uuid.NewString()
	for _, published := range []struct {
		id  string
		msg *eventv1.CallRequestEvent
	}{
		{uuid.NewString(), order(waiting, false)}, {uuid.NewString(), order(waiting, false)}, {uuid.NewString(), order(waiting, true)},
		{eventID, order(lost, true)}, {eventID, order(lost, true)}, {uuid.NewString(), order(lost, true)},
	} {
		value, err := proto.Marshal(published.msg)
		if err != nil {
			t.Fatal(err)
		}
		rec := &kgo.Record{
			Topic: kafka.CallRequests.Name,
			Key:   []byte(published.msg.GetCallRequestId()),
			Value: value,
			Headers: []kgo.RecordHeader{
				{
					Key:   kafka.HeaderID,
					Value: []byte(published.id),
				}, {Key: kafka.HeaderType, Value: []byte(published.msg.ProtoReflect().Descriptor().FullName())},
			},
		}
		if err := bus.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]float64{"waiting": 2, "lost": 1, "over": 0}
	testkit.NoError(t, func() error {
		if got := found(t, metrics); !maps.Equal(got, want) {
			return fmt.Errorf("overdue orders = %v, want %v", got, want)
		}
		return nil
	})
	var queued int
	if err := pool.QueryRow(t.Context(),
		`SELECT count(*) FROM dial_queue WHERE state = 'queued'`).Scan(&queued); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if queued != 2 {
		t.Errorf("queued = %v, want 2", queued)
	}
}

func found(t *testing.T, metrics *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "ringfence_dialer_overdue_requests_total" {
			for _, metric := range family.GetMetric() {
				counts[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// An inbound call has no request. The dialer's database has lost the call.
func TestCallOverdueEvent_PublishesTheEndOfALostInboundCall(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	metrics := prometheus.NewRegistry()
	wakes := consumer.Wakes{Dialing: func() {}, Relay: func() {}}
	handlers := consumer.New(store.New(pool, uuid.New(), store.Timing{}), wakes, metrics).Handlers()
	callID, now := uuid.New(), timestamppb.Now()
	value, err := proto.Marshal(&eventv1.CallRequestEvent{
		WorkspaceId: uuid.NewString(), OccurredAt: now,
		Event: &eventv1.CallRequestEvent_CallOverdue{CallOverdue: &eventv1.CallOverdue{Call: &eventv1.Call{
			CallId: callID.String(), Direction: "inbound", From: "anonymous", ToE164: "+15005550006", AgentId: uuid.NewString(),
			Status: "in_progress", RingingAt: now, AnsweredAt: now, Version: 2,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	record := kafka.Record{
		Topic: kafka.CallRequests.Name, Key: callID.String(), EventID: uuid.New(),
		Type: string((&eventv1.CallRequestEvent{}).ProtoReflect().Descriptor().FullName()), Value: value, Time: time.Now(),
	}
	if err := kafkatest.Commit(t.Context(), pool, handlers[kafka.CallRequests.Name], record); err != nil {
		t.Fatalf("apply call_overdue: %v", err)
	}
	want := map[string]float64{"waiting": 0, "lost": 1, "over": 0}
	if got := found(t, metrics); !maps.Equal(got, want) {
		t.Errorf("overdue calls = %v, want %v", got, want)
	}
	var payload []byte
	const query = `SELECT payload FROM outbox WHERE key = convert_to($1::text, 'UTF8')`
	if err := pool.QueryRow(t.Context(), query, callID).Scan(&payload); err != nil {
		t.Fatalf("read the event of the call: %v", err)
	}
	var event eventv1.DialEvent
	if err := proto.Unmarshal(payload, &event); err != nil {
		t.Fatal(err)
	}
	if event.GetEnded() == nil {
		t.Errorf("event = %T, want ended", event.GetEvent())
	}
}
