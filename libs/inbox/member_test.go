package inbox_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

// After a restart with the same instance id, a replica need not wait for the session timeout of 6
// s.
func TestConsumer_RestartedReplicaGetsItsPartitionsWithoutAWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.InstanceID = "dialer-1"
	dead, err := kafka.NewClient(b.cfg, "dead", nil, kgo.ConsumerGroup(service), kgo.ConsumeTopics(topic.Name),
		kgo.InstanceID(b.cfg.InstanceID), kgo.SessionTimeout(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("the first life is a member", func() bool { return b.members() == 1 })
	dead.Close() // does not remove a static member from the group

	b.produce(record("k", 1))
	stop := b.run(b.pool)
	b.wantEffects("k", 1)
	stop()
	b.eventually("an orderly stop leaves the group", func() bool { return b.members() == 0 })
}

func (b *bench) members() int {
	groups, err := kadm.NewClient(b.wire.Client).DescribeGroups(b.Context(), service)
	if err != nil {
		b.Fatal(err)
	}
	return len(groups[service].Members)
}
