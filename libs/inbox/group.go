package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

const (
	batchRecords = 500
	// A transaction holds its rows' locks until its last record: short enough for those who answer customers meanwhile.
	txRecords = 100
	// A killed member holds its partitions for this long; 6 s is the least that brokers allow by default.
	sessionTimeout = 6 * time.Second
	heartbeat      = 2 * time.Second
	// How long a rebalance waits for a member that does not come: one that hangs, or is slow to drain. Whoever is given up goes on with its transaction,
	// and the inbox knows its records.
	rebalanceTimeout = 10 * time.Second
	// How much longer than it bids the broker wait a request may take. A broker that keeps a join for a leader that hangs is asked again after this and rebalanceTimeout.
	requestOverhead = 6 * time.Second
	commitInterval  = time.Second
	commitTimeout   = 5 * time.Second
	// tellAgain is how long the same reason to wait is not told again.
	tellAgain = 10 * time.Second
)

// Run consumes until ctx ends, then drains the workers, commits and leaves the group. It waits for brokers that are away and
// makes missing topics; it fails only on what trying again cannot mend.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.ensureTopics(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	g := &group{consumer: c, workers: map[partition]*worker{}} // the client's callbacks run before NewClient returns
	topics := make([]string, 0, len(c.handlers))
	for topic := range c.handlers {
		topics = append(topics, topic)
	}
	client, err := kafka.NewClient(c.cfg, c.name+"-consumer", c.registry, append(g.identity(),
		kgo.ConsumerGroup(c.name),
		kgo.ConsumeTopics(topics...),
		// From the earliest, and back to the earliest: the inbox makes that safe.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Workers hold records only while their partition is ours.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(g.assigned),
		kgo.OnPartitionsRevoked(g.revoked),
		kgo.OnPartitionsLost(g.lost),
		// Offsets follow transactions.
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(commitInterval),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeat),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RequestTimeoutOverhead(requestOverhead),
		// A paused partition's surplus is fetched again: no more than about a batch.
		kgo.FetchMaxPartitionBytes(512<<10),
		kgo.FetchMaxWait(time.Second),
	)...)
	if err != nil {
		return err
	}
	beside, stopBeside := context.WithCancel(ctx)
	var besides sync.WaitGroup
	besides.Go(func() { c.keepPruning(beside) })
	besides.Go(func() { c.backlog.Watch(beside, client) })
	g.poll(ctx, client.Client)
	stopBeside()
	besides.Wait()

	// In this order: polling has ended, so the workers get nothing new; what they finished is committed; then leave.
	g.stop(g.all(), drainTime)
	g.commit(context.WithoutCancel(ctx), client.Client)
	client.CloseAllowingRebalance()
	g.leave()
	return nil
}

// identity makes the membership a static one, when the replica has a name of its own.
func (g *group) identity() []kgo.Opt {
	if g.consumer.cfg.InstanceID == "" {
		return nil
	}
	return []kgo.Opt{kgo.InstanceID(g.consumer.cfg.InstanceID)}
}

// leave gives a static member's partitions to the other replicas; the client leaves by itself only for the others.
func (g *group) leave() {
	c := g.consumer
	if c.cfg.InstanceID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	client, err := kafka.NewClient(c.cfg, c.name+"-leave", nil)
	if err != nil {
		return // it had a client a moment ago; the broker gives the member up in time
	}
	defer client.Close()
	left, err := kadm.NewClient(client.Client).LeaveGroup(ctx, kadm.LeaveGroup(c.name).InstanceIDs(c.cfg.InstanceID).Reason("stopped"))
	if err := cmp.Or(err, left.Error()); err != nil {
		slog.Warn("consumer could not leave its group; its partitions wait until the broker gives it up", "consumer", c.name, "err", err)
	}
}

// ensureTopics waits for the brokers and makes the topics it reads and its DLQs.
func (c *Consumer) ensureTopics(ctx context.Context) error {
	client, err := kafka.NewClient(c.cfg, c.name+"-topics", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	var topics []kafka.Topic
	for name := range c.handlers {
		topic, known := kafka.Named(name)
		if !known {
			return fmt.Errorf("topic %s has a handler and is not in the catalogue", name)
		}
		topics = append(topics, topic, kafka.DLQ(topic, c.name))
	}
	var told string
	var toldAt time.Time
	for {
		trying, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := kafka.EnsureTopics(trying, client, topics)
		cancel()
		var topicsFault *kafka.TopicsError
		if err == nil || errors.As(err, &topicsFault) || ctx.Err() != nil {
			return err
		}
		if err.Error() != told || time.Since(toldAt) > tellAgain { // what it waits for first is rarely what it waits for in the end
			slog.Warn("consumer waits for Kafka", "consumer", c.name, "err", err)
			told, toldAt = err.Error(), time.Now()
		}
		pause(ctx, firstBackoff)
	}
}

// partition names one log.
type partition struct {
	topic  string
	number int32
}

// group is one membership: a worker for each partition that is ours.
type group struct {
	consumer *Consumer
	mu       sync.Mutex
	workers  map[partition]*worker
}

// poll hands fetched records to the workers until ctx ends. It never waits for one: a partition whose worker is behind is
// paused, and the worker resumes it. One that keeps up never is: a resumed partition is fetched only with the next
// request, which the broker may hold for FetchMaxWait.
func (g *group) poll(ctx context.Context, client *kgo.Client) {
	var last string
	for {
		fetches := client.PollRecords(ctx, batchRecords)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		healthy := true
		fetches.EachError(func(topic string, number int32, err error) {
			healthy = false
			g.consumer.metrics.fetchFaults.Inc()
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				g.consumer.metrics.resets.WithLabelValues(topic).Inc()
				slog.Error("the broker lost records that were read already; reading begins again", "consumer", g.consumer.name, "topic", topic, "partition", number, "err", err)
				return
			}
			if err.Error() != last {
				last = err.Error()
				slog.Warn("consumer cannot fetch and tries again", "consumer", g.consumer.name, "topic", topic, "partition", number, "err", err)
			}
		})
		if !healthy && fetches.NumRecords() == 0 {
			pause(ctx, firstBackoff)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				g.hand(client, partition{p.Topic, p.Partition}, p.Records)
			}
		})
		client.AllowRebalance()
	}
}

func (g *group) hand(client *kgo.Client, p partition, records []*kgo.Record) {
	g.mu.Lock()
	w := g.workers[p]
	g.mu.Unlock()
	if w == nil {
		return // not ours any more; whoever has it reads it
	}
	first := records[0]
	if before := w.before(client); first.Offset < before {
		// The log is shorter than what was read of it, and reading began again. Marks only go forward, so the group
		// would keep the old offset and, once the log has grown past it, skip what lies before.
		g.consumer.metrics.resets.WithLabelValues(p.topic).Inc()
		slog.Error("the log is behind the consumer's offset; everything there is read again", "consumer", g.consumer.name,
			"topic", p.topic, "partition", p.number, "was_at", before, "goes_on_at", first.Offset)
		w.next = first.Offset
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.number: {Epoch: first.LeaderEpoch, Offset: first.Offset}}})
		return // the same records come again
	}
	w.next = records[len(records)-1].Offset + 1
	w.take(records)
}

func (g *group) assigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, numbers := range added {
		for _, number := range numbers {
			p := partition{topic, number}
			w := newWorker(g, client, p)
			g.workers[p] = w
			g.consumer.backlog.Took(topic, number)
			client.ResumeFetchPartitions(p.asMap()) // a pause outlives a rebalance
			go w.run()
		}
	}
}

// revoked drains the workers and commits before another member begins where they ended.
func (g *group) revoked(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
	g.stop(g.take(gone), drainTime)
	g.commit(ctx, client)
}

// lost partitions may be somebody else's already: no time to drain, no right to commit.
func (g *group) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	g.stop(g.take(gone), 0)
}

func (g *group) take(gone map[string][]int32) []*worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	var taken []*worker
	for topic, numbers := range gone {
		for _, number := range numbers {
			p := partition{topic, number}
			if w := g.workers[p]; w != nil {
				taken = append(taken, w)
				delete(g.workers, p)
			}
			g.consumer.backlog.Left(topic, number)
		}
	}
	return taken
}

func (g *group) all() []*worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*worker
	for p, w := range g.workers {
		all = append(all, w)
		delete(g.workers, p)
	}
	return all
}

// stop lets workers finish the transaction in hand for as long as drain, then cancels it, and waits.
func (g *group) stop(workers []*worker, drain time.Duration) {
	for _, w := range workers {
		close(w.stopping)
	}
	if !ended(workers, drain) {
		for _, w := range workers {
			w.cancel()
		}
		if !ended(workers, lostTime) {
			slog.Error("consumer's workers did not end in time", "consumer", g.consumer.name)
		}
	}
	for _, w := range workers {
		w.cancel()
	}
}

// ended waits for the workers, but not for ever: a transaction that somebody else repeats cannot commit twice.
func ended(workers []*worker, patience time.Duration) bool {
	late := time.After(patience)
	for _, w := range workers {
		select {
		case <-w.done:
		case <-late:
			return false
		}
	}
	return true
}

func (g *group) commit(ctx context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		slog.Warn("consumer could not commit its offsets; records come again and change nothing", "consumer", g.consumer.name, "err", err)
	}
}

func (p partition) asMap() map[string][]int32 { return map[string][]int32{p.topic: {p.number}} }

// pause waits, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
