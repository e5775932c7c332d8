package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

const (
	batchRecords = 500
	// txRecords is the maximum number of records in a transaction. A transaction keeps its row locks
	// until its end, and API requests wait for these locks.
	txRecords = 100
	// pollTime limits a poll. A seek takes effect only when the next poll begins.
	pollTime = time.Second
	// sessionTimeout is how long the partitions of a killed member stay assigned to it. 6 s is the
	// minimum that brokers accept by default.
	sessionTimeout    = 6 * time.Second
	heartbeatInterval = 2 * time.Second
	// rebalanceTimeout is how long a rebalance waits for a member that hangs or is slow. After that,
	// the member can still finish its transaction, but only one process can move the position of a
	// partition.
	rebalanceTimeout = 10 * time.Second
	// requestOverhead is added to the timeout of each Kafka request. It also limits how long this
	// member waits for a group leader that hangs.
	requestOverhead = 6 * time.Second
	commitInterval  = time.Second
	commitTimeout   = 5 * time.Second
	// positionInterval is the time between two comparisons of idle workers' positions with the stored
	// positions.
	positionInterval = 5 * time.Second
	// repeatLogAfter is the time after which the same error is logged again.
	repeatLogAfter = 10 * time.Second
)

// Run consumes until ctx is canceled. Then it waits for the running transactions, commits the
// group's offsets and leaves the group. While brokers or the database are unavailable, Run waits.
// It returns an error only if a retry cannot help.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.ensureTopics(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	c.awaitDays(ctx)
	g := &group{consumer: c, workers: map[partition]*worker{}, topics: map[string]uuid.UUID{}}
	client, err := kafka.NewClient(c.cfg, c.name+"-consumer", c.registry, append(g.staticMemberOptions(),
		kgo.ConsumerGroup(c.group),
		kgo.ConsumeTopics(slices.Collect(maps.Keys(c.handlers))...),
		// A partition is read from its start if it has no position, or if the record at its position was
		// deleted.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// A rebalance waits until the workers have stopped, so that only assigned partitions are read.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(g.assigned),
		kgo.AdjustFetchOffsetsFn(g.startOffsets),
		kgo.OnPartitionsRevoked(g.onRevoked),
		kgo.OnPartitionsLost(g.onLost),
		// The offsets of the group are committed only for the lag metrics.
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(commitInterval),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RequestTimeoutOverhead(requestOverhead),
		// Fetches are small, because the records of a paused partition are dropped and fetched again
		// later.
		kgo.FetchMaxPartitionBytes(512<<10),
		kgo.FetchMaxWait(time.Second),
	)...)
	if err != nil {
		return err
	}
	background, stopBackground := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	jobs.Go(func() { c.retain(background) })
	jobs.Go(func() { g.comparePositions(background) })
	jobs.Go(func() { c.backlog.Watch(background, client) })
	g.poll(ctx, client.Client)
	stopBackground()
	jobs.Wait()

	// At the shutdown, the group first stops fetching. Then the workers finish, their offsets are
	// committed, and the member leaves the group.
	g.stopWorkers(g.all(), drainTimeout)
	g.commit(context.WithoutCancel(ctx), client.Client)
	client.CloseAllowingRebalance()
	g.leaveGroup()
	return nil
}

// awaitDays creates the partitions of event ids for the next days. It retries until it succeeds or
// ctx is canceled.
func (c *Consumer) awaitDays(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.createDays(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		slog.Warn("consumer waits for the database", "consumer", c.name, "error", err)
		pause(ctx, maxBackoff)
	}
}

// staticMemberOptions returns the options that make this process a static member of the group.
// Without an instance id, it returns none.
func (g *group) staticMemberOptions() []kgo.Opt {
	if g.consumer.cfg.InstanceID == "" {
		return nil
	}
	return []kgo.Opt{kgo.InstanceID(g.consumer.cfg.InstanceID)}
}

// leaveGroup removes a static member from the group, so that its partitions are assigned to other
// replicas. The Kafka client removes only members that are not static.
func (g *group) leaveGroup() {
	c := g.consumer
	if c.cfg.InstanceID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	client, err := kafka.NewClient(c.cfg, c.name+"-leave", nil)
	if err != nil {
		return // cannot happen: the first client accepted the same settings
	}
	defer client.Close()
	left, err := kadm.NewClient(client.Client).LeaveGroup(ctx,
		kadm.LeaveGroup(c.group).InstanceIDs(c.cfg.InstanceID).Reason("stopped"))
	if err := cmp.Or(err, left.Error()); err != nil {
		slog.Warn("consumer could not leave its group; its partitions wait for the session timeout",
			"consumer", c.name, "error", err)
	}
}

// ensureTopics creates the topics that the consumer reads, and their dead-letter topics. It waits
// for the brokers.
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
	var logged string
	var loggedAt time.Time
	for {
		trying, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := kafka.EnsureTopics(trying, client, topics)
		cancel()
		var permanent *kafka.TopicsError
		if err == nil || errors.As(err, &permanent) || ctx.Err() != nil {
			return err
		}
		// The error is logged again if its text has changed.
		if err.Error() != logged || time.Since(loggedAt) > repeatLogAfter {
			slog.Warn("consumer waits for Kafka", "consumer", c.name, "error", err)
			logged, loggedAt = err.Error(), time.Now()
		}
		pause(ctx, minBackoff)
	}
}

type partition struct {
	topic  string
	number int32
}

func (p partition) String() string { return fmt.Sprintf("partition %d of %s", p.number, p.topic) }

func (p partition) asMap() map[string][]int32 { return map[string][]int32{p.topic: {p.number}} }

// group is this process's membership in the consumer group. It has a worker for each assigned
// partition.
type group struct {
	consumer *Consumer
	mu       sync.Mutex
	client   *kgo.Client
	workers  map[partition]*worker
	topics   map[string]uuid.UUID // Kafka's ids of the subscribed topics
	// rejoiningTopics contains topics that were deleted and created again, so that their ids have
	// changed. rejoin unsubscribes from them, and subscribes again after the next poll.
	rejoiningTopics []string
}

// poll passes fetched records to the workers until ctx ends. It does not wait for the workers. If a
// worker has too many records, its partition is paused until the worker resumes it.
func (g *group) poll(ctx context.Context, client *kgo.Client) {
	var last string
	for ctx.Err() == nil {
		polling, cancel := context.WithTimeout(ctx, pollTime)
		fetches := client.PollRecords(polling, batchRecords)
		cancel()
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		failed := false
		fetches.EachError(func(topic string, number int32, err error) {
			if topic == "" && errors.Is(err, context.DeadlineExceeded) {
				return // the poll has timed out
			}
			failed = true
			g.fetchFailed(ctx, client, partition{topic, number}, err, &last)
		})
		if failed && fetches.NumRecords() == 0 {
			pause(ctx, minBackoff)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				g.routeRecords(client, partition{p.Topic, p.Partition}, p.Records, p.LogStartOffset)
			}
		})
		g.applySeeks(client)
		client.AllowRebalance()
		g.rejoin(client)
	}
}

// fetchFailed logs the error of a fetch, unless lastLogged is the same text.
func (g *group) fetchFailed(ctx context.Context, client *kgo.Client, p partition, err error, lastLogged *string) {
	c := g.consumer
	c.metrics.fetchErrors.Inc()
	if errors.Is(err, kerr.UnknownTopicID) {
		g.checkRecreated(ctx, client, p.topic)
	}
	if err.Error() != *lastLogged {
		*lastLogged = err.Error()
		slog.Warn("fetch from Kafka failed, it is retried",
			"consumer", c.name, "topic", p.topic, "partition", p.number, "error", err)
	}
}

// checkRecreated calls rejoinTopic for a topic that was deleted and created again. Otherwise the
// client would not read the new topic.
func (g *group) checkRecreated(ctx context.Context, client *kgo.Client, topic string) {
	ids, err := lookUpIDs(ctx, client, []string{topic})
	if err != nil {
		return // the next fetch fails too and repeats this check
	}
	g.mu.Lock()
	known, read := g.topics[topic]
	g.mu.Unlock()
	if read && known != ids[topic] {
		g.rejoinTopic(topic)
	}
}

// rejoinTopic marks a topic. The poll loop then restarts the topic's workers with the topic's
// current id.
func (g *group) rejoinTopic(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.rejoiningTopics, topic) {
		g.rejoiningTopics = append(g.rejoiningTopics, topic)
	}
}

// rejoin unsubscribes from the recreated topics and subscribes again. Their partitions are then
// assigned again, and startOffsets reads the new topic ids.
func (g *group) rejoin(client *kgo.Client) {
	g.mu.Lock()
	topics := g.rejoiningTopics
	g.rejoiningTopics = nil
	for _, topic := range topics {
		delete(g.topics, topic)
	}
	g.mu.Unlock()
	if len(topics) == 0 {
		return
	}
	slog.Warn("Kafka topic was created again, the consumer subscribes to it again",
		"consumer", g.consumer.name, "topics", topics)
	client.PurgeTopicsFromConsuming(topics...)
	client.AddConsumeTopics(topics...)
}

// routeRecords passes records to the worker of their partition. logStart is the first offset that
// the partition still contains.
func (g *group) routeRecords(client *kgo.Client, p partition, records []*kgo.Record, logStart int64) {
	g.mu.Lock()
	w := g.workers[p]
	g.mu.Unlock()
	if w == nil {
		return // the partition is now assigned to another member
	}
	w.mu.Lock()
	seeking, next := w.seekTo != nil, w.fetchNext
	if first := records[0].Offset; !seeking && first < next {
		w.fetchNext = first
	}
	w.mu.Unlock()
	if first := records[0]; !seeking && first.Offset < next {
		// The position was beyond the end of the log, so the client started at the beginning again.
		// setOffset also moves the group's committed offset back.
		g.consumer.reportMovedBack(p, logTruncated, next, first.Offset)
		setOffset(client, p, first.Offset)
		return // the client will fetch the same records again
	}
	if !seeking && next > 0 && records[0].Offset > next && logStart > next {
		g.consumer.reportExpired(p, next, logStart)
	}
	w.queueRecords(records)
}

// comparePositions compares the positions of idle workers with the stored positions. Otherwise the
// consumer would detect a restored database only with the next record of each partition.
func (g *group) comparePositions(ctx context.Context) {
	for pause(ctx, positionInterval); ctx.Err() == nil; pause(ctx, positionInterval) {
		stored, err := g.consumer.storedPositions(ctx)
		if err != nil {
			continue // the database is unavailable; busy workers report it
		}
		g.mu.Lock()
		workers := maps.Clone(g.workers)
		g.mu.Unlock()
		for p, w := range workers {
			w.comparePosition(stored[p])
		}
	}
}

// applySeeks makes the client continue at the offsets that workers requested.
func (g *group) applySeeks(client *kgo.Client) {
	g.mu.Lock()
	workers := maps.Clone(g.workers)
	g.mu.Unlock()
	for p, w := range workers {
		w.mu.Lock()
		if w.seekTo != nil {
			setOffset(client, p, *w.seekTo)
			w.fetchNext, w.seekTo = *w.seekTo, nil
		}
		w.mu.Unlock()
	}
}

func setOffset(client *kgo.Client, p partition, offset int64) {
	client.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.number: {Epoch: -1, Offset: offset}}})
}

func (g *group) assigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.client = client
	for topic, numbers := range added {
		for _, number := range numbers {
			p := partition{topic, number}
			w := newWorker(g, client, p)
			g.workers[p] = w
			g.consumer.backlog.Took(topic, number)
			// If the client paused this partition before the rebalance, the partition is still paused.
			client.ResumeFetchPartitions(p.asMap())
			go w.run()
		}
	}
}

// startOffsets replaces the group's committed offsets by the stored positions. The Kafka client
// calls it before it fetches from newly assigned partitions. It waits until the database is
// available.
func (g *group) startOffsets(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	for {
		start, err := g.readPositions(ctx, offsets)
		if err == nil || ctx.Err() != nil {
			return start, err
		}
		slog.Warn("inbox positions could not be read", "consumer", g.consumer.name, "error", err)
		pause(ctx, time.Second)
	}
}

func (g *group) readPositions(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, rebalanceTimeout/2)
	defer cancel()
	g.mu.Lock()
	client := g.client
	g.mu.Unlock()
	ids, err := lookUpIDs(ctx, client, slices.Collect(maps.Keys(offsets)))
	if err != nil {
		return nil, err
	}
	var added []assignedPartition
	for topic, numbers := range offsets {
		for number, committed := range numbers {
			added = append(added, assignedPartition{partition{topic, number}, ids[topic], committed.EpochOffset().Offset})
		}
	}
	stored, err := g.consumer.startPositions(ctx, added)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	start := map[string]map[int32]kgo.Offset{}
	for p, at := range stored {
		if start[p.topic] == nil {
			start[p.topic] = map[int32]kgo.Offset{}
		}
		start[p.topic][p.number] = kgo.NewOffset().AtStart()
		if at.nextOffset > 0 {
			start[p.topic][p.number] = kgo.NewOffset().At(at.nextOffset)
		}
		g.topics[p.topic] = ids[p.topic]
		if w := g.workers[p]; w != nil {
			w.start(at)
		}
	}
	return start, nil
}

func lookUpIDs(ctx context.Context, client *kgo.Client, topics []string) (map[string]uuid.UUID, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	listed, err := kadm.NewClient(client).ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("look up topic ids: %w", err)
	}
	ids := map[string]uuid.UUID{}
	for _, topic := range topics {
		detail := listed[topic]
		if detail.Err != nil {
			return nil, fmt.Errorf("look up the id of topic %s: %w", topic, detail.Err)
		}
		ids[topic] = uuid.UUID(detail.ID)
		if ids[topic] == uuid.Nil {
			return nil, fmt.Errorf("the brokers report no id of topic %s: Kafka 2.8 or later is needed", topic)
		}
	}
	return ids, nil
}

// onRevoked is called when partitions move to another member. It waits for their workers and
// commits the offsets before the other member starts.
func (g *group) onRevoked(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
	g.stopWorkers(g.remove(gone), drainTimeout)
	g.commit(ctx, client)
}

// onLost is called when this member has already lost partitions. It stops their workers without
// waiting, because the partitions can already be assigned to another member.
func (g *group) onLost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	g.stopWorkers(g.remove(gone), 0)
}

func (g *group) remove(gone map[string][]int32) []*worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	var removed []*worker
	for topic, numbers := range gone {
		for _, number := range numbers {
			p := partition{topic, number}
			if w := g.workers[p]; w != nil {
				removed = append(removed, w)
				delete(g.workers, p)
			}
			g.consumer.backlog.Left(topic, number)
		}
	}
	return removed
}

func (g *group) all() []*worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Collect(maps.Values(g.workers))
	clear(g.workers)
	return all
}

// stopWorkers waits for the workers to finish their transactions, at most for the duration drain.
// Then it cancels the transactions and waits for the workers.
func (g *group) stopWorkers(workers []*worker, drain time.Duration) {
	for _, w := range workers {
		close(w.stopping)
	}
	if !workersEnded(workers, drain) {
		for _, w := range workers {
			w.cancel()
		}
		if !workersEnded(workers, cancelTimeout) {
			slog.Error("consumer workers did not stop in time", "consumer", g.consumer.name)
		}
	}
	for _, w := range workers {
		w.cancel()
	}
}

// workersEnded reports whether all workers ended within the timeout. A worker that has not ended
// does no harm: its transaction cannot commit after another process has applied the same records.
func workersEnded(workers []*worker, timeout time.Duration) bool {
	late := time.After(timeout)
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
		slog.Warn("consumer group offsets not committed; the lag metrics are too high until the next commit",
			"consumer", g.consumer.name, "error", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
