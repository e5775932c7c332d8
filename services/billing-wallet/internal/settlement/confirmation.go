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
	maxInterval  = 15 * time.Second
	confirmBatch = 200
	// A hold is long-open if it is older than longOpenFactor times UNCONFIRMED_AFTER. With the
	// default of 2 minutes, this is 6 hours. No call lasts longer than 4 hours.
	longOpenFactor = 180
)

// Confirmer publishes the event `unconfirmed` for two kinds of open holds: holds without the event
// `requested` of their request, and holds that are still open hours after this event. For an
// inbound call, the event `answered` of the call replaces `requested`. Confirmer repeats the event
// until the service `calls` or the dialer responds. It never releases a hold: only an event about
// the request or the call releases it.
type Confirmer struct {
	store                     *store.Store
	relay                     *outbox.Relay
	unconfirmedAfter          time.Duration
	requested                 prometheus.Counter
	open, unconfirmed, oldest prometheus.Gauge
}

// NewConfirmer returns a confirmer. It reports holds that are older than unconfirmedAfter, and
// repeats the report of each hold at this interval.
func NewConfirmer(
	st *store.Store, relay *outbox.Relay, unconfirmedAfter time.Duration, metrics prometheus.Registerer,
) *Confirmer {
	factory := promauto.With(metrics)
	return &Confirmer{
		store: st, relay: relay, unconfirmedAfter: unconfirmedAfter,
		requested: factory.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_billing_confirmation_requests_total",
			Help: "Unconfirmed events that were published for holds whose request was not received.",
		}),
		open: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_open_holds",
			Help: "Holds that are neither captured nor released, counted up to 100000.",
		}),
		unconfirmed: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_unconfirmed_holds",
			Help: "Open holds whose request was not received yet.",
		}),
		oldest: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_billing_oldest_unconfirmed_hold_seconds",
			Help: "Age of the oldest open hold whose request was not received; 0 if there is none.",
		}),
	}
}

// Run runs the confirmer until ctx ends. It always returns nil.
func (a *Confirmer) Run(ctx context.Context) error {
	ticks := time.NewTicker(max(min(a.unconfirmedAfter/4, maxInterval), time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if _, err := a.Pass(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "unconfirmed holds not reported to the calls service", "error", err)
		}
		if err := a.updateMetrics(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "open holds not counted", "error", err)
		}
	}
}

func (a *Confirmer) updateMetrics(ctx context.Context) error {
	counted, err := a.store.OpenHolds(ctx)
	if err != nil {
		return err
	}
	a.open.Set(float64(counted.Open))
	a.unconfirmed.Set(float64(counted.Unconfirmed))
	a.oldest.Set(counted.OldestUnconfirmedSeconds)
	return nil
}

// Pass publishes the event `unconfirmed` for every unconfirmed hold that is due, and for up to
// confirmBatch long-open holds. reported is the number of unconfirmed holds.
func (a *Confirmer) Pass(ctx context.Context) (reported int, err error) {
	for {
		due, err := a.store.EnqueueUnconfirmed(ctx, a.unconfirmedAfter, confirmBatch, unconfirmedEvent)
		if err != nil {
			return reported, err
		}
		if len(due) > 0 {
			failpoint.Inject("billing-wallet: after unconfirmed")
			a.relay.Wake()
			a.requested.Add(float64(len(due)))
		}
		for _, hold := range due {
			slog.WarnContext(ctx, "unconfirmed hold reported to the calls service", "call_request_id", hold.RequestID,
				"workspace_id", hold.WorkspaceID, "inbound", hold.Inbound)
		}
		reported += len(due)
		if len(due) < confirmBatch {
			break
		}
	}
	open, err := a.store.EnqueueLongOpen(ctx, longOpenFactor*a.unconfirmedAfter, confirmBatch, unconfirmedEvent)
	if len(open) > 0 {
		a.relay.Wake()
	}
	return reported, err
}

func unconfirmedEvent(u store.Request) outbox.Event {
	message := &eventv1.WalletEvent{
		CallRequestId: u.RequestID.String(), WorkspaceId: u.WorkspaceID.String(), OccurredAt: timestamppb.Now(),
		Event: &eventv1.WalletEvent_Unconfirmed{Unconfirmed: &eventv1.Unconfirmed{}},
	}
	if u.Inbound {
		message.CallRequestId = ""
		message.GetUnconfirmed().CallId = u.RequestID.String()
	}
	return outbox.Event{
		Topic: kafka.WalletEvents, Key: u.RequestID.String(), WorkspaceID: u.WorkspaceID, Message: message,
	}
}
