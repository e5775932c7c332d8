package inbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
)

// logBuffer is a log output for concurrent reads and writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *logBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *logBuffer) has(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), words)
}

func (b *bench) partitions(names ...string) (n int) {
	found, err := kadm.NewClient(b.wire.Client).ListTopics(b.Context(), names...)
	if err != nil {
		return -1
	}
	for _, topic := range found {
		n += len(topic.Partitions)
	}
	return n
}

func (b *bench) remove(names ...string) {
	b.Helper()
	if _, err := kadm.NewClient(b.wire.Client).DeleteTopics(b.Context(), names...); err != nil {
		b.Fatal(err)
	}
	b.eventually("the topics are gone", func() bool { return b.partitions(names...) == 0 })
}

// This test is not parallel, because it replaces the default logger.
func TestConsumer_LogsWhyItWaits(t *testing.T) {
	b := newBench(t)
	var log logBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	cfg := b.cfg
	cfg.Topics = "verify"
	b.remove(kafka.DLQ(topic, service).Name)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		handlers := inbox.Handlers{topic.Name: inbox.Each(b.handle, nil)}
		done <- inbox.NewConsumer(service, cfg, b.pool, handlers, nil, prometheus.NewRegistry()).Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	b.eventually("the missing DLQ is logged", func() bool { return log.has("topics missing: 1") })
	b.remove(topic.Name)
	b.eventually("the second missing topic is logged", func() bool { return log.has("topics missing: 2") })
}

func TestConsumer_CreatesItsTopicsOnAnEmptyCluster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	names := []string{topic.Name}
	for _, reader := range kafka.Readers(topic.Name) {
		names = append(names, kafka.DLQ(topic, reader).Name)
	}
	b.remove(names...)
	stop := b.run(b.pool)
	b.eventually("everything is there", func() bool { return b.partitions(names...) == len(names)*int(topic.Partitions) })
	b.produce(record("k", 1))
	b.wantEffects("k", 1)
	stop()
}
