// Package confirming asks calls for the requests of holds: of holds whose request was not received, and of
// holds that are open for hours although their request was received, because the end of a request can be
// lost. It publishes an unconfirmed event, again and again until calls responds. It releases nothing: time
// alone never does.

package settlement

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/store"
)

const (
	longestPause = 15 * time.Second
	confirmBatch = 200
	// openAfter times the age of an unconfirmed hold (2 minutes) is 6 hours: no call lasts longer than 4 hours.
	openAfter = 180
)

// Confirmer is the one that asks.
type Confirmer struct {
	store                     *store.Store
	relay                     *outbox.Relay
	after                     time.Duration
	asked                     prometheus.Counter
	open, unconfirmed, oldest prometheus.Gauge
}

// NewConfirmer makes an asker for holds older than after (contract: 2 minutes), asked about again every after.
func NewConfirmer(st *store.Store, relay *outbox.Relay, after time.Duration, metrics prometheus.Registerer) *Confirmer {
	factory := promauto.With(metrics)
	return &Confirmer{
		store: st, relay: relay, after: after,
		asked: factory.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_billing_confirmation_requests_total", Help: "Times a hold without its request was asked about.",
		}),
		open: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_open_holds", Help: "Holds that are neither captured nor released, counted up to 100000.",
		}),
		unconfirmed: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_unconfirmed_holds", Help: "Open holds whose request was not seen yet.",
		}),
		oldest: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_oldest_unconfirmed_hold_seconds", Help: "How long the oldest hold waits for its request to be seen; 0 when none does.",
		}),
	}
}

// Run asks until ctx ends.
func (a *Confirmer) Run(ctx context.Context) error {
	ticks := time.NewTicker(max(min(a.after/4, longestPause), time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if _, err := a.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "asking about unconfirmed holds", "error", err)
		}
		if err := a.count(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "open holds were not counted", "error", err)
		}
	}
}

func (a *Confirmer) count(ctx context.Context) error {
	counted, err := a.store.OpenHolds(ctx)
	if err != nil {
		return err
	}
	a.open.Set(float64(counted.Open))
	a.unconfirmed.Set(float64(counted.Unconfirmed))
	a.oldest.Set(counted.OldestUnconfirmedSeconds)
	return nil
}

// Pass asks for the request of every unconfirmed hold that is due, and returns how many they were. It also asks for
// the requests of holds that are open for long, at most for most of them.
func (a *Confirmer) Pass(ctx context.Context) (asked int, err error) {
	for {
		due, err := a.store.AskUnconfirmed(ctx, a.after, confirmBatch, unconfirmed)
		if err != nil {
			return asked, err
		}
		if len(due) > 0 {
			failpoint.Inject("billing-wallet: after unconfirmed")
			a.relay.Wake()
			a.asked.Add(float64(len(due)))
		}
		for _, hold := range due {
			slog.WarnContext(ctx, "hold without a request: calls is asked", "call_request_id", hold.RequestID,
				"workspace_id", hold.WorkspaceID)
		}
		asked += len(due)
		if len(due) < confirmBatch {
			break
		}
	}
	open, err := a.store.AskOpen(ctx, openAfter*a.after, confirmBatch, unconfirmed)
	if len(open) > 0 {
		a.relay.Wake()
	}
	return asked, err
}

func unconfirmed(u store.Request) outbox.Event {
	return outbox.Event{
		Topic: kafka.WalletEvents, Key: u.RequestID.String(), WorkspaceID: u.WorkspaceID,
		Message: &eventv1.WalletEvent{
			CallRequestId: u.RequestID.String(), WorkspaceId: u.WorkspaceID.String(), OccurredAt: timestamppb.Now(),
			Event: &eventv1.WalletEvent_Unconfirmed{Unconfirmed: &eventv1.Unconfirmed{}},
		},
	}
}
