package dbfailover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// ackTimeout is how long a dial waits for Kafka's acknowledgement of its intent.
	ackTimeout = time.Second
	// probeInterval is the time between two attempts to close an open circuit.
	probeInterval = time.Second
	// idleInterval is the time without records after which the publisher checks that the brokers
	// respond.
	idleInterval = 5 * time.Second
)

var errNotAcknowledged = fmt.Errorf("kafka did not acknowledge the intent within %s", ackTimeout)

// Publisher publishes intents. Its circuit breaker opens if Kafka does not acknowledge an intent in
// time, and closes when Kafka acknowledges a record. While the circuit is open, the dialer claims
// no requests.
type Publisher struct {
	client   *kafka.Client
	failures prometheus.Counter
	latency  prometheus.Histogram

	mu sync.Mutex
	// fault is the error that opened the circuit. It is nil while the circuit is closed.
	fault error
	// failedIntent is the intent that Kafka did not acknowledge. The publisher repeats the withdrawal
	// of this intent to test the circuit.
	failedIntent *store.Intent
	// unacknowledged is the number of records for which the Kafka client has not reported success or
	// failure yet.
	unacknowledged int
	lastAck        time.Time
}

// errTopicUnknown is the fault until Run has found the topic.
var errTopicUnknown = errors.New("the topic has not been found yet")

// NewPublisher returns a publisher with its own Kafka client. The circuit is open until Run has
// found the topic.
func NewPublisher(cfg kafka.Config, metrics prometheus.Registerer) (*Publisher, error) {
	client, err := kafka.NewClient(cfg, "dialer-intents", metrics)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		client: client, fault: errTopicUnknown,
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_intent_failures_total",
			Help: "Dials that were not attempted because Kafka did not acknowledge their intent.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ringfence_dialer_intent_ack_seconds",
			Help:    "Time until Kafka acknowledged the intent of a dial.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
	}
	metrics.MustRegister(p.failures, p.latency)
	return p, nil
}

// Close closes the client. Records that Kafka has not acknowledged are lost.
func (p *Publisher) Close() { p.client.Close() }

// Ready returns nil if the circuit is closed.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		return fmt.Errorf("dial intents cannot be published: %w", p.fault)
	}
	return nil
}

// Intend publishes the intent and waits for Kafka's acknowledgement. Only if Intend returns nil may
// the caller commit the fence of the call. After an error, Intend withdraws the intent.
func (p *Publisher) Intend(ctx context.Context, i store.Intent) error {
	record, err := encodeIntended(i)
	if err != nil {
		return err
	}
	begun, acknowledged := time.Now(), make(chan error, 1)
	p.produce(record, func(err error) { acknowledged <- err })
	timeout := time.NewTimer(ackTimeout)
	defer timeout.Stop()
	select {
	case err = <-acknowledged:
	case <-timeout.C:
		err = errNotAcknowledged
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		p.latency.Observe(time.Since(begun).Seconds())
		return nil
	}
	p.Withdraw(i)
	p.failures.Inc()
	p.openCircuit(ctx, i, err)
	return fmt.Errorf("publish intent of call %s: %w", i.CallID, err)
}

// Withdraw publishes that no phone rang for the call and that no phone will ring. It does not wait
// for Kafka. If the withdrawal is lost, a later reconciliation can end a request that could still
// have been dialed.
func (p *Publisher) Withdraw(i store.Intent) {
	record, err := encodeWithdrawn(i)
	if err != nil {
		slog.Warn("dial intent not withdrawn", "call_id", i.CallID, "error", err)
		return
	}
	p.produce(record, func(err error) {
		if err != nil {
			slog.Warn("dial intent not withdrawn", "call_id", i.CallID, "error", err)
		}
	})
}

// produce passes a record to the client, which sends the records of concurrent dials together. It
// does not use the context of the dial. After a cancellation, it would not be known whether the
// topic contains the record.
func (p *Publisher) produce(record *kgo.Record, answered func(error)) {
	p.mu.Lock()
	p.unacknowledged++
	p.mu.Unlock()
	p.client.TryProduce(context.Background(), record, func(_ *kgo.Record, err error) {
		p.mu.Lock()
		p.unacknowledged--
		if err == nil {
			p.lastAck = time.Now()
		}
		p.mu.Unlock()
		answered(err)
	})
}

func (p *Publisher) openCircuit(ctx context.Context, i store.Intent, fault error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		slog.ErrorContext(ctx, "dialing stopped, dial intent not published", "error", fault)
	}
	p.fault, p.failedIntent = p.client.Explain(fault), &i
}

func (p *Publisher) closeCircuit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil && !errors.Is(p.fault, errTopicUnknown) {
		slog.Info("dial intents can be published again")
	}
	p.fault, p.failedIntent = nil, nil
}

// Run creates the topic if it is missing. Then it tests the circuit until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for found := false; ; {
		if !found {
			found = p.findTopic(ctx)
		} else {
			p.probeBrokers(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (p *Publisher) findTopic(ctx context.Context) bool {
	trying, cancel := context.WithTimeout(ctx, 10*probeInterval)
	defer cancel()
	if err := kafka.EnsureTopics(trying, p.client, []kafka.Topic{kafka.DialIntents}); err != nil {
		if ctx.Err() == nil {
			slog.WarnContext(ctx, "topic check or creation failed", "topic", kafka.DialIntents.Name, "error", err)
		}
		return false
	}
	p.closeCircuit()
	return true
}

// probeBrokers closes an open circuit if Kafka acknowledges a record or responds to a ping. If the
// dialer publishes nothing for some time and the brokers do not respond, it opens the circuit.
func (p *Publisher) probeBrokers(ctx context.Context) {
	p.mu.Lock()
	fault, failed, unacknowledged, idle := p.fault, p.failedIntent, p.unacknowledged, time.Since(p.lastAck)
	p.mu.Unlock()
	switch {
	// The test record would have to wait for the records that the client is still trying to deliver.
	case fault != nil && unacknowledged > 0:
		return
	case fault != nil && failed != nil:
		p.repeatWithdrawal(ctx, *failed)
		return
	case fault == nil && idle < idleInterval:
		return
	}
	asking, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	err := p.client.Ping(asking)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.closeCircuit()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		slog.ErrorContext(ctx, "dialing stopped, Kafka does not respond", "error", err)
		p.fault = p.client.Explain(err)
	}
}

// repeatWithdrawal publishes the withdrawal of the failed intent once more. If Kafka acknowledges
// this record, the publisher closes its circuit. A reconciliation ignores the repetition.
func (p *Publisher) repeatWithdrawal(ctx context.Context, failed store.Intent) {
	record, err := encodeWithdrawn(failed)
	if err != nil {
		return
	}
	acknowledged := make(chan error, 1)
	p.produce(record, func(err error) { acknowledged <- err })
	timeout := time.NewTimer(ackTimeout)
	defer timeout.Stop()
	select {
	case err := <-acknowledged:
		if err == nil {
			p.closeCircuit()
		}
	case <-timeout.C:
	case <-ctx.Done():
	}
}
