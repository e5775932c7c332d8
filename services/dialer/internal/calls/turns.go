package calls

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// maxTurns is the maximum number of turns that wait to be published.
	maxTurns = 1000
	// turnsInterval is the time between two batches of turns.
	turnsInterval = 50 * time.Millisecond
	// turnTimeout limits each step of the publication of a turn.
	turnTimeout = 5 * time.Second
)

// Turn is one turn of a call in progress. Number is the number of the turn within the call,
// starting at 1.
type Turn struct {
	CallID uuid.UUID
	Number int
	agent.Turn
}

// TurnPublisher publishes the turns of calls in progress to call-turns.v1. webhook-dispatcher reads
// this topic and sends the turns to clients in the event stream. Turns are not stored in an outbox,
// so they are lost if the database or Kafka is not available. The turns of erased calls are not
// published.
//
// The publisher has its own Kafka client, so turns cannot delay other records.
type TurnPublisher struct {
	store  *store.Store
	client *kafka.Client
	turns  chan Turn
	lost   prometheus.Counter
}

// NewTurnPublisher returns a publisher. The caller must call Run.
func NewTurnPublisher(cfg kafka.Config, st *store.Store, metrics prometheus.Registerer) (*TurnPublisher, error) {
	client, err := kafka.NewClient(cfg, "dialer-turns", nil, kgo.DisableIdempotentWrite(),
		kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordDeliveryTimeout(turnTimeout), kgo.MaxBufferedRecords(maxTurns))
	if err != nil {
		return nil, err
	}
	p := &TurnPublisher{
		store: st, client: client, turns: make(chan Turn, maxTurns),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_dialer_lost_turns_total",
			Help: "Turns of calls in progress that were not published. Transcripts contain them.",
		}),
	}
	metrics.MustRegister(p.lost)
	return p, nil
}

// Add queues turns to be published. It does not block. If the queue is full, Add drops the turns.
func (p *TurnPublisher) Add(turns ...Turn) {
	for _, turn := range turns {
		select {
		case p.turns <- turn:
		default:
			p.lost.Inc()
		}
	}
}

// Run publishes turns until ctx ends.
func (p *TurnPublisher) Run(ctx context.Context) error {
	defer p.client.Close()
	failed := false
	for {
		var batch []Turn
		select {
		case <-ctx.Done():
			return nil
		case turn := <-p.turns:
			batch = append(batch, turn)
		}
		for range min(len(p.turns), maxTurns-1) {
			batch = append(batch, <-p.turns)
		}
		err := p.publish(ctx, batch)
		if err != nil && !failed && ctx.Err() == nil {
			slog.WarnContext(ctx, "turns of calls in progress not published", "turns", len(batch), "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(turnsInterval):
		}
	}
}

func (p *TurnPublisher) publish(ctx context.Context, batch []Turn) error {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	ids := make([]uuid.UUID, len(batch))
	for i, turn := range batch {
		ids[i] = turn.CallID
	}
	calls, err := p.store.TurnCalls(ctx, ids)
	if err != nil {
		p.lost.Add(float64(len(batch)))
		return err
	}
	for _, turn := range batch {
		call, found := calls[turn.CallID]
		if !found { // the call was erased
			continue
		}
		record, err := turn.record(call)
		if err != nil {
			return err
		}
		// ctx does not limit the delivery of a record. The timeout of the Kafka client limits it.
		p.client.TryProduce(context.WithoutCancel(ctx), record, func(_ *kgo.Record, err error) {
			if err != nil {
				p.lost.Inc()
			}
		})
	}
	return nil
}

func (t Turn) record(call store.TurnCall) (*kgo.Record, error) {
	message := &eventv1.CallTurn{
		CallId: t.CallID.String(), WorkspaceId: call.WorkspaceID.String(), AgentId: call.AgentID.String(),
		Number: int32(t.Number), //nolint:gosec // a call has at most some thousand turns
		Role:   t.Role, Text: t.Text, SpokenAt: timestamppb.New(t.At),
	}
	if call.CallRequestID != nil {
		message.CallRequestId = call.CallRequestID.String()
	}
	value, err := proto.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode turn %d of call %s: %w", t.Number, t.CallID, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make event id: %w", err)
	}
	record := &kgo.Record{Topic: kafka.CallTurns.Name, Key: []byte(message.GetCallId()), Value: value}
	for name, value := range map[string]string{
		kafka.HeaderSpecVersion: "1.0",
		kafka.HeaderID:          id.String(),
		kafka.HeaderSource:      "/dialer",
		kafka.HeaderTime:        t.At.UTC().Format(time.RFC3339Nano),
		kafka.HeaderType:        string(message.ProtoReflect().Descriptor().FullName()),
		kafka.HeaderSubject:     message.GetCallId(),
		kafka.HeaderKey:         message.GetCallId(),
		kafka.HeaderWorkspaceID: message.GetWorkspaceId(),
		kafka.HeaderContentType: "application/protobuf",
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record, nil
}
