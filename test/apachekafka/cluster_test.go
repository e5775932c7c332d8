package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/test/kit"
)

var errUnanswered = errors.New("not answered in time")

// cluster starts three brokers. The first broker is the controller.
func cluster(t *testing.T) (brokers []*throwaway, cfg kafka.Config) {
	t.Helper()
	kept, controller := requireDownloads(t), port(t)
	for node := 1; node <= 3; node++ {
		at := port(t)
		more := []string{
			fmt.Sprintf("node.id=%d", node), fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controller),
			"offsets.topic.replication.factor=3", "replica.lag.time.max.ms=3000",
		}
		if node == 1 {
			more = append(more, fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", at, controller))
		} else {
			more = append(more, "process.roles=broker", fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", at))
		}
		// Each node is formatted separately, because a copied log has the metadata of node 1.
		b := broker{downloads: kept, jvm: smallHeap, dir: t.TempDir(), port: at, properties: more, formatsItself: true}
		brokers = append(brokers, launch(t, &b))
		cfg.Brokers = append(cfg.Brokers, brokers[node-1].address)
	}
	for _, b := range brokers {
		if err := b.ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return brokers, cfg
}

// TestCluster_SurvivesTheLossOfOneBroker checks the default of three replicas and two in-sync
// replicas. After the loss of one broker, Kafka still acknowledges records. After the loss of two
// brokers, Kafka acknowledges no new record.
func TestCluster_SurvivesTheLossOfOneBroker(t *testing.T) {
	t.Parallel()
	brokers, cfg := cluster(t)
	client, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client.Client)
	until(t, "the client has found three brokers", func() bool {
		known, err := admin.ListBrokers(t.Context())
		return err == nil && len(known) == 3
	})
	if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		kafka.NewBacklog("dialer", []string{kafka.Agents.Name}, registry).Watch(watching, client)
	}()
	defer func() { stop(); <-watched }()
	until(t, "every replica is in sync", func() bool { return underReplicated(t, registry) == 0 })
	put := func(key string, within time.Duration) error {
		answer := make(chan error, 1)
		client.Produce(context.Background(), &kgo.Record{Topic: kafka.Agents.Name, Key: []byte(key), Value: []byte("v")}, func(_ *kgo.Record, err error) { answer <- err })
		select {
		case err := <-answer:
			return err
		case <-time.After(within):
			return errUnanswered
		}
	}
	if err := put("all three", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	brokers[2].stop()
	if err := put("two of three", 30*time.Second); err != nil {
		t.Errorf("a record was not acknowledged after the loss of one broker of three: %v", err)
	}
	until(
		t,
		"all partitions are under-replicated",
		func() bool { return underReplicated(t, registry) == float64(kafka.Agents.Partitions) },
	)
	brokers[1].stop()
	until(t, "one replica is in sync", func() bool {
		topics, err := admin.ListTopics(t.Context(), kafka.Agents.Name)
		return err == nil && len(topics[kafka.Agents.Name].Partitions[0].ISR) == 1
	})
	if err := put("one of three", 3*time.Second); !errors.Is(err, errUnanswered) {
		t.Errorf("err = %v with one broker of three, want none yet: the record waits for a second replica", err)
	}
	if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
		t.Errorf("EnsureTopics with one broker of three = %v, want no error", err)
	}
}

// underReplicated returns the number of under-replicated partitions, or -1 before the first
// measurement.
func underReplicated(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "ringfence_kafka_under_replicated_partitions" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}
