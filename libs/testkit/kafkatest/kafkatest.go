// Package kafkatest gives each test a Kafka of its own: kfake in memory, or, with KAFKA_BROKERS set, that cluster for itself alone as
// long as the test runs.
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

// Throwaway is how the id of a cluster begins that tests may empty; the brokers of test/apachekafka have such a one.
const Throwaway = "ringfence-throwaway-"

// New gives a Kafka with the whole catalogue created and nothing in it; it ends with the test. A real cluster is emptied of every group and
// topic that was used first, and refused unless its id says that it may be. A test that asks for one while another has it waits, whatever the package or process: call
// New once, before anything that reads or writes is started.
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
	reserve(t, given)
	return furnish(t, kafka.Config{Brokers: strings.Split(given, ",")}, empty)
}

// furnish makes the catalogue.
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

// reserve holds the cluster against the other tests of this machine until the test has ended.
func reserve(t testing.TB, brokers string) {
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

// empty deletes every group and every topic that was used, and waits until they are gone.
func empty(ctx context.Context, admin *kadm.Client) error {
	cluster, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(cluster.Cluster, Throwaway) {
		return fmt.Errorf("it is cluster %q, which is not for tests: they delete its topics; `make test-kafka` brings one that is, or unset KAFKA_BROKERS", cluster.Cluster)
	}
	for {
		used, err := usedTopics(ctx, admin)
		groups, listing := admin.ListGroups(ctx)
		err = errors.Join(err, listing) // of a topic that is just going, not every broker knows the same
		if err == nil && len(used) == 0 && len(groups) == 0 {
			return nil
		}
		// A member that left with its connection only is waited for.
		_, leaving := admin.DeleteGroups(ctx, groups.Groups()...)
		_, deleting := admin.DeleteTopics(ctx, used...)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d topics and %d groups are still there: %w", len(used), len(groups), errors.Join(ctx.Err(), err, leaving, deleting))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// usedTopics are those that are not as EnsureTopics makes them: they have had records, or nobody's catalogue names them.
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
