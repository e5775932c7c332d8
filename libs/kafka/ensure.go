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

// Making contains the settings with which topics are created.
type Making struct {
	// Topics is "create" or "verify".
	Topics string `env:"KAFKA_TOPICS" envDefault:"create" help:"What the service does at its start if a topic is missing. create: it creates the topic. verify: it stops with an error that contains the command to create the topic."`
	// Replication is the number of replicas of a topic. MinInsync is the number of replicas that must
	// acknowledge a record. 0 means a default that depends on the number of brokers.
	Replication int `env:"KAFKA_REPLICATION" envDefault:"0" help:"Number of replicas of each topic that the service creates. 0 means 3 if the cluster has 3 or more brokers, otherwise 1."`
	MinInsync   int `env:"KAFKA_MIN_INSYNC" envDefault:"0" help:"Number of replicas that must store a record before a broker acknowledges it, for each topic that the service creates. If fewer replicas are available, no records are accepted. 0 means one fewer than KAFKA_REPLICATION, at least 1."`
}

func (m Making) check() error {
	if m.Topics != "" && m.Topics != "create" && m.Topics != "verify" {
		return fmt.Errorf("KAFKA_TOPICS is %q: set it to create or verify", m.Topics)
	}
	if m.Replication < 0 || m.MinInsync < 0 || m.Replication > 0 && m.MinInsync > m.Replication {
		return fmt.Errorf("KAFKA_MIN_INSYNC is %d and KAFKA_REPLICATION %d: the first must not exceed the second", m.MinInsync, m.Replication)
	}
	return nil
}

// withDefaults replaces the settings that are zero by the defaults for a cluster with the given
// number of brokers.
func (m Making) withDefaults(brokers int) Making {
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

// EnsureTopics creates missing topics and the DLQs of their readers, and waits until the brokers
// report them. With KAFKA_TOPICS=verify it creates nothing; if topics are missing, its error
// contains the commands that create them.
//
// EnsureTopics also compares existing topics with the catalogue. If a difference can lose or
// reorder records, it returns a *TopicsError. It logs other differences. The only setting that it
// changes is the timestamp type.
func EnsureTopics(ctx context.Context, client *Client, topics []Topic) error {
	e := ensuring{client: client, admin: kadm.NewClient(client.Client), topics: withDLQs(topics)}
	return client.Explain(e.ensure(ctx))
}

// withDLQs adds the DLQs of the topics' readers. It returns each topic once, because brokers reject
// duplicates.
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
	e.making = e.client.cfg.Making.withDefaults(len(have.Brokers))
	var missing, there []Topic
	for _, topic := range e.topics {
		switch found, known := have.Topics[topic.Name]; {
		case !known, errors.Is(found.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, topic)
		case found.Err != nil:
			return fmt.Errorf("list topic %s: %w", topic.Name, found.Err)
		default:
			there = append(there, topic)
		}
	}
	if err := e.verify(ctx, there, have.Topics); err != nil || len(missing) == 0 {
		return err
	}
	if e.client.cfg.Topics == "verify" {
		return fmt.Errorf("KAFKA_TOPICS=verify, topics missing: %d; create them with:\n%s",
			len(missing), e.createCommands(missing))
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
			return fmt.Errorf("KAFKA_USER has no permission to create topics (%w): "+
				"set KAFKA_TOPICS=verify, and run as a user with the permission:\n%s", err, e.createCommands(missing))
		case errors.Is(err, kerr.InvalidReplicationFactor):
			return fmt.Errorf("create topic %s with %d replicas: %w: set KAFKA_REPLICATION to at most the number of brokers",
				made.Topic, e.making.Replication, err)
		default:
			return fmt.Errorf("create topic %s: %w", made.Topic, err)
		}
	}
	return e.waitForLeaders(ctx)
}

// waitForLeaders waits until all partitions of the topics have a leader. The controller confirms
// the creation of a topic before all brokers know the topic.
func (e *ensuring) waitForLeaders(ctx context.Context) error {
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
			return fmt.Errorf("wait until the brokers know the created topics: %w", ctx.Err())
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

// createCommands returns the kafka-topics.sh commands that create the topics.
func (e *ensuring) createCommands(missing []Topic) string {
	var all strings.Builder
	for _, topic := range missing {
		fmt.Fprintf(&all, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --replication-factor %d",
			strings.Join(e.client.cfg.Brokers, ","), topic.Name, topic.Partitions, e.making.Replication)
		settings := topic.settings(e.making.MinInsync)
		for _, name := range []string{"cleanup.policy", "retention.ms", segmentTime, "min.insync.replicas", timestampType} {
			if settings[name] != nil {
				fmt.Fprintf(&all, " --config %s=%s", name, *settings[name])
			}
		}
		all.WriteString("\n")
	}
	return all.String()
}

// TopicsError lists topics whose settings can lose or reorder records. Retrying does not help.
type TopicsError struct{ Faults []string }

func (e *TopicsError) Error() string { return strings.Join(e.Faults, "; ") }

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
		wrong, doubtful := e.compareTopic(topic, have[topic.Name], described)
		faults = append(faults, wrong...)
		for _, difference := range doubtful {
			slog.Warn("Kafka topic differs from the catalogue", "topic", topic.Name, "difference", difference)
		}
	}
	if len(faults) > 0 {
		return &TopicsError{faults}
	}
	return nil
}

// Retention uses the timestamp of a record, so the brokers must set it (LogAppendTime). If
// producers set it, the records of a producer whose clock is a week slow would be deleted
// immediately. A fast clock would keep personal data longer than documented.
const (
	timestampType = "message.timestamp.type"
	logAppendTime = "LogAppendTime"
)

// alterTimestamps sets the timestamp type of topics that have a different one. If KAFKA_TOPICS is
// verify or the broker refuses the change, it logs the command that sets the type.
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
			slog.Info("timestamp type of Kafka topic changed", "topic", name, timestampType, logAppendTime)
			continue
		}
		slog.Warn("timestamp type of Kafka topic not changed, the producers set the timestamps",
			"topic", name, "error", refused, "command", fmt.Sprintf(
				"kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s",
				name, timestampType, logAppendTime))
	}
	return nil
}

// compareTopic returns two lists of differences: those that can lose or reorder records, and all
// others.
func (e *ensuring) compareTopic(
	topic Topic, have kadm.TopicDetail, described kadm.ResourceConfigs,
) (wrong, doubtful []string) {
	if n := len(have.Partitions); n != int(topic.Partitions) {
		wrong = append(wrong,
			fmt.Sprintf("topic %s has %d partitions and the catalogue requires %d: "+
				"the count decides which keys share an order, "+
				"so restore it or use a new topic", topic.Name, n, topic.Partitions))
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
		return wrong, append(doubtful, fmt.Sprintf("its settings cannot be read (KAFKA_USER needs DescribeConfigs): %v", errors.Join(err, configs.Err)))
	}
	set := map[string]string{}
	for _, config := range configs.Configs {
		set[config.Key] = config.MaybeValue()
	}
	if insync, err := strconv.Atoi(set["min.insync.replicas"]); err == nil {
		switch {
		case insync > replicas:
			wrong = append(wrong,
				fmt.Sprintf("topic %s has %d replicas and min.insync.replicas %d: no record can be written to it; lower it to "+
					"%d", topic.Name, replicas, insync, max(1, replicas-1)))
		case insync == replicas && replicas > 1:
			doubtful = append(doubtful, fmt.Sprintf("min.insync.replicas is %d, equal to the number of replicas: no broker may stop; lower it to %d", insync, replicas-1))
		case insync < min(e.making.MinInsync, replicas-1):
			doubtful = append(doubtful, fmt.Sprintf("min.insync.replicas is %d and should be %d: a record may be on only one broker when it is acknowledged", insync, e.making.MinInsync))
		}
	}
	return append(wrong, policyFaults(topic, set)...), append(doubtful, retentionDoubts(topic, set)...)
}

// fewestReplicas returns the lowest number of replicas of a topic's partitions. After an
// interrupted reassignment, partitions can have different numbers.
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
	return []string{fmt.Sprintf("topic %s has cleanup.policy %s and the catalogue requires %s: "+
		"records would be lost; to change it, run "+
		"kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config cleanup.policy=%s",
		topic.Name, policy, topic.policy(), topic.Name, topic.policy())}
}

func retentionDoubts(topic Topic, set map[string]string) []string {
	kept, err := strconv.ParseInt(set["retention.ms"], 10, 64)
	if err != nil || topic.Compacted || kept < 0 || kept == topic.Retention.Milliseconds() {
		return nil
	}
	return []string{fmt.Sprintf("retention.ms is %d and the catalogue requires %d: "+
		"a consumer that is stopped for longer loses records, and a longer retention can keep data that should be erased",
		kept, topic.Retention.Milliseconds())}
}

func (t Topic) policy() string {
	if t.Compacted {
		return "compact"
	}
	return "delete"
}

// Brokers delete whole segments. A segment receives records until segment.ms ends. So a topic with
// a short retention needs a shorter segment.ms than the brokers' default.
const (
	segmentTime        = "segment.ms"
	defaultSegmentTime = week
)

func (t Topic) settings(minInsync int) map[string]*string {
	policy, insync, timestamps := t.policy(), strconv.Itoa(minInsync), logAppendTime
	settings := map[string]*string{"cleanup.policy": &policy, "min.insync.replicas": &insync, timestampType: &timestamps}
	if retention := strconv.FormatInt(t.Retention.Milliseconds(), 10); !t.Compacted && t.Retention > 0 {
		settings["retention.ms"] = &retention
		if t.Retention < defaultSegmentTime {
			settings[segmentTime] = &retention
		}
	}
	return settings
}
