// Package kafkatest gives each test a separate Kafka. By default this is kfake, which runs in
// memory. If KAFKA_BROKERS is set, the tests use that cluster one after the other. The package can
// also call inbox handlers without Kafka.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"ringfence.dev/libs/kafka"
)

// Throwaway is the prefix of the id of a cluster that tests can empty, for example the cluster of
// test/apachekafka.
const Throwaway = "ringfence-throwaway-"

// New returns the configuration of a Kafka that contains the empty topics of the catalogue. Call
// New once per test, before the test reads or writes. An in-memory Kafka stops when the test ends.
//
// A real cluster is emptied first, so its id must begin with Throwaway. Tests that use a real
// cluster wait for each other, also across processes.
func New(t testing.TB) kafka.Config {
	t.Helper()
	given := os.Getenv("KAFKA_BROKERS")
	if given == "" {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatalf("start kfake: %v", err)
		}
		t.Cleanup(cluster.Close)
		return furnish(t, kafka.Config{Brokers: cluster.ListenAddrs()}, nil)
	}
	reserveCluster(t, given)
	return furnish(t, kafka.Config{Brokers: strings.Split(given, ",")}, deleteAll)
}

func furnish(t testing.TB, cfg kafka.Config, clear func(context.Context, *kadm.Client) error) kafka.Config {
	t.Helper()
	client, err := kafka.NewClient(cfg, "kafkatest", nil)
	if err != nil {
		t.Fatalf("connect to Kafka: %v", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if clear != nil {
		if err := clear(ctx, kadm.NewClient(client.Client)); err != nil {
			t.Fatalf("empty the Kafka of KAFKA_BROKERS: %v", err)
		}
	}
	if err := kafka.EnsureTopics(ctx, client, kafka.Catalogue()); err != nil {
		t.Fatalf("create topics: %v", err)
	}
	return cfg
}

// reserveCluster waits until no other test of this machine uses the cluster.
func reserveCluster(t testing.TB, brokers string) {
	t.Helper()
	name := strings.NewReplacer(":", "-", ",", "-", "/", "-").Replace(brokers)
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "ringfence-kafkatest-"+name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		t.Fatalf("reserve the Kafka of KAFKA_BROKERS: %v", err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("reserve the Kafka of KAFKA_BROKERS: %v", err)
	}
}

// deleteAll deletes all consumer groups and all topics that were used, and waits until they are
// deleted.
func deleteAll(ctx context.Context, admin *kadm.Client) error {
	cluster, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(cluster.Cluster, Throwaway) {
		return fmt.Errorf("the cluster %q is not for tests, which delete its topics: use `make test-kafka`, or unset KAFKA_BROKERS", cluster.Cluster)
	}
	for {
		used, err := usedTopics(ctx, admin)
		groups, listing := admin.ListGroups(ctx)
		err = errors.Join(err, listing) // during the deletion of a topic, some brokers can still list the topic
		if err == nil && len(used) == 0 && len(groups) == 0 {
			return nil
		}
		// A member whose connection was closed remains in its group for a while. For this reason the
		// deletion of the group can fail, and deleteAll repeats it.
		_, leaving := admin.DeleteGroups(ctx, groups.Groups()...)
		_, deleting := admin.DeleteTopics(ctx, used...)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d topics and %d groups are still there: %w", len(used), len(groups), errors.Join(ctx.Err(), err, leaving, deleting))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// usedTopics returns the topics that have contained records or are not in the catalogue.
func usedTopics(ctx context.Context, admin *kadm.Client) ([]string, error) {
	all, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	all.FilterInternal()
	if len(all) == 0 {
		return nil, nil
	}
	ends, err := admin.ListEndOffsets(ctx, all.Names()...)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for name := range all {
		if _, known := kafka.Named(name); !known {
			used[name] = true
		}
	}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Err != nil || end.Offset > 0 {
			used[end.Topic] = true
		}
	})
	return slices.Collect(maps.Keys(used)), nil
}
