package consumer_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/consumer"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/settlement"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

const testTimeout = 2 * time.Minute

type service struct {
	*testing.T
	pool    *pgxpool.Pool
	store   *store.Store
	bus     *kafka.Client
	metrics *prometheus.Registry
}

func start(t *testing.T) *service {
	t.Helper()
	cfg := kafkatest.New(t)
	bus, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := wallettest.Pool(t)
	metrics := prometheus.NewRegistry()
	s := &service{T: t, pool: pool, store: store.New(pool), bus: bus, metrics: metrics}
	relay := outbox.NewRelay(pool, bus, metrics, outbox.Config{})
	settler := settlement.NewSettler(s.store, relay, metrics)
	handlers := consumer.New(s.store, settler.Wake).Handlers()
	events := inbox.NewConsumer("billing-wallet", cfg, pool, handlers, relay, metrics)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{relay.Run, settler.Run, events.Run} {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		stop()
		for range cap(ended) {
			if err := <-ended; err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		bus.Close()
	})
	return s
}

func (s *service) publish(topic kafka.Topic, key string, id uuid.UUID, message proto.Message) {
	s.Helper()
	value, err := proto.Marshal(message)
	if err != nil {
		s.Fatal(err)
	}
	s.send(topic, key, id, string(message.ProtoReflect().Descriptor().FullName()), value)
}

func (s *service) send(topic kafka.Topic, key string, id uuid.UUID, kind string, value []byte) {
	s.Helper()
	record := &kgo.Record{Topic: topic.Name, Key: []byte(key), Value: value, Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(id.String())}, {Key: kafka.HeaderType, Value: []byte(kind)},
	}}
	if err := s.bus.ProduceSync(s.Context(), record).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

func (s *service) waitUntil(what string, holds func() (bool, error)) {
	s.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	end := time.After(testTimeout)
	for {
		ok, err := holds()
		if err != nil {
			s.Fatal(err)
		}
		if ok {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			s.Fatalf("did not happen: %s", what)
		}
	}
}

func (s *service) checkCount(what, query string, want int, args ...any) {
	s.Helper()
	s.waitUntil(what, func() (bool, error) {
		var n int
		err := s.pool.QueryRow(s.Context(), query, args...).Scan(&n)
		return n == want, err
	})
}

func (s *service) placeHold(workspace uuid.UUID) uuid.UUID {
	s.Helper()
	order := wallettest.Order(workspace)
	decisions, err := s.store.Hold(s.Context(), workspace, []holds.Order{order})
	if err != nil {
		s.Fatalf("Hold: %v", err)
	}
	if decisions[0].Err != nil {
		s.Fatalf("decisions[0].Err = %v, want nil", decisions[0].Err)
	}
	return order.RequestID
}

func dial(request, workspace uuid.UUID, event any, seconds int32) *eventv1.DialEvent {
	message := &eventv1.DialEvent{CallRequestId: request.String(), WorkspaceId: workspace.String(),
		Call: &eventv1.Call{CallId: uuid.NewSHA1(request, nil).String(), BillableSeconds: seconds}}
	switch e := event.(type) {
	case *eventv1.Ended:
		message.Event = &eventv1.DialEvent_Ended{Ended: e}
	case *eventv1.Answered:
		message.Event = &eventv1.DialEvent_Answered{Answered: e}
	case *eventv1.Withdrawn:
		message.Event, message.Call = &eventv1.DialEvent_Withdrawn{Withdrawn: e}, nil
	case *eventv1.Blocked:
		message.Event, message.Call = &eventv1.DialEvent_Blocked{Blocked: e}, nil
	case *eventv1.Failed:
		message.Event, message.Call = &eventv1.DialEvent_Failed{Failed: e}, nil
	}
	return message
}

func order(request, workspace uuid.UUID) *eventv1.CallRequestEvent {
	return &eventv1.CallRequestEvent{CallRequestId: request.String(), WorkspaceId: workspace.String()}
}

func TestEvents_RepeatedAndReorderedEventsSettleTheHoldOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 10*money.Credit)
	const requests = 12
	type sent struct {
		topic   kafka.Topic
		key     string
		id      uuid.UUID
		message proto.Message
	}
	var events []sent
	charged := money.Micro(0)
	for i := range requests {
		request := s.placeHold(workspace)
		requested := order(request, workspace)
		requested.Event = &eventv1.CallRequestEvent_Requested{Requested: &eventv1.Requested{}}
		end := []*eventv1.DialEvent{
			dial(request, workspace, &eventv1.Ended{}, int32(10*i+1)), dial(request, workspace, &eventv1.Ended{}, 0),
			dial(request, workspace, &eventv1.Withdrawn{}, 0), dial(request, workspace, &eventv1.Blocked{}, 0),
			dial(request, workspace, &eventv1.Failed{}, 0), dial(request, workspace, &eventv1.Ended{}, 100_000),
		}[i%6]
		if end.Call.GetBillableSeconds() > 0 {
			charged += min(money.Price(50_000, end.Call.BillableSeconds, 1), money.Credit/2)
		}
		for _, message := range []sent{
			{kafka.CallRequests, request.String(), wallettest.ID(), requested},
			{kafka.DialEvents, request.String(), wallettest.ID(), dial(request, workspace, &eventv1.Answered{}, 0)},
			{kafka.DialEvents, request.String(), wallettest.ID(), end},
		} {
			again := message
			again.id = wallettest.ID() // the event of the same end arrives again with another event id
			events = append(events, message, message, again)
		}
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for _, f := range events {
		s.publish(f.topic, f.key, f.id, f.message)
	}
	s.checkCount("every record is in the inbox", `SELECT count(*) FROM inbox_events`, requests*6)
	s.checkCount("no settlement is pending", `SELECT count(*) FROM pending_settlements`, 0)
	wallettest.Balances(t, s.store, workspace, 10*money.Credit-charged, 0)

	published := s.publishedEvents(requests)
	for request, kinds := range published {
		if len(kinds) != 1 {
			t.Errorf("events of request %s = %v, want one", request, kinds)
		}
	}
}

// publishedEvents reads wallet-events.v1 until all events of the outbox are published and events of
// the wanted number of requests were read. It returns the events of each request.
func (s *service) publishedEvents(want int) map[string][]string {
	s.Helper()
	published := map[string][]string{}
	enough := func() bool { return len(published) >= want }
	s.readWalletEvents(enough, func(record *kgo.Record, message *eventv1.WalletEvent) {
		if string(record.Key) != message.CallRequestId {
			s.Errorf("record.Key = %q, want %q", string(record.Key), message.CallRequestId)
		}
		kind := "released"
		if captured := message.GetCaptured(); captured != nil {
			kind = money.Micro(captured.AmountMicro).String() + " " + captured.Currency
		}
		published[message.CallRequestId] = append(published[message.CallRequestId], kind)
	})
	return published
}

// walletEvents reads wallet-events.v1 until the topic has the wanted number of events and the
// outbox is empty.
func (s *service) walletEvents(want int) (events []*eventv1.WalletEvent) {
	s.Helper()
	s.readWalletEvents(func() bool { return len(events) >= want }, func(_ *kgo.Record, message *eventv1.WalletEvent) {
		events = append(events, message)
	})
	return events
}

func (s *service) readWalletEvents(enough func() bool, each func(*kgo.Record, *eventv1.WalletEvent)) {
	s.Helper()
	s.checkCount("everything is published", `SELECT count(*) FROM outbox`, 0)
	reader, err := kafka.NewClient(kafka.Config{Brokers: s.bus.Client.OptValue(kgo.SeedBrokers).([]string)}, "reader", nil,
		kgo.ConsumeTopics(kafka.WalletEvents.Name))
	if err != nil {
		s.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	for !enough() {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			s.Fatalf("read wallet events: %v", err)
		}
		fetched.EachRecord(func(record *kgo.Record) {
			message := &eventv1.WalletEvent{}
			if err := proto.Unmarshal(record.Value, message); err != nil {
				s.Errorf("proto.Unmarshal: %v", err)
				return
			}
			each(record, message)
		})
	}
}

func TestEvents_EndOfARequestReleasesTheHold(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	canceled, abandoned := order(s.placeHold(workspace), workspace), order(s.placeHold(workspace), workspace)
	canceled.Event = &eventv1.CallRequestEvent_Canceled{Canceled: &eventv1.Canceled{}}
	abandoned.Event = &eventv1.CallRequestEvent_Abandoned{Abandoned: &eventv1.Abandoned{}}
	s.publish(kafka.CallRequests, canceled.CallRequestId, wallettest.ID(), canceled)
	s.publish(kafka.CallRequests, abandoned.CallRequestId, wallettest.ID(), abandoned)
	s.checkCount("both are released", `SELECT count(*) FROM holds WHERE state = 'released'`, 2)
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}

// The two events that end a request can be in two topics or in one topic.
func TestEvents_SecondEndOfARequestIsOnlyCounted(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 10*money.Credit)
	abandon := func(request uuid.UUID) proto.Message {
		message := order(request, workspace)
		message.Event = &eventv1.CallRequestEvent_Abandoned{Abandoned: &eventv1.Abandoned{}}
		return message
	}
	end := func(seconds int32) func(uuid.UUID) proto.Message {
		return func(request uuid.UUID) proto.Message { return dial(request, workspace, &eventv1.Ended{}, seconds) }
	}
	published := 0
	for _, row := range []struct {
		first, second     func(uuid.UUID) proto.Message
		firstIn, secondIn kafka.Topic
		state, late       string
	}{
		{end(60), end(600), kafka.DialEvents, kafka.DialEvents, "captured", "second_capture"},
		{abandon, end(60), kafka.CallRequests, kafka.DialEvents, "released", "capture_after_release"},
		{end(60), abandon, kafka.DialEvents, kafka.CallRequests, "captured", "release_after_capture"},
		{abandon, end(0), kafka.CallRequests, kafka.DialEvents, "released", "second_release"},
	} {
		request := s.placeHold(workspace)
		s.publish(row.firstIn, request.String(), wallettest.ID(), row.first(request))
		s.checkCount("the first end settles as "+row.state,
			`SELECT count(*) FROM holds WHERE request_id = $1 AND state = $2`, 1, request, row.state)
		s.publish(row.secondIn, request.String(), wallettest.ID(), row.second(request))
		s.waitUntil("the second is counted as "+row.late, func() (bool, error) { return s.lateOutcomes(row.late) == 1, nil })
		published++
		if events := s.publishedEvents(published)[request.String()]; len(events) != 1 {
			t.Errorf("%s: events = %v, want one", row.late, events)
		}
	}
	wallettest.Balances(t, s.store, workspace, 10*money.Credit-2*50_000, 0)
}

func (s *service) lateOutcomes(kind string) float64 {
	s.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "ringfence_billing_late_settlements_total" && metric.GetLabel()[0].GetValue() == kind {
				return metric.GetCounter().GetValue()
			}
		}
	}
	s.Fatalf("late settlements are not counted by the kind %s", kind)
	return 0
}

func TestEvents_InvalidEventsAreParkedAndDoNotStopOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	request := s.placeHold(workspace)
	inbound := dial(uuid.New(), workspace, &eventv1.Ended{}, 60)
	inbound.CallRequestId = ""
	s.publish(kafka.DialEvents, inbound.Call.CallId, wallettest.ID(), inbound)
	broken := dial(request, workspace, &eventv1.Ended{}, 60)
	broken.Call = nil
	s.publish(kafka.DialEvents, uuid.NewString(), wallettest.ID(), broken)
	s.send(kafka.DialEvents, uuid.NewString(), wallettest.ID(), "ringfence.event.v1.DialEvent", []byte{0xff})
	newer := order(request, workspace) // an event of a type that this build does not know
	s.publish(kafka.CallRequests, uuid.NewString(), wallettest.ID(), newer)
	s.checkCount("three records are parked", `SELECT count(*) FROM dead_letters`, 3)
	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), dial(request, workspace, &eventv1.Ended{}, 60))
	s.checkCount("valid events are still applied",
		`SELECT count(*) FROM holds WHERE state = 'captured' AND captured_micro = 50000`, 1)
	wallettest.Balances(t, s.store, workspace, money.Credit-50_000, 0)
}
