// Package measuring tells the metrics how much waits in the dial queue, for how long, and how many calls are under way. It changes nothing. Every replica
// tells the same, since all read the same tables.

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

// every is how often it is counted.
const every = 2 * time.Second

// QueueMetrics counts.
type QueueMetrics struct {
	pool           *pgxpool.Pool
	queue, calls   *prometheus.GaugeVec
	oldest, untold prometheus.Gauge
	inUse          prometheus.Gauge
	limit          func(context.Context) (dialqueue.Limit, error)
	channels       prometheus.Gauge
}

// NewQueueMetrics counts what is in the pool's schema; limit is what the trunks carry.
func NewQueueMetrics(
	pool *pgxpool.Pool, limit func(context.Context) (dialqueue.Limit, error), metrics prometheus.Registerer,
) *QueueMetrics {
	factory := promauto.With(metrics)
	return &QueueMetrics{
		pool: pool, limit: limit,
		channels: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_trunk_channels", Help: "How many calls the trunks carry at once.",
		}),
		queue: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_queue_requests", Help: "Requests in the dial queue by state: due, or ahead (scheduled); each counted up to 10000.",
		}, []string{"state"}),
		oldest: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_queue_oldest_due_seconds", Help: "How long ago the request was due that has waited longest; 0 when none is due.",
		}),
		calls: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_live_calls", Help: "Calls that have not ended, by direction.",
		}, []string{"direction"}),
		inUse: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_requests_in_use",
			Help: "Requests that are claimed or in a call. The limits of live calls count them.",
		}),
		untold: factory.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_dialer_unreported_opt_outs", Help: "Opt-outs heard in calls that contacts-compliance has not acknowledged; until then nobody at these numbers is dialled.",
		}),
	}
}

// Run counts until ctx ends.
func (m *QueueMetrics) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := m.Measure(ctx); err != nil && ctx.Err() == nil {
			slog.DebugContext(ctx, "the dial queue was not counted", "error", err) // ringfence_postgres_up says so already
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Measure counts once.
func (m *QueueMetrics) Measure(ctx context.Context) error {
	found, err := store.ReadDepth(ctx, m.pool)
	if err != nil {
		return err
	}
	most, err := m.limit(ctx)
	if err != nil {
		return err
	}
	m.channels.Set(float64(most.Live))
	m.queue.WithLabelValues("due").Set(float64(found.Due))
	m.queue.WithLabelValues("ahead").Set(float64(found.Ahead))
	m.oldest.Set(found.OldestDueSeconds)
	m.calls.WithLabelValues("outbound").Set(float64(found.Outbound))
	m.calls.WithLabelValues("inbound").Set(float64(found.Inbound))
	m.untold.Set(float64(found.UntoldOptOuts))
	m.inUse.Set(float64(found.InUse))
	return nil
}
