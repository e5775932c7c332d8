package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
)

func clusterOf(t *testing.T, brokers int, opts ...kfake.Opt) kafka.Config {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kafka.Config{Brokers: cluster.ListenAddrs()}
}

func connect(t *testing.T, cfg kafka.Config) *kafka.Client {
	t.Helper()
	client, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func text(s string) *string { return &s }

func TestEnsureTopics_ReplicasDependOnTheClusterAndTheSetting(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		brokers          int
		making           kafka.Making
		replicas, insync string
	}{
		{"one broker", 1, kafka.Making{}, "1", "1"},
		{"two brokers count as a single broker", 2, kafka.Making{}, "1", "1"},
		{"three brokers", 3, kafka.Making{}, "3", "2"},
		{"five brokers", 5, kafka.Making{}, "3", "2"},
		{"configured numbers are used", 3, kafka.Making{Replication: 2, MinInsync: 2}, "2", "2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := clusterOf(t, test.brokers)
			cfg.Making = test.making
			client := connect(t, cfg)
			if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
				t.Fatal(err)
			}
			admin := kadm.NewClient(client.Client)
			topics, err := admin.ListTopics(t.Context(), kafka.Agents.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(topics[kafka.Agents.Name].Partitions[0].Replicas); string(rune('0'+got)) != test.replicas {
				t.Errorf("%d replicas, want %s", got, test.replicas)
			}
			configs, err := admin.DescribeTopicConfigs(t.Context(), kafka.Agents.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, config := range configs[0].Configs {
				if config.Key == "min.insync.replicas" && config.MaybeValue() != test.insync {
					t.Errorf("min.insync.replicas is %s, want %s", config.MaybeValue(), test.insync)
				}
			}
		})
	}
}

func TestEnsureTopics_RejectsSettingsThatLoseRecords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		setting kafka.Making
		configs map[string]*string
		want    string // "" means that no error is expected
	}{
		{
			"settings of the catalogue are accepted", kafka.Making{},
			map[string]*string{"cleanup.policy": text("delete"), "retention.ms": text("604800000")}, "",
		},
		{
			"a compacted stream is rejected", kafka.Making{}, map[string]*string{"cleanup.policy": text("compact")},
			"cleanup.policy=delete",
		},
		{
			"a stream with compaction and deletion is rejected", kafka.Making{},
			map[string]*string{"cleanup.policy": text("compact,delete")}, "cleanup.policy=delete",
		},
		{"a short retention is only logged", kafka.Making{}, map[string]*string{"retention.ms": text("3600000")}, ""},
		{"more replicas than brokers are rejected", kafka.Making{Replication: 3}, nil, "KAFKA_REPLICATION=1"},
		{
			"min.insync.replicas above the number of replicas is rejected", kafka.Making{},
			map[string]*string{"min.insync.replicas": text("2")}, "min.insync.replicas",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := clusterOf(t, 1)
			cfg.Making = test.setting
			client := connect(t, cfg)
			topic := kafka.Topic{Name: kafka.CallEvents.Name + ".x", Partitions: 2, Retention: 7 * 24 * time.Hour}
			if _, err := kadm.NewClient(client.Client).CreateTopic(t.Context(), 2, 1, test.configs, topic.Name); err != nil {
				t.Fatal(err)
			}
			err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{topic})
			if test.want == "" {
				if err != nil {
					t.Errorf("EnsureTopics: %v", err)
				}
				return
			}
			var fault *kafka.TopicsError
			if !errors.As(err, &fault) {
				t.Fatalf("EnsureTopics = %v, want a *kafka.TopicsError", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("EnsureTopics = %v, want it to contain %q", err, test.want)
			}
		})
	}
}

func TestEnsureTopics_VerifyReturnsTheCommandsForMissingTopics(t *testing.T) {
	t.Parallel()
	cfg := clusterOf(t, 1)
	cfg.Topics = "verify"
	client := connect(t, cfg)
	err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents})
	var fault *kafka.TopicsError
	// The error must not be a TopicsError, because that would end the retries.
	if err == nil || errors.As(err, &fault) {
		t.Fatalf("err = %v, want one that trying again can mend", err)
	}
	for _, command := range []string{
		"--create --topic agents.v1 --partitions 3 --replication-factor 1 --config cleanup.policy=compact --config " +
			"min.insync.replicas=1 --config message.timestamp.type=LogAppendTime\n",
		"--create --topic agents.v1.dialer.dlq --partitions 3 --replication-factor 1 --config cleanup.policy=delete --config retention.ms=2592000000",
	} {
		if !strings.Contains(err.Error(), command) {
			t.Errorf("%q is not in\n%v", command, err)
		}
	}
	cfg.Topics = "create"
	if err := kafka.EnsureTopics(t.Context(), connect(t, cfg), []kafka.Topic{kafka.Agents}); err != nil {
		t.Fatal(err)
	}
	if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
		t.Errorf("once they are there: %v", err)
	}
}

func TestEnsureTopics_SucceedsIfOneBrokerIsReachable(t *testing.T) {
	t.Parallel()
	cfg := clusterOf(t, 1)
	cfg.Brokers = append([]string{"127.0.0.1:1", "no-such-host.invalid:9092"}, cfg.Brokers...)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	if err := kafka.EnsureTopics(ctx, connect(t, cfg), []kafka.Topic{kafka.Agents}); err != nil {
		t.Error(err)
	}
}
