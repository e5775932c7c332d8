package kafka_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/kafkatest"
)

func TestEnsureTopics_CreatesTheCatalogueWithDLQs(t *testing.T) {
	t.Parallel()
	cfg := kafkatest.New(t)
	client, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := kafka.EnsureTopics(t.Context(), client, kafka.Catalogue()); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	topics, err := kadm.NewClient(client.Client).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, partitions := range map[string]int{"workspaces.v1": 3, "call-events.v1": 12, "dial-events.v1.billing-wallet.dlq": 12} {
		if got := len(topics[name].Partitions); got != partitions {
			t.Errorf("%s has %d partitions, want %d", name, got, partitions)
		}
	}
	configs, err := kadm.NewClient(client.Client).DescribeTopicConfigs(t.Context(), "workspaces.v1", "call-events.v1")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"workspaces.v1 cleanup.policy": "compact", "call-events.v1 retention.ms": "604800000"}
	for _, topic := range configs {
		for _, config := range topic.Configs {
			if value, ok := want[topic.Name+" "+config.Key]; ok && config.MaybeValue() != value {
				t.Errorf("%s %s = %s, want %s", topic.Name, config.Key, config.MaybeValue(), value)
			}
		}
	}

	wider := kafka.CallEvents
	wider.Partitions = 24
	var differs *kafka.TopicsError
	if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{wider}); !errors.As(err, &differs) {
		t.Errorf("another partition count: err = %v, want a TopicsError", err)
	}
}

func TestNamed_ReturnsTopicsAndTheirDLQs(t *testing.T) {
	t.Parallel()
	if topic, ok := kafka.Named("dial-events.v1.billing-wallet.dlq"); !ok {
		t.Error("Named: ok = false, want true")
	} else if topic != kafka.DLQ(kafka.DialEvents, "billing-wallet") {
		t.Errorf("Named: topic = %v, want %v", topic, kafka.DLQ(kafka.DialEvents, "billing-wallet"))
	}
	if topic, ok := kafka.Named("agents.v1"); !ok {
		t.Error("Named: ok = false, want true")
	} else if !topic.Compacted {
		t.Error("Named: topic.Compacted = false, want true")
	}
	if _, ok := kafka.Named("nowhere.v1"); ok {
		t.Error("Named found a topic that is not in the catalogue")
	}
}

func TestIsSkipAndIsPark_RecognizeWrappedErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	skip, park := fmt.Errorf("x: %w", kafka.Skipf("s")), fmt.Errorf("x: %w", kafka.Parkf("p: %w", cause))
	if !kafka.IsSkip(skip) {
		t.Errorf("kafka.IsSkip(skip) = false, want true")
	}
	if kafka.IsPark(skip) {
		t.Errorf("kafka.IsPark(skip) = true, want false")
	}
	if kafka.IsSkip(park) {
		t.Errorf("kafka.IsSkip(park) = true, want false")
	}
	if !kafka.IsPark(park) {
		t.Errorf("kafka.IsPark(park) = false, want true")
	}
	if kafka.IsPark(cause) {
		t.Errorf("kafka.IsPark(cause) = true, want false")
	}
	if kafka.IsPark(nil) {
		t.Errorf("kafka.IsPark(nil) = true, want false")
	}
	if !errors.Is(park, cause) {
		t.Error("Parkf loses its cause")
	}
}

func TestRead_RecordWithoutIDGetsADerivedID(t *testing.T) {
	t.Parallel()
	wire := &kgo.Record{Topic: "t", Partition: 1, Offset: 7}
	first, err := kafka.Read(wire)
	if !kafka.IsPark(err) {
		t.Errorf("err = %v, want a Parkf", err)
	}
	again, _ := kafka.Read(wire)
	next, _ := kafka.Read(&kgo.Record{Topic: "t", Partition: 1, Offset: 8})
	if first.EventID != again.EventID {
		t.Errorf("first.EventID = %v, want %v", first.EventID, again.EventID)
	} else if first.EventID == next.EventID {
		t.Errorf("first.EventID = %v, want another value", first.EventID)
	}
}

func TestDecode_ReturnsAParkErrorForAWrongTypeOrInvalidBytes(t *testing.T) {
	t.Parallel()
	var value wrapperspb.Int64Value
	if err := (kafka.Record{Type: "google.protobuf.BoolValue"}).Decode(&value); !kafka.IsPark(err) {
		t.Errorf("another type: %v, want a Parkf", err)
	}
	if err := (kafka.Record{Type: "google.protobuf.Int64Value", Value: []byte{0xff}}).Decode(&value); !kafka.IsPark(err) {
		t.Errorf("broken bytes: %v, want a Parkf", err)
	}
}
