// Package settlement settles the holds of ended requests. It captures or releases each hold once,
// and stores the event in the outbox in the same transaction. It also reports holds that are not
// confirmed. Each transaction locks only one wallet.
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

// pollInterval is the longest time between two scans. If Wake is not called, for example after a
// crash or a failed scan, the settler scans after this time.
const (
	pollInterval = time.Second
	settleBatch  = 200
)

// Settler settles pending settlements. Replicas can run it concurrently.
type Settler struct {
	store   *store.Store
	relay   *outbox.Relay
	wake    chan struct{}
	results *prometheus.CounterVec
	late    *prometheus.CounterVec
	waited  prometheus.Gauge
}

// NewSettler returns a settler. The settler wakes relay after each commit.
func NewSettler(st *store.Store, relay *outbox.Relay, metrics prometheus.Registerer) *Settler {
	s := &Settler{
		store: st, relay: relay, wake: make(chan struct{}, 1),
		results: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_settlements_total",
			Help: "Settled holds by result: captured, released.",
		}, []string{"result"}),
		late: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_billing_late_settlements_total",
			Help: "Ends of requests that changed no hold, by kind.",
		}, []string{"kind"}),
		waited: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_oldest_pending_settlement_seconds",
			Help: "Age of the oldest pending settlement at the last scan; it rises while a settlement fails.",
		}),
	}
	s.results.WithLabelValues("captured")
	s.results.WithLabelValues("released")
	for _, kind := range holds.LateKinds() {
		s.late.WithLabelValues(string(kind))
	}
	return s
}

// Wake makes the settler scan for pending settlements now. It does not block.
func (s *Settler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run runs the settler until ctx ends. It always returns nil.
func (s *Settler) Run(ctx context.Context) error {
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-ticks.C:
		}
		if _, err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "settlement of holds failed", "error", err)
		}
	}
}

// Pass settles all outcomes that are pending when it starts, and returns their number.
func (s *Settler) Pass(ctx context.Context) (outcomes int, err error) {
	workspaces, err := s.store.Unsettled(ctx)
	if err != nil {
		return 0, err
	}
	oldest := 0.0
	var fault error // an error of one workspace does not stop the others
	for _, waiting := range workspaces {
		oldest = max(oldest, waiting.WaitedSeconds)
		n, err := s.settleWorkspace(ctx, waiting.WorkspaceID)
		outcomes += n
		if err != nil {
			fault = err
		}
	}
	s.waited.Set(oldest)
	return outcomes, fault
}

func (s *Settler) settleWorkspace(ctx context.Context, workspaceID uuid.UUID) (outcomes int, err error) {
	for {
		var spans []trace.Span
		done, err := s.store.Settle(ctx, workspaceID, settleBatch, func(batch *pgx.Batch, done []store.Settlement) error {
			for _, settlement := range done {
				span, err := queueEvent(ctx, batch, settlement)
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
			return outcomes, err
		}
		if len(done) > 0 {
			failpoint.Inject("billing-wallet: after settle commit")
			s.relay.Wake()
			s.countOutcomes(ctx, done)
		}
		outcomes += len(done)
		if len(done) < settleBatch {
			return outcomes, nil
		}
	}
}

// queueEvent adds the event of a settlement to the batch. The event continues the trace of the
// outcome. queueEvent adds nothing for a late outcome.
func queueEvent(ctx context.Context, batch *pgx.Batch, done store.Settlement) (trace.Span, error) {
	waited := time.Duration(done.Outcome.WaitedSeconds * float64(time.Second))
	ctx, span := telemetry.Continue(ctx, "settle hold", done.Outcome.Traceparent, waited)
	if !done.Hold.Inbound {
		span.SetAttributes(telemetry.CallRequestID(done.Outcome.RequestID.String()))
	}
	if done.Outcome.CallID != nil {
		span.SetAttributes(telemetry.CallID(done.Outcome.CallID.String()))
	}
	if done.Late != holds.NotLate {
		return span, nil
	}
	if err := outbox.Queue(ctx, batch, newEvent(done)); err != nil {
		return span, fmt.Errorf("queue event of hold %s: %w", done.Hold.RequestID, err)
	}
	return span, nil
}

func newEvent(done store.Settlement) outbox.Event {
	callID := ""
	requestID := done.Hold.RequestID.String()
	switch {
	case done.Hold.Inbound:
		callID, requestID = requestID, ""
	case done.Hold.CallID != nil:
		callID = done.Hold.CallID.String()
	}
	message := &eventv1.WalletEvent{
		CallRequestId: requestID, WorkspaceId: done.Hold.WorkspaceID.String(),
		OccurredAt: timestamppb.New(ledger.Transaction{ID: done.TransactionID}.CreatedAt()),
		Event:      &eventv1.WalletEvent_Released{Released: &eventv1.Released{CallId: callID}},
	}
	if done.Hold.State == holds.Captured {
		message.Event = &eventv1.WalletEvent_Captured{Captured: &eventv1.Captured{
			CallId: callID, AmountMicro: int64(done.Hold.Charged()), Currency: done.Hold.Currency,
		}}
	}
	return outbox.Event{
		ID: done.TransactionID, Topic: kafka.WalletEvents, Key: done.Hold.RequestID.String(),
		WorkspaceID: done.Hold.WorkspaceID, Message: message,
	}
}

func (s *Settler) countOutcomes(ctx context.Context, done []store.Settlement) {
	for _, d := range done {
		if d.Late == holds.NotLate {
			s.results.WithLabelValues(string(d.Hold.State)).Inc()
			continue
		}
		s.late.WithLabelValues(string(d.Late)).Inc()
		slog.InfoContext(ctx, "late end of a call request ignored, hold unchanged",
			"call_request_id", d.Outcome.RequestID, "kind", d.Late, "reason", d.Outcome.Reason)
	}
}
