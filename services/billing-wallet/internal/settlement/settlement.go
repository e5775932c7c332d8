// Package settlement posts what the consumers noted: a hold whose request ended becomes a capture or a
// release, once, and the fact of it goes out in the same commit. It works a workspace at a time, so that only one
// wallet is locked in a transaction.
package settlement

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// pause is the time between two looks when nobody calls Soon: after a crash, or when a look failed.
const (
	pause       = time.Second
	settleBatch = 200
)

// Settler is the one that posts.
type Settler struct {
	store   *store.Store
	relay   *outbox.Relay
	soon    chan struct{}
	results *prometheus.CounterVec
	late    *prometheus.CounterVec
	waited  prometheus.Gauge
}

// NewSettler makes a settler; relay is woken after each commit.
func NewSettler(st *store.Store, relay *outbox.Relay, metrics prometheus.Registerer) *Settler {
	s := &Settler{
		store: st, relay: relay, soon: make(chan struct{}, 1),
		results: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_settlements_total", Help: "Holds settled, by result: captured, released.",
		}, []string{"result"}),
		late: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_late_settlements_total", Help: "News of ended requests that changed nothing, by kind.",
		}, []string{"kind"}),
		waited: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_oldest_pending_settlement_seconds", Help: "How long the oldest news of an ended request had waited for its settlement at the last look; rises while one cannot be settled.",
		}),
	}
	s.results.WithLabelValues("captured")
	s.results.WithLabelValues("released")
	for _, kind := range holds.LateKinds() {
		s.late.WithLabelValues(string(kind))
	}
	return s
}

// Wake says that a verdict may have been committed. It never blocks.
func (s *Settler) Wake() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

// Run settles until ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.soon:
		case <-ticks.C:
		}
		if _, err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "settling holds", "error", err)
		}
	}
}

// Pass settles everything that waits now and says how many verdicts that were.
func (s *Settler) Pass(ctx context.Context) (verdicts int, err error) {
	workspaces, err := s.store.Unsettled(ctx)
	if err != nil {
		return 0, err
	}
	oldest := 0.0
	var fault error // one workspace's does not hold up the others
	for _, waiting := range workspaces {
		oldest = max(oldest, waiting.WaitedSeconds)
		n, err := s.workspace(ctx, waiting.WorkspaceID)
		verdicts += n
		if err != nil {
			fault = err
		}
	}
	s.waited.Set(oldest)
	return verdicts, fault
}

func (s *Settler) workspace(ctx context.Context, workspaceID uuid.UUID) (verdicts int, err error) {
	for {
		var spans []trace.Span
		done, err := s.store.Settle(ctx, workspaceID, settleBatch, func(batch *pgx.Batch, done []store.Settlement) error {
			for _, settlement := range done {
				span, err := publish(ctx, batch, settlement)
				if err != nil {
					return err
				}
				spans = append(spans, span)
			}
			return nil
		})
		for _, span := range spans {
			span.End()
		}
		if err != nil {
			return verdicts, err
		}
		if len(done) > 0 {
			failpoint.Inject("billing-wallet: after settle commit")
			s.relay.Wake()
			s.count(ctx, done)
		}
		verdicts += len(done)
		if len(done) < settleBatch {
			return verdicts, nil
		}
	}
}

// publish queues the fact of a settlement inside the trace that its verdict came in; late news has none.
func publish(ctx context.Context, batch *pgx.Batch, done store.Settlement) (trace.Span, error) {
	waited := time.Duration(done.Verdict.WaitedSeconds * float64(time.Second))
	ctx, span := telemetry.Continue(ctx, "settle hold", done.Verdict.Traceparent, waited,
		telemetry.CallRequestID(done.Verdict.RequestID.String()))
	if done.Verdict.CallID != nil {
		span.SetAttributes(telemetry.CallID(done.Verdict.CallID.String()))
	}
	if done.Late != holds.NotLate {
		return span, nil
	}
	if err := outbox.Queue(ctx, batch, event(done)); err != nil {
		return span, fmt.Errorf("queue fact on %s: %w", done.Hold.RequestID, err)
	}
	return span, nil
}

func event(done store.Settlement) outbox.Event {
	callID := ""
	if done.Hold.CallID != nil {
		callID = done.Hold.CallID.String()
	}
	fact := &eventv1.WalletEvent{
		CallRequestId: done.Hold.RequestID.String(), WorkspaceId: done.Hold.WorkspaceID.String(),
		OccurredAt: timestamppb.New(ledger.Transaction{ID: done.TransactionID}.CreatedAt()),
		Event:      &eventv1.WalletEvent_Released{Released: &eventv1.Released{CallId: callID}},
	}
	if done.Hold.State == holds.Captured {
		fact.Event = &eventv1.WalletEvent_Captured{Captured: &eventv1.Captured{
			CallId: callID, AmountMicro: int64(done.Hold.Charged()), Currency: done.Hold.Currency,
		}}
	}
	return outbox.Event{
		ID: done.TransactionID, Topic: kafka.WalletEvents, Key: done.Hold.RequestID.String(),
		WorkspaceID: done.Hold.WorkspaceID, Message: fact,
	}
}

func (s *Settler) count(ctx context.Context, done []store.Settlement) {
	for _, d := range done {
		if d.Late == holds.NotLate {
			s.results.WithLabelValues(string(d.Hold.State)).Inc()
			continue
		}
		s.late.WithLabelValues(string(d.Late)).Inc()
		slog.InfoContext(ctx, "late news changed nothing", "call_request_id", d.Verdict.RequestID, "kind", d.Late, "reason", d.Verdict.Reason)
	}
}
