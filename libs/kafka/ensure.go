package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Making is what a service does about topics.
type Making struct {
	// Topics is "create" or "verify".
	Topics string `env:"KAFKA_TOPICS" envDefault:"create" help:"create: topics that are missing are made; verify: they are only looked at, and the command that makes them is told"`
	// Replication and MinInsync: zero means by the size of the cluster.
	Replication int `env:"KAFKA_REPLICATION" envDefault:"0" help:"replicas of each topic; 0: 3 when the cluster has as many brokers, else 1"`
	MinInsync   int `env:"KAFKA_MIN_INSYNC" envDefault:"0" help:"replicas that must have a record before it counts; 0: one fewer than there are, at least 1"`
}

func (m Making) check() error {
	if m.Topics != "" && m.Topics != "create" && m.Topics != "verify" {
		return fmt.Errorf("KAFKA_TOPICS is %q: set it to create or verify", m.Topics)
	}
	if m.Replication < 0 || m.MinInsync < 0 || m.Replication > 0 && m.MinInsync > m.Replication {
		return fmt.Errorf("KAFKA_MIN_INSYNC is %d and KAFKA_REPLICATION %d: a record can not be on more replicas than there are", m.MinInsync, m.Replication)
	}
	return nil
}

// on is the same for a cluster of so many brokers, all numbers settled.
func (m Making) on(brokers int) Making {
	if m.Replication == 0 {
		m.Replication = 1
		if brokers >= 3 {
			m.Replication = 3
		}
	}
	if m.MinInsync == 0 {
		m.MinInsync = max(1, m.Replication-1)
	}
	return m
}

// EnsureTopics makes what is missing of these topics and of their readers' DLQs, waits until the brokers know it, and holds what was there before against
// the catalogue: what exists keeps its settings. A TopicsError is what trying again does not mend; lesser differences are logged. With KAFKA_TOPICS=verify
// nothing is made, and what is missing is an error with the commands that make it.
func EnsureTopics(ctx context.Context, client *Client, topics []Topic) error {
	e := ensuring{client: client, admin: kadm.NewClient(client.Client), topics: withDLQs(topics)}
	return client.Explain(e.ensure(ctx))
}

// withDLQs has each topic once: brokers refuse a request that names one twice.
func withDLQs(topics []Topic) (wanted []Topic) {
	want := func(topic Topic) {
		if !slices.Contains(wanted, topic) {
			wanted = append(wanted, topic)
		}
	}
	for _, topic := range topics {
		want(topic)
		for _, reader := range Readers(topic.Name) {
			want(DLQ(topic, reader))
		}
	}
	return wanted
}

type ensuring struct {
	client *Client
	admin  *kadm.Client
	topics []Topic
	making Making
}

func (e *ensuring) names() []string {
	names := make([]string, len(e.topics))
	for i, topic := range e.topics {
		names[i] = topic.Name
	}
	return names
}

func (e *ensuring) ensure(ctx context.Context) error {
	have, err := e.admin.Metadata(ctx, e.names()...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	e.making = e.client.cfg.Making.on(len(have.Brokers))
	var missing, there []Topic
	for _, topic := range e.topics {
		switch found, known := have.Topics[topic.Name]; {
		case !known, errors.Is(found.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, topic)
		case found.Err != nil:
			return fmt.Errorf("look at topic %s: %w", topic.Name, found.Err)
		default:
			there = append(there, topic)
		}
	}
	if err := e.verify(ctx, there, have.Topics); err != nil || len(missing) == 0 {
		return err
	}
	if e.client.cfg.Topics == "verify" {
		return fmt.Errorf("KAFKA_TOPICS=verify, topics missing: %d; create them with:\n%s", len(missing), e.commands(missing))
	}
	return e.create(ctx, missing)
}

func (e *ensuring) create(ctx context.Context, missing []Topic) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	for _, topic := range missing {
		one := kmsg.NewCreateTopicsRequestTopic()
		one.Topic, one.NumPartitions, one.ReplicationFactor = topic.Name, topic.Partitions, int16(e.making.Replication)
		for name, value := range topic.settings(e.making.MinInsync) {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = name, value
			one.Configs = append(one.Configs, config)
		}
		request.Topics = append(request.Topics, one)
	}
	answer, err := request.RequestWith(ctx, e.client)
	if err != nil {
		return fmt.Errorf("create %d topics: %w", len(missing), err)
	}
	for _, made := range answer.Topics {
		err := kerr.ErrorForCode(made.ErrorCode)
		switch {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			return fmt.Errorf("KAFKA_USER may not make topics (%w): set KAFKA_TOPICS=verify, and have somebody who may run:\n%s", err, e.commands(missing))
		case errors.Is(err, kerr.InvalidReplicationFactor):
			return fmt.Errorf("create topic %s with %d replicas: %w: set KAFKA_REPLICATION to at most the number of brokers",
				made.Topic, e.making.Replication, err)
		default:
			return fmt.Errorf("create topic %s: %w", made.Topic, err)
		}
	}
	return e.known(ctx)
}

// known waits until every partition has a leader: the controller answers before the brokers have heard.
func (e *ensuring) known(ctx context.Context) error {
	for {
		have, err := e.admin.ListTopics(ctx, e.names()...)
		if err != nil {
			return fmt.Errorf("list topics: %w", err)
		}
		if !slices.ContainsFunc(e.topics, func(topic Topic) bool { return !led(have[topic.Name], topic) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the brokers know topics that were made: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func led(have kadm.TopicDetail, topic Topic) bool {
	for _, partition := range have.Partitions {
		if partition.Err != nil || partition.Leader < 0 {
			return false
		}
	}
	return have.Err == nil && len(have.Partitions) > 0 && len(have.Partitions) >= int(topic.Partitions)
}

// commands make the topics with Kafka's own tool.
func (e *ensuring) commands(missing []Topic) string {
	var all strings.Builder
	for _, topic := range missing {
		fmt.Fprintf(&all, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --replication-factor %d",
			strings.Join(e.client.cfg.Brokers, ","), topic.Name, topic.Partitions, e.making.Replication)
		settings := topic.settings(e.making.MinInsync)
		for _, name := range []string{"cleanup.policy", "retention.ms", "min.insync.replicas", timestampType} {
			if settings[name] != nil {
				fmt.Fprintf(&all, " --config %s=%s", name, *settings[name])
			}
		}
		all.WriteString("\n")
	}
	return all.String()
}

// TopicsError is topics that are not as the catalogue has them, in what can lose or disorder facts. Trying again does not help.
type TopicsError struct{ Faults []string }

func (e *TopicsError) Error() string { return strings.Join(e.Faults, "; ") }

// verify holds topics against the catalogue.
func (e *ensuring) verify(ctx context.Context, topics []Topic, have kadm.TopicDetails) error {
	if len(topics) == 0 {
		return nil
	}
	names := make([]string, len(topics))
	for i, topic := range topics {
		names[i] = topic.Name
	}
	described, err := e.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return fmt.Errorf("describe topics: %w", err)
	}
	if err := e.alterTimestamps(ctx, described); err != nil {
		return err
	}
	var faults []string
	for _, topic := range topics {
		wrong, doubtful := e.compare(topic, have[topic.Name], described)
		faults = append(faults, wrong...)
		for _, doubt := range doubtful {
			slog.Warn("a topic is not as the catalogue has it", "topic", topic.Name, "fault", doubt)
		}
	}
	if len(faults) > 0 {
		return &TopicsError{faults}
	}
	return nil
}

// The brokers stamp each record when they append it. Retention goes by that time. With the producer's time
// (CreateTime), a relay whose clock is a week behind writes records that retention deletes immediately,
// and one whose clock is ahead keeps a segment for longer than erasure promises.
const (
	timestampType = "message.timestamp.type"
	logAppendTime = "LogAppendTime"
)

// alterTimestamps changes topics that were created with another timestamp type. If it must not or may not,
// it logs the command. Records that are already in a topic keep their time.
func (e *ensuring) alterTimestamps(ctx context.Context, described kadm.ResourceConfigs) error {
	var names []string
	for _, topic := range described {
		for _, config := range topic.Configs {
			if config.Key == timestampType && config.MaybeValue() != logAppendTime {
				names = append(names, topic.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	refusals := map[string]error{}
	if e.client.cfg.Topics != "verify" {
		value := logAppendTime
		altered, err := e.admin.AlterTopicConfigs(ctx,
			[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: timestampType, Value: &value}}, names...)
		if err != nil {
			return fmt.Errorf("alter %s of %d topics: %w", timestampType, len(names), err)
		}
		for _, one := range altered {
			refusals[one.Name] = one.Err
		}
	}
	for _, name := range names {
		refused, tried := refusals[name]
		if tried && refused == nil {
			slog.Info("topic altered", "topic", name, timestampType, logAppendTime)
			continue
		}
		slog.Warn("topic keeps the producers' timestamps", "topic", name, "error", refused, "command", fmt.Sprintf(
			"kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", name, timestampType,
			logAppendTime))
	}
	return nil
}

// compare tells what is wrong, and what only may be.
func (e *ensuring) compare(topic Topic, have kadm.TopicDetail, described kadm.ResourceConfigs) (wrong, doubtful []string) {
	if n := len(have.Partitions); n != int(topic.Partitions) {
		wrong = append(wrong,
			fmt.Sprintf("topic %s has %d partitions and the catalogue says %d: the count decides which keys share an order, "+
				"so put it back or move to a new topic", topic.Name, n, topic.Partitions))
	}
	replicas := fewestReplicas(have.Partitions)
	if replicas < e.making.Replication {
		fault := fmt.Sprintf("topic %s has %d replicas and should have %d: raise it with kafka-reassign-partitions.sh, or "+
			"set KAFKA_REPLICATION=%d", topic.Name, replicas, e.making.Replication, replicas)
		if e.client.cfg.Replication > 0 {
			wrong = append(wrong, fault)
		} else {
			doubtful = append(doubtful, fault)
		}
	}
	configs, err := described.On(topic.Name, nil)
	if err != nil || configs.Err != nil {
		return wrong, append(doubtful, fmt.Sprintf("its settings can not be read (KAFKA_USER needs DescribeConfigs): %v", errors.Join(err, configs.Err)))
	}
	set := map[string]string{}
	for _, config := range configs.Configs {
		set[config.Key] = config.MaybeValue()
	}
	if insync, err := strconv.Atoi(set["min.insync.replicas"]); err == nil {
		switch {
		case insync > replicas:
			wrong = append(wrong,
				fmt.Sprintf("topic %s has %d replicas and min.insync.replicas %d: nothing can be written to it; lower that to "+
					"%d", topic.Name, replicas, insync, max(1, replicas-1)))
		case insync == replicas && replicas > 1:
			doubtful = append(doubtful, fmt.Sprintf("min.insync.replicas is %d, as many as there are replicas: no broker may ever stop; lower it to %d", insync, replicas-1))
		case insync < min(e.making.MinInsync, replicas-1):
			doubtful = append(doubtful, fmt.Sprintf("min.insync.replicas is %d and should be %d: a fact may be on one broker alone when it counts as kept", insync, e.making.MinInsync))
		}
	}
	return append(wrong, policyFaults(topic, set)...), append(doubtful, retentionDoubts(topic, set)...)
}

// fewestReplicas are those of the partition that has the fewest: a reassignment may have stopped half-way.
func fewestReplicas(partitions kadm.PartitionDetails) (fewest int) {
	for _, partition := range partitions {
		if n := len(partition.Replicas); fewest == 0 || n < fewest {
			fewest = n
		}
	}
	return fewest
}

func policyFaults(topic Topic, set map[string]string) []string {
	policy := set["cleanup.policy"]
	if compacts := strings.Contains(policy, "compact"); policy == "" || compacts == topic.Compacted && (!compacts || policy == "compact") {
		return nil
	}
	return []string{fmt.Sprintf("topic %s has cleanup.policy %s and the catalogue says %s: facts would be lost; "+
		"kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config cleanup.policy=%s mends it", topic.Name, policy, topic.policy(), topic.Name, topic.policy())}
}

func retentionDoubts(topic Topic, set map[string]string) []string {
	kept, err := strconv.ParseInt(set["retention.ms"], 10, 64)
	if err != nil || topic.Compacted || kept < 0 || kept == topic.Retention.Milliseconds() {
		return nil
	}
	return []string{fmt.Sprintf("retention.ms is %d and the catalogue says %d: a reader that is away for longer than that misses facts, and what is kept longer may hold what should be erased",
		kept, topic.Retention.Milliseconds())}
}

func (t Topic) policy() string {
	if t.Compacted {
		return "compact"
	}
	return "delete"
}

// settings are those that the topic is made with.
func (t Topic) settings(minInsync int) map[string]*string {
	policy, insync, timestamps := t.policy(), strconv.Itoa(minInsync), logAppendTime
	settings := map[string]*string{"cleanup.policy": &policy, "min.insync.replicas": &insync, timestampType: &timestamps}
	if retention := strconv.FormatInt(t.Retention.Milliseconds(), 10); !t.Compacted && t.Retention > 0 {
		settings["retention.ms"] = &retention
	}
	return settings
}
