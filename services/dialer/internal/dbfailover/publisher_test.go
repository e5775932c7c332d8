package dbfailover

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/store"
)

// The message "dial intents can be published again" may be logged only if dialing has stopped
// before. This test is not parallel, because it replaces the default logger.
func TestPublisher_LogsNoRecoveryIfNoOutageHappened(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	p, err := NewPublisher(kafka.Config{Brokers: []string{"127.0.0.1:1"}}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	log.Reset()
	p.closeCircuit()
	if log.Len() > 0 {
		t.Errorf("log at the first start = %q, want nothing", log.String())
	}
	p.openCircuit(t.Context(), store.Intent{}, errNotAcknowledged)
	p.closeCircuit()
	if !strings.Contains(log.String(), "dial intents can be published again") {
		t.Errorf("log after a stop = %q, want that dial intents can be published again", log.String())
	}
}

func TestIntend_ReturnsAnErrorIfKafkaDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	p, err := NewPublisher(kafka.Config{Brokers: cluster.ListenAddrs()}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if p.Ready() == nil {
		t.Error("Ready before the topic is found = nil, want an error")
	}
	if !p.findTopic(t.Context()) {
		t.Fatal("the topic was not found")
	}
	if err := p.Ready(); err != nil {
		t.Errorf("Ready = %v, want nil", err)
	}
	var refuse, refused = true, 0
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if !refuse {
			return nil, nil, false
		}
		refused++
		return nil, errors.New("the connection is closed"), true
	})
	i := store.Intent{
		CallRequestID: uuid.New(), WorkspaceID: uuid.New(), CallID: uuid.New(), InstanceID: uuid.New(), AgentID: uuid.New(),
		At: time.Now(),
	}
	if err := p.Intend(t.Context(), i); !errors.Is(err, errNotAcknowledged) {
		t.Errorf("Intend = %v, want errNotAcknowledged", err)
	}
	if p.Ready() == nil {
		t.Error("Ready after an intent without acknowledgement = nil, want an error")
	}
	cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		refuse = false // no lock is needed: the cluster calls both functions in one goroutine
		return nil, nil, false
	})
	testkit.Until(t, "the circuit closes", func() bool {
		p.probeBrokers(t.Context())
		return p.Ready() == nil
	})
	if err := p.Intend(t.Context(), i); err != nil {
		t.Errorf("Intend after the circuit has closed = %v", err)
	}
}
