package e2e

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// unknownEvent is the number of a member of CallRequestEvent that no version has.
const unknownEvent = 9999

// parkedRecord is a record that a service could not apply.
type parkedRecord struct {
	Service, Topic, Key, Error string
	EventID                    string `json:"event_id"`
}

// TestUpgrade_OldServicesParkEventsOfLaterVersions publishes events that the old services do not
// know: an event of no version and, if RINGFENCE_OLD_BIN names binaries without call_overdue, that
// event too. The old services must park them and continue. The new services apply them when they
// are replayed.
//
// The records of call-turns.v1 need no such test: a service without call.turn does not read this
// topic.
func TestUpgrade_OldServicesParkEventsOfLaterVersions(t *testing.T) {
	now := binaries(t)
	old := cmp.Or(os.Getenv("RINGFENCE_OLD_BIN"), copies(t, now))
	place := linked(t, now)
	for _, name := range servicesInOrder() {
		put(t, place, old, name)
	}
	hooks, bus := receiver(t), kafkatest.New(t)
	s := start(t, place, "KAFKA_BROKERS="+strings.Join(bus.Brokers, ","), "SSL_CERT_FILE="+hooks.CAFile)
	w := tenant(t, s, hooks, "1000")
	accepted := map[string]string{}
	req := placeOne(t, w, accepted)
	judge(t, s, w, hooks, accepted)

	client, err := kgo.NewClient(kgo.SeedBrokers(bus.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	unknown := laterEvent(t, w.ID, uuid.NewString(), nil)
	// The call has ended a moment ago, so the dialer has nothing to do when it applies the event.
	overdue := laterEvent(t, w.ID, req.ID, &eventv1.Call{
		CallId: *req.CallID, Direction: "outbound", From: "+15005550006", ToE164: req.To, AgentId: w.AgentID,
		Status: "in_progress", Version: 3,
	})
	if err := client.ProduceSync(t.Context(), unknown, overdue).FirstErr(); err != nil {
		t.Fatal(err)
	}
	awaitNoLag(t, kadm.NewClient(client))
	placeOne(t, w, accepted)
	judge(t, s, w, hooks, accepted)

	for _, name := range servicesInOrder() {
		replaceReplicas(t, s, place, old, now, name)
	}
	for _, record := range parkedRecords(t, w) {
		t.Logf("parked by %s: %s %s: %s", record.Service, record.Topic, record.Key, record.Error)
		if record.Key != req.ID {
			continue
		}
		var replayed struct{ Applied, Parked int }
		path := "/admin/v1/parked-records/" + record.EventID + "/replay"
		body := map[string]any{"service": record.Service, "topic": record.Topic}
		if err := w.Admin.Into(t.Context(), "POST", path, body, 200, &replayed); err != nil {
			t.Fatal(err)
		}
		if replayed.Applied != 1 || replayed.Parked != 0 {
			t.Errorf("replay of call_overdue in %s = %+v, want 1 applied", record.Service, replayed)
		}
	}
	var readers []string
	for _, record := range parkedRecords(t, w) {
		if record.Key != string(unknown.Key) || !strings.Contains(record.Error, "newer than this build") {
			t.Errorf("parked record = %+v, want only the unknown event", record)
		}
		readers = append(readers, record.Service)
	}
	slices.Sort(readers)
	sharedstack.Equal(t, "services that parked the unknown event", strings.Join(readers, " "), "billing-wallet dialer")
	placeOne(t, w, accepted)
	judge(t, s, w, hooks, accepted)
}

// placeOne places a call and waits until its request has ended.
func placeOne(t *testing.T, w *kit.Workspace, accepted map[string]string) (req kit.Request) {
	t.Helper()
	to := number(7_900_000 + len(accepted))
	placed, err := w.Place(t.Context(), map[string]any{"to": to})
	if err != nil {
		t.Fatal(err)
	}
	accepted[placed.ID] = to
	until(t, "the request ends", func() bool {
		err := w.API.Into(t.Context(), "GET", "/v1/call-requests/"+placed.ID, nil, 200, &req)
		return err == nil && req.Status == "completed"
	})
	return req
}

// laterEvent returns a record of call-requests.v1 with the event call_overdue. If call is nil, the
// event is one that no version knows.
func laterEvent(t *testing.T, workspaceID, requestID string, call *eventv1.Call) *kgo.Record {
	t.Helper()
	event := &eventv1.CallRequestEvent{
		CallRequestId: requestID, WorkspaceId: workspaceID, OccurredAt: timestamppb.Now(),
	}
	if call != nil {
		event.Event = &eventv1.CallRequestEvent_CallOverdue{CallOverdue: &eventv1.CallOverdue{Call: call}}
	}
	value, err := proto.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	if call == nil {
		value = protowire.AppendTag(value, unknownEvent, protowire.BytesType)
		value = protowire.AppendBytes(value, nil)
	}
	header := func(name, text string) kgo.RecordHeader { return kgo.RecordHeader{Key: name, Value: []byte(text)} }
	return &kgo.Record{
		Topic: kafka.CallRequests.Name, Key: []byte(requestID), Value: value, Headers: []kgo.RecordHeader{
			header(kafka.HeaderID, uuid.Must(uuid.NewV7()).String()), header(kafka.HeaderSource, "calls"),
			header(kafka.HeaderSpecVersion, "1.0"),
			header(kafka.HeaderType, string(event.ProtoReflect().Descriptor().FullName())),
			header(kafka.HeaderTime, time.Now().UTC().Format(time.RFC3339Nano)), header(kafka.HeaderKey, requestID),
			header(kafka.HeaderWorkspaceID, workspaceID),
		},
	}
}

func parkedRecords(t *testing.T, w *kit.Workspace) []parkedRecord {
	t.Helper()
	var page struct {
		Data        []parkedRecord
		Unavailable []string
	}
	if err := w.Admin.Into(t.Context(), "GET", "/admin/v1/parked-records", nil, 200, &page); err != nil {
		t.Fatal(err)
	}
	sharedstack.Equal(t, "services that did not respond", strings.Join(page.Unavailable, " "), "")
	return page.Data
}
