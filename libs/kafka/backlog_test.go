package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
)

func TestBacklog_CountsUncommittedRecords(t *testing.T) {
	t.Parallel()
	client, err := kafka.NewClient(kafkatest.New(t), "test", nil, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	topic := kafka.Agents.Name
	for partition, records := range []int{5, 3} {
		for range records {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: int32(partition), Key: []byte("k"), Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	committed := kadm.Offsets{}
	committed.AddOffset(topic, 0, 2, -1)
	if err := kadm.NewClient(client.Client).CommitAllOffsets(t.Context(), "readers", committed); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	backlog := kafka.NewBacklog("readers", []string{topic}, registry)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); backlog.Watch(ctx, client) }()
	defer func() { cancel(); <-done }()
	backlog.Took(topic, 1)
	oldest := time.Now().Add(-time.Minute)
	backlog.Waits(topic, 1, oldest)
	// This partition is not assigned to this process, so the call must have no effect.
	backlog.Waits(topic, 2, time.Now().Add(-time.Hour))

	want := map[string]float64{
		"ringfence_kafka_consumer_lag_records agents.v1 0": 3, "ringfence_kafka_consumer_lag_records agents.v1 1": 3, "ringfence_kafka_consumer_lag_records agents.v1 2": 0,
		"ringfence_kafka_topic_partitions agents.v1": 3, "ringfence_kafka_under_replicated_partitions agents.v1": 0,
	}
	var got map[string]float64
	testkit.Until(t, "every gauge has a value", func() bool {
		got = gauges(t, registry)
		return len(got) > len(want)
	})
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
	if age := got["ringfence_kafka_consumer_oldest_record_seconds agents.v1 1"]; age < 60 {
		t.Errorf("the oldest record: age = %v, want at least 60", age)
	} else if limit := time.Since(oldest).Seconds(); age > limit {
		t.Errorf("the oldest record: age = %v, want at most %v", age, limit)
	}
	if _, found := got["ringfence_kafka_consumer_oldest_record_seconds agents.v1 2"]; found {
		t.Error("an age is exported for a partition that is not assigned")
	}
	backlog.Left(topic, 1)
	if _, found := gauges(t, registry)["ringfence_kafka_consumer_oldest_record_seconds agents.v1 1"]; found {
		t.Error("an age is exported for a revoked partition")
	}
}

func TestBacklog_LagOfANewGroupIncludesAllRecords(t *testing.T) {
	t.Parallel()
	client, err := kafka.NewClient(kafkatest.New(t), "test", nil, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	topic := kafka.Agents.Name
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	backlog := kafka.NewBacklog("new-group", []string{topic}, registry)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); backlog.Watch(ctx, client) }()
	defer func() { cancel(); <-done }()
	const series = "ringfence_kafka_consumer_lag_records agents.v1 1"
	testkit.Until(t, "the lag is known", func() bool { _, known := gauges(t, registry)[series]; return known })
	if got := gauges(t, registry)[series]; got != 1 {
		t.Errorf("lag = %v, want 1", got)
	}
}

func gauges(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := []string{family.GetName()}
			for _, name := range []string{"topic", "partition"} {
				for _, label := range metric.GetLabel() {
					if label.GetName() == name {
						key = append(key, label.GetValue())
					}
				}
			}
			values[strings.Join(key, " ")] = metric.GetGauge().GetValue()
		}
	}
	return values
}
