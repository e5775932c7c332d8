package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"ringfence.dev/libs/kafka"
)

func TestEnsureTopics_BrokersSetTheTimestampsOfRecords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		exists bool
		making kafka.Making
		want   string
	}{
		{name: "new topic", want: "LogAppendTime"},
		{name: "existing topic", exists: true, want: "LogAppendTime"},
		{name: "existing topic, only verified", exists: true, making: kafka.Making{Topics: "verify"}, want: "CreateTime"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := clusterOf(t, 1)
			cfg.Making = test.making
			client := connect(t, cfg)
			admin := kadm.NewClient(client.Client)
			if test.exists {
				createWithProducerTimestamps(t, admin, kafka.Agents, "compact")
				createWithProducerTimestamps(t, admin, kafka.DLQ(kafka.Agents, "dialer"), "delete")
			}
			if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
				t.Fatalf("EnsureTopics: %v", err)
			}
			described, err := admin.DescribeTopicConfigs(t.Context(), kafka.Agents.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, config := range described[0].Configs {
				if config.Key == "message.timestamp.type" && config.MaybeValue() != test.want {
					t.Errorf("message.timestamp.type = %s, want %s", config.MaybeValue(), test.want)
				}
			}
		})
	}
}

func createWithProducerTimestamps(t *testing.T, admin *kadm.Client, topic kafka.Topic, cleanup string) {
	t.Helper()
	settings := map[string]*string{"message.timestamp.type": text("CreateTime"), "cleanup.policy": text(cleanup)}
	if _, err := admin.CreateTopic(t.Context(), topic.Partitions, 1, settings, topic.Name); err != nil {
		t.Fatalf("create topic %s: %v", topic.Name, err)
	}
}
