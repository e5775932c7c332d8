package dial

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

const queueMetricsInterval = 2 * time.Second

// QueueMetrics publishes the length and age of the dial queue, and the number of live calls. Every
// replica publishes the same values, because all replicas read the same tables.
type QueueMetrics struct {
	pool               *pgxpool.Pool
	queue, calls       *prometheus.GaugeVec
	oldest, unreported prometheus.Gauge
	inUse              prometheus.Gauge
	limit              func(context.Context) (dialqueue.Limit, error)
	channels           prometheus.Gauge
}

// NewQueueMetrics registers the metrics. limit returns the capacity of the trunks.
func NewQueueMetrics(
	pool *pgxpool.Pool, limit func(context.Context) (dialqueue.Limit, error), metrics prometheus.Registerer,
) *QueueMetrics {
	factory := promauto.With(metrics)
	return &QueueMetrics{
		pool: pool, limit: limit,
		channels: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_trunk_channels", Help: "Calls that all trunks together can carry at a time.",
		}),
		queue: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_queue_requests",
			Help: "Requests in the dial queue, by state: due, paused (due, but dialing is paused), or ahead (scheduled for " +
				"later). Each state is counted up to 10000.",
		}, []string{"state"}),
		oldest: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_queue_oldest_due_seconds",
			Help: "Age of the oldest due request: the time since it became due. 0 if no request is due. Requests whose " +
				"dialing is paused do not count.",
		}),
		calls: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_live_calls", Help: "Calls that have not ended, by direction.",
		}, []string{"direction"}),
		inUse: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_requests_in_use",
			Help: "Requests that are claimed or in a call. The limits of live calls count them.",
		}),
		unreported: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_unreported_opt_outs",
			Help: "Opt-outs of calls that contacts-compliance has not acknowledged. Their numbers are not dialed until then.",
		}),
	}
}

// Run updates the metrics until ctx ends.
func (m *QueueMetrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(queueMetricsInterval)
	defer ticker.Stop()
	for {
		if err := m.Measure(ctx); err != nil && ctx.Err() == nil {
			// The error is logged only at debug level, because the metric ringfence_postgres_up already
			// reports a database fault.
			slog.DebugContext(ctx, "requests in the dial queue not counted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Measure updates the metrics once.
func (m *QueueMetrics) Measure(ctx context.Context) error {
	found, err := store.ReadDepth(ctx, m.pool)
	if err != nil {
		return err
	}
	limit, err := m.limit(ctx)
	if err != nil {
		return err
	}
	m.channels.Set(float64(limit.Live))
	m.queue.WithLabelValues("due").Set(float64(found.Due))
	m.queue.WithLabelValues("paused").Set(float64(found.Paused))
	m.queue.WithLabelValues("ahead").Set(float64(found.Ahead))
	m.oldest.Set(found.OldestDueSeconds)
	m.calls.WithLabelValues("outbound").Set(float64(found.Outbound))
	m.calls.WithLabelValues("inbound").Set(float64(found.Inbound))
	m.unreported.Set(float64(found.UnreportedOptOuts))
	m.inUse.Set(float64(found.InUse))
	return nil
}
