// Package kafkatest gives each test a Kafka of its own.
package kafkatest

import (
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"ringfence.dev/libs/kafka"
)

const brokerVariable = "RINGFENCE_TEST_KAFKA"

// New starts kfake in memory with the whole catalogue created, or, with RINGFENCE_TEST_KAFKA set, uses that broker with
// group and topics as they are. It ends with the test.
func New(t testing.TB) kafka.Config {
	t.Helper()
	cfg := kafka.Config{Brokers: strings.Split(os.Getenv(brokerVariable), ",")}
	if cfg.Brokers[0] == "" {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatalf("start kfake: %v", err)
		}
		t.Cleanup(cluster.Close)
		cfg.Brokers = cluster.ListenAddrs()
	}
	client, err := kafka.NewClient(cfg, "kafkatest", nil)
	if err != nil {
		t.Fatalf("connect to kfake: %v", err)
	}
	defer client.Close()
	if err := kafka.EnsureTopics(t.Context(), client, kafka.Catalogue()); err != nil {
		t.Fatalf("create topics: %v", err)
	}
	return cfg
}
