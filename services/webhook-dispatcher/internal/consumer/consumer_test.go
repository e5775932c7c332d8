package consumer_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/consumer"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const schema = "webhook_dispatcher"

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

type fixture struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *store.Store
	kafka kafka.Config
	bus   *kafka.Client
	woken chan struct{}

	// These fields are set only by newSendingFixture.
	dispatcher *dispatch.Dispatcher
	endpoint   *endpoint
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := newDatabaseFixture(t)
	h.consume()
	return h
}

func newSendingFixture(t *testing.T) *fixture {
	t.Helper()
	h := newDatabaseFixture(t)
	h.dispatcher, h.endpoint = dispatcher(t, h.store)
	h.consume(h.dispatcher.Add)
	return h
}

func newDatabaseFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	cfg := kafkatest.New(t)
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	bus, err := kafka.NewClient(cfg, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := &fixture{t: t, pool: pool, store: store.New(pool, box), kafka: cfg, bus: bus, woken: make(chan struct{}, 1)}
	t.Cleanup(bus.Close)
	return h
}

// consume starts the consumer. It calls each function in added with the subscriptions that have new
// due deliveries.
func (h *fixture) consume(added ...func([]store.Due)) {
	h.t.Helper()
	wake := func() {
		select {
		case h.woken <- struct{}{}:
		default:
		}
	}
	queued := func(due []store.Due) {
		wake()
		for _, add := range added {
			add(due)
		}
	}
	wakes := consumer.Wakes{Queued: queued, WakeStreams: func([]uuid.UUID) {}, Dispatcher: wake, Relay: wake}
	handlers := consumer.New(h.store, wakes).Handlers()
	events := inbox.NewConsumer("webhook-dispatcher", h.kafka, h.pool, handlers, nil, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := events.Run(ctx); err != nil {
			h.t.Error(err)
		}
	}()
	h.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (h *fixture) publish(topic kafka.Topic, id uuid.UUID, key string, msg proto.Message) {
	h.t.Helper()
	value, err := proto.Marshal(msg)
	if err != nil {
		h.t.Fatal(err)
	}
	rec := &kgo.Record{Topic: topic.Name, Key: []byte(key), Value: value, Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(id.String())},
		{Key: kafka.HeaderType, Value: []byte(msg.ProtoReflect().Descriptor().FullName())},
		{Key: kafka.HeaderTraceParent, Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
	}}
	if err := h.bus.ProduceSync(h.t.Context(), rec).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fixture) subscribe(workspace uuid.UUID, events ...openapi.EventType) uuid.UUID {
	h.t.Helper()
	return h.subscribeAt("https://example.com/", workspace, events...)
}

func (h *fixture) subscribeAt(url string, workspace uuid.UUID, events ...openapi.EventType) uuid.UUID {
	h.t.Helper()
	id := uuid.Must(uuid.NewV7())
	sub := subscriptions.Subscription{ID: id, WorkspaceID: workspace, Name: "test", URL: url, Events: events}
	if err := h.store.Create(h.t.Context(), sub, "whsec_test"); err != nil {
		h.t.Fatal(err)
	}
	return id
}

func (h *fixture) await(sql string, want int, args ...any) {
	h.t.Helper()
	testkit.NoError(h.t, func() error {
		var n int
		if err := h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%s = %d, want %d", sql, n, want)
		}
		return nil
	})
}

func callEvent(call, workspace uuid.UUID, sequence int32, kind string) (*eventv1.CallEvent, uuid.UUID) {
	id := uuid.NewSHA1(call, []byte(kind))
	return &eventv1.CallEvent{
		CallId: call.String(), WorkspaceId: workspace.String(), OccurredAt: timestamppb.New(time.Unix(1780574400, 0)),
		Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{
			EventId: id.String(), Type: kind, Sequence: sequence, Body: fmt.Appendf(nil, `{"type":%q}`, kind),
		}},
	}, id
}

func TestCallEvents_RepeatedAndReorderedEventsAreDeliveredOnce(t *testing.T) {
	t.Parallel()
	h, ws, call := newFixture(t), uuid.New(), uuid.New()
	sub := h.subscribe(ws, "call.ringing", "call.completed")
	h.subscribe(ws, "call.completed")
	h.subscribe(uuid.New(), "call.completed")
	for _, kind := range []string{"call.completed", "call.answered", "call.ringing", "call.completed", "call.ringing"} {
		f, id := callEvent(call, ws, 1, kind)
		h.publish(kafka.CallEvents, id, call.String(), f)
	}
	// The same event arrives in a second record. The service `calls` publishes an event again if
	// its outbox was lost.
	again, _ := callEvent(call, ws, 1, "call.completed")
	h.publish(kafka.CallEvents, uuid.New(), call.String(), again)
	end, id := callEvent(uuid.New(), ws, 1, "call.completed")
	// This record has the same Kafka key as the earlier records, so the consumer reads it last.
	h.publish(kafka.CallEvents, id, call.String(), end)
	h.await(`SELECT count(*) FROM deliveries WHERE event_id = $1`, 2, id)
	h.await(`SELECT count(*) FROM deliveries WHERE subscription_id = $1 AND call_id = $2`, 2, sub, call)
	h.await(`SELECT count(*) FROM deliveries`, 5)
	h.await(`SELECT count(*) FROM delivery_queue`, 5)
	h.await(`SELECT count(*) FROM events`, 4) // call.answered is stored although no subscription lists it
	h.await(`SELECT count(*) FROM stream_events WHERE workspace_id = $1`, 4, ws)
	h.await(`SELECT count(*) FROM deliveries WHERE traceparent LIKE '00-%'`, 5)
	select {
	case <-h.woken:
	default:
		t.Error("the wake function was not called after the commit")
	}
}

// For an event of a call request, the column call_id contains the id of the call request.
func TestCallEvents_EventOfARequestIsDelivered(t *testing.T) {
	t.Parallel()
	h, ws, request := newFixture(t), uuid.New(), uuid.New()
	sub := h.subscribe(ws, "call_request.canceled")
	h.subscribe(ws, "call.completed")
	f, id := callEvent(request, ws, 1, "call_request.canceled")
	f.CallRequestId = request.String()
	h.publish(kafka.CallEvents, id, request.String(), f)
	h.publish(kafka.CallEvents, uuid.New(), request.String(), f)
	h.await(`SELECT count(*) FROM delivery_queue WHERE subscription_id = $1 AND call_id = $2`, 1, sub, request)
	end, endID := callEvent(uuid.New(), ws, 1, "call.completed")
	// this record has the same Kafka key as the earlier records, so the consumer reads it last
	h.publish(kafka.CallEvents, endID, request.String(), end)
	h.await(`SELECT count(*) FROM delivery_queue WHERE event_id = $1`, 1, endID)
	h.await(`SELECT count(*) FROM deliveries`, 2)
}

func TestCallEvents_RepeatedRecordOfADeliveredEventQueuesNothing(t *testing.T) {
	t.Parallel()
	h, ws, call := newFixture(t), uuid.New(), uuid.New()
	h.subscribe(ws, "call.completed")
	f, id := callEvent(call, ws, 1, "call.completed")
	h.publish(kafka.CallEvents, id, call.String(), f)
	h.await(`SELECT count(*) FROM delivery_queue`, 1)
	if err := pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `UPDATE deliveries SET status = 'delivered', done_at = now()`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `DELETE FROM delivery_queue`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.publish(kafka.CallEvents, uuid.New(), call.String(), f)
	end, endID := callEvent(uuid.New(), ws, 1, "call.completed")
	h.publish(kafka.CallEvents, endID, call.String(), end)
	h.await(`SELECT count(*) FROM delivery_queue WHERE event_id = $1`, 1, endID)
	h.await(`SELECT count(*) FROM delivery_queue`, 1)
}

func TestCallEvents_UnreadableRecordsAreParkedAndOtherRecordsAreApplied(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	h.subscribe(ws, "call.completed")
	broken, id := callEvent(uuid.New(), ws, 1, "call.completed")
	broken.GetPublic().Body = []byte("not JSON")
	h.publish(kafka.CallEvents, id, "broken", broken)
	newer := &eventv1.CallEvent{CallId: uuid.NewString(), WorkspaceId: ws.String()}
	h.publish(kafka.CallEvents, uuid.New(), "newer", newer)
	good, goodID := callEvent(uuid.New(), ws, 1, "call.completed")
	h.publish(kafka.CallEvents, goodID, "good", good)
	h.await(`SELECT count(*) FROM delivery_queue WHERE event_id = $1`, 1, goodID)
	h.await(`SELECT count(*) FROM dead_letters`, 2)
	h.await(`SELECT count(*) FROM outbox`, 2)
}

func TestWorkspaces_NewestVersionIsStored(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	for _, step := range []struct {
		version int64
		status  string
	}{{1, "active"}, {3, "suspended"}, {2, "active"}, {3, "suspended"}} {
		h.publish(kafka.Workspaces, uuid.New(), ws.String(), &eventv1.WorkspaceEvent{
			WorkspaceId: ws.String(), Version: step.version,
			Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{
				Status: step.status, WebhooksEnabled: step.version != 3, KeepWebhooksDays: int32(step.version),
			}},
		})
	}
	last := uuid.New()
	h.publish(kafka.Workspaces, uuid.New(), ws.String(), &eventv1.WorkspaceEvent{
		WorkspaceId: last.String(), Version: 1, Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Status: "active"}},
	})
	h.await(`SELECT count(*) FROM workspaces WHERE id = $1`, 1, last)
	h.await(`
		SELECT count(*) FROM workspaces
		WHERE id = $1 AND version = 3 AND suspended AND NOT webhooks_enabled AND keep_days = 3`, 1, ws)
	h.await(`SELECT count(*) FROM workspaces WHERE id = $1 AND keep_days IS NULL`, 1, last)
}
