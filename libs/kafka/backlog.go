package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// backlogInterval is the time between two reads of the offsets.
const backlogInterval = 5 * time.Second

// loggedFailure is the number of consecutive failed reads after which the error is logged.
const loggedFailure = 3

// Backlog collects the metrics of a consumer group: its lag by partition, and the state of its
// topics. Each replica reports all partitions, so queries must use the maximum over the replicas.
// While the brokers do not respond, the metrics are absent.
type Backlog struct {
	group  string
	topics []string

	mu     sync.Mutex
	states []topicState
	waits  map[topicPartition]time.Time
	// failures is the number of failed reads since the last successful read.
	failures int

	lag, age, partitions, underReplicated *prometheus.Desc
}

type topicPartition struct {
	topic     string
	partition int32
}

type topicState struct {
	name string
	// lag is the lag of the group, by partition. underReplicated is the number of partitions with
	// fewer in-sync replicas than replicas.
	lag                         map[int32]int64
	partitions, underReplicated int
}

// NewBacklog returns a Backlog and registers the metrics of a group. If registry is nil, no metrics
// are registered.
func NewBacklog(group string, topics []string, registry prometheus.Registerer) *Backlog {
	of := prometheus.Labels{"group": group}
	each := []string{"topic", "partition"}
	b := &Backlog{
		group: group, topics: slices.Sorted(slices.Values(topics)), waits: map[topicPartition]time.Time{},
		lag: prometheus.NewDesc("ringfence_kafka_consumer_lag_records",
			"Records of a partition after the offset that the group has committed, sampled every 5 s. Use the maximum over the replicas.", each, of),
		age: prometheus.NewDesc("ringfence_kafka_consumer_oldest_record_seconds",
			"Age of the oldest record that this replica has fetched and not applied, for its partitions; 0 if there is none.", each, of),
		partitions: prometheus.NewDesc("ringfence_kafka_topic_partitions", "Partitions of a topic that the group reads.", []string{"topic"}, of),
		underReplicated: prometheus.NewDesc("ringfence_kafka_under_replicated_partitions",
			"Partitions, of a topic that the group reads, with fewer replicas in sync than configured.", []string{"topic"}, of),
	}
	if registry != nil {
		registry.MustRegister(b)
	}
	return b
}

// Took marks the partition as assigned to this process. At first, no record waits.
func (b *Backlog) Took(topic string, partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits[topicPartition{topic, partition}] = time.Time{}
}

// Waits sets the time since which the oldest fetched record of a partition waits to be applied. The
// zero time means that no record waits.
func (b *Backlog) Waits(topic string, partition int32, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := topicPartition{topic, partition}
	if _, ours := b.waits[at]; ours {
		b.waits[at] = since
	}
}

// Left marks the partition as no longer assigned to this process.
func (b *Backlog) Left(topic string, partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waits, topicPartition{topic, partition})
}

// Watch reads the offsets every 5 s until ctx is canceled.
func (b *Backlog) Watch(ctx context.Context, client *Client) {
	tick := time.NewTicker(backlogInterval)
	defer tick.Stop()
	for {
		b.update(ctx, client)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *Backlog) update(ctx context.Context, client *Client) {
	readCtx, cancel := context.WithTimeout(ctx, backlogInterval)
	defer cancel()
	seen, err := b.read(readCtx, kadm.NewClient(client.Client))
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states = seen
	if b.countFailure(err) {
		slog.Warn("consumer lag not read", "consumer", b.group, "error", err)
	}
}

// countFailure counts consecutive failed reads. It returns true once per outage, when the error
// must be logged. The first failures are not logged, because new brokers need some seconds to find
// the coordinator of a group.
func (b *Backlog) countFailure(err error) bool {
	if err == nil {
		b.failures = 0
		return false
	}
	b.failures++
	return b.failures == loggedFailure
}

func (b *Backlog) read(ctx context.Context, admin *kadm.Client) ([]topicState, error) {
	topics, err := admin.ListTopics(ctx, b.topics...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	committed, err := admin.FetchOffsets(ctx, b.group)
	// GroupIDNotFound means that the group has never committed an offset.
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetch offsets of %s: %w", b.group, err)
	}
	starts, err := admin.ListStartOffsets(ctx, b.topics...)
	if noBrokerResponded(err) {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, b.topics...)
	if noBrokerResponded(err) {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	var all []topicState
	for _, name := range b.topics {
		if topics[name].Err != nil || len(topics[name].Partitions) == 0 {
			continue
		}
		state := topicState{name: name, lag: map[int32]int64{}, partitions: len(topics[name].Partitions)}
		for number, detail := range topics[name].Partitions {
			if len(detail.ISR) < len(detail.Replicas) {
				state.underReplicated++
			}
			start, known := starts.Lookup(name, number)
			end, knownToo := ends.Lookup(name, number)
			if !known || !knownToo || start.Err != nil || end.Err != nil {
				continue
			}
			// If the group has no offset, or if the record at its offset was deleted, the lag is counted
			// from the partition's first record.
			at := start.Offset
			if offset, found := committed.Lookup(name, number); found && offset.Err == nil {
				at = max(at, offset.At)
			}
			state.lag[number] = max(0, end.Offset-at)
		}
		all = append(all, state)
	}
	return all, nil
}

// noBrokerResponded reports whether no broker responded. If only some brokers fail, the partitions
// of the other brokers are still reported.
func noBrokerResponded(err error) bool {
	var some *kadm.ShardErrors
	return err != nil && (!errors.As(err, &some) || some.AllFailed)
}

// Describe implements prometheus.Collector.
func (b *Backlog) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{b.lag, b.age, b.partitions, b.underReplicated} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (b *Backlog) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, topic := range b.states {
		gauge(b.partitions, float64(topic.partitions), topic.name)
		gauge(b.underReplicated, float64(topic.underReplicated), topic.name)
		for number, lag := range topic.lag {
			gauge(b.lag, float64(lag), topic.name, strconv.Itoa(int(number)))
		}
	}
	for at, since := range b.waits {
		age := 0.0
		if !since.IsZero() {
			age = max(0, time.Since(since).Seconds())
		}
		gauge(b.age, age, at.topic, strconv.Itoa(int(at.partition)))
	}
}
