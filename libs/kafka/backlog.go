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

// backlogEvery is how often the brokers are asked.
const backlogEvery = 5 * time.Second

// Backlog tells how far a group is behind, partition by partition, and how its topics stand. Every replica tells all partitions of
// the group, also those that nobody has: take the maximum over the replicas. The gauges are gone while the brokers do not answer.
type Backlog struct {
	group  string
	topics []string

	mu     sync.Mutex
	seen   []topicState
	waits  map[topicPartition]time.Time
	failed string

	lag, age, partitions, thin *prometheus.Desc
}

type topicPartition struct {
	topic     string
	partition int32
}

// topicState is a topic as the brokers told it last.
type topicState struct {
	name string
	// lag by partition; thin counts partitions with fewer replicas in sync than they have.
	lag              map[int32]int64
	partitions, thin int
}

// NewBacklog makes the metrics of a group over these topics; nil registers none.
func NewBacklog(group string, topics []string, registry prometheus.Registerer) *Backlog {
	of := prometheus.Labels{"group": group}
	each := []string{"topic", "partition"}
	b := &Backlog{
		group: group, topics: slices.Sorted(slices.Values(topics)), waits: map[topicPartition]time.Time{},
		lag: prometheus.NewDesc("ringfence_kafka_consumer_lag_records",
			"Records of a partition behind the offset that the group has committed (once a second at most), sampled every 5 s; the maximum over the replicas counts.", each, of),
		age: prometheus.NewDesc("ringfence_kafka_consumer_oldest_record_seconds",
			"Age of the oldest record that this replica has fetched and not settled; 0 when there is none. Only for partitions that it has.", each, of),
		partitions: prometheus.NewDesc("ringfence_kafka_topic_partitions", "Partitions of a topic that the group reads.", []string{"topic"}, of),
		thin: prometheus.NewDesc("ringfence_kafka_under_replicated_partitions",
			"Partitions of a topic that the group reads with fewer replicas in sync than they should have.", []string{"topic"}, of),
	}
	if registry != nil {
		registry.MustRegister(b)
	}
	return b
}

// Took says that the partition is ours, and nothing of it waits.
func (b *Backlog) Took(topic string, partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits[topicPartition{topic, partition}] = time.Time{}
}

// Waits says from when the oldest record is that was fetched of a partition of ours and is not settled; the zero time: there is none.
func (b *Backlog) Waits(topic string, partition int32, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := topicPartition{topic, partition}
	if _, ours := b.waits[at]; ours {
		b.waits[at] = since
	}
}

// Left says that the partition is not ours any more.
func (b *Backlog) Left(topic string, partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waits, topicPartition{topic, partition})
}

// Watch asks the brokers until ctx ends.
func (b *Backlog) Watch(ctx context.Context, client *Client) {
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	for {
		b.look(ctx, client)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *Backlog) look(ctx context.Context, client *Client) {
	asking, cancel := context.WithTimeout(ctx, backlogEvery)
	defer cancel()
	seen, err := b.ask(asking, kadm.NewClient(client.Client))
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = seen
	told := ""
	if err != nil {
		told = err.Error()
	}
	if told != "" && told != b.failed {
		slog.Warn("consumer lag is not known", "consumer", b.group, "err", err)
	}
	b.failed = told
}

func (b *Backlog) ask(ctx context.Context, admin *kadm.Client) ([]topicState, error) {
	topics, err := admin.ListTopics(ctx, b.topics...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	committed, err := admin.FetchOffsets(ctx, b.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // a group that has not begun has committed nothing
		return nil, fmt.Errorf("fetch offsets of %s: %w", b.group, err)
	}
	starts, err := admin.ListStartOffsets(ctx, b.topics...)
	if nothing(err) {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, b.topics...)
	if nothing(err) {
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
				state.thin++
			}
			start, known := starts.Lookup(name, number)
			end, knownToo := ends.Lookup(name, number)
			if !known || !knownToo || start.Err != nil || end.Err != nil {
				continue
			}
			at := start.Offset // a group without an offset begins there, and so does one whose offset is gone
			if offset, found := committed.Lookup(name, number); found && offset.Err == nil {
				at = max(at, offset.At)
			}
			state.lag[number] = max(0, end.Offset-at)
		}
		all = append(all, state)
	}
	return all, nil
}

// nothing says that no broker has answered; while one is away, the others' partitions are told.
func nothing(err error) bool {
	var some *kadm.ShardErrors
	return err != nil && (!errors.As(err, &some) || some.AllFailed)
}

// Describe is the registry's.
func (b *Backlog) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{b.lag, b.age, b.partitions, b.thin} {
		to <- desc
	}
}

// Collect is the registry's.
func (b *Backlog) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, topic := range b.seen {
		gauge(b.partitions, float64(topic.partitions), topic.name)
		gauge(b.thin, float64(topic.thin), topic.name)
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
