package dispatch

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// The metrics have no labels for subscriptions, urls or workspaces, because the number of their
// values has no limit.
type metrics struct {
	attempts     *prometheus.CounterVec
	connections  *prometheus.CounterVec
	seconds      prometheus.Histogram
	terminal     *prometheus.HistogramVec
	exhausted    prometheus.Counter
	lag          *prometheus.HistogramVec
	claimSeconds prometheus.Histogram
	inflight     prometheus.Gauge
	rows         prometheus.Gauge
	oldest       prometheus.Gauge
	warned       prometheus.Counter
	disabled     prometheus.Counter
	interrupted  prometheus.Counter
	superseded   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	fine := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_webhooks_attempts_total", Help: "Delivery attempts by result: delivered, or the reason of the failure."}, []string{"result"}),
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_webhooks_connections_total", Help: "Attempts that were sent on a connection, by whether the connection was reused."}, []string{"reused"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ringfence_webhooks_attempt_duration_seconds", Help: "Duration of one attempt.", Buckets: fine}),
		terminal: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_webhooks_terminal_event_to_delivery_seconds", Help: "Time from a call's terminal event to its delivery, by try (first or retry) and by held: endpoint if the endpoint delayed its own deliveries, otherwise no. The SLO covers first tries with held no. Replays are not counted.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}}, []string{"try", "held"}),
		exhausted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_deliveries_failed_total", Help: "Deliveries that failed in their last attempt. They can be replayed."}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_webhooks_claim_delay_seconds", Help: "Time from the due time of an attempt to its claim.", Buckets: fine}, []string{"try"}),
		claimSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ringfence_webhooks_claim_duration_seconds", Help: "Duration of one claim.",
			// the buckets are narrow, so that an operator sees that claims get slower while the
			// queue is not vacuumed
			Buckets: prometheus.ExponentialBuckets(.0005, 1.35, 30)}),
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_webhooks_requests_in_flight", Help: "Requests in flight."}),
		rows: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_webhooks_queue_rows",
			Help: "Due deliveries of active subscriptions. Counted up to 50,000.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_webhooks_oldest_due_seconds",
			Help: "Waiting time of the oldest due delivery of an active subscription."}),
		warned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_subscriptions_warned_total", Help: "Subscriptions that reached half of each threshold of the failure rule."}),
		disabled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_subscriptions_disabled_total", Help: "Subscriptions set to failed."}),
		interrupted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_interrupted_attempts_total", Help: "Last attempts of a delivery whose process ended without a result."}),
		superseded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_superseded_results_total", Help: "Results that were ignored, because another attempt or a replay had begun or the subscription was deleted."}),
	}
	reg.MustRegister(m.attempts, m.terminal, m.exhausted, m.connections, m.seconds, m.lag,
		m.claimSeconds, m.inflight, m.rows, m.oldest, m.warned, m.disabled, m.interrupted, m.superseded)
	m.attempts.WithLabelValues(delivered)
	for _, failure := range deliveries.Failures() {
		m.attempts.WithLabelValues(string(failure))
	}
	for _, try := range []string{first, retry} {
		m.terminal.WithLabelValues(try, heldNo)
		m.terminal.WithLabelValues(try, heldEndpoint)
		m.lag.WithLabelValues(try)
	}
	return m
}

const (
	delivered            = "delivered"
	first, retry         = "first", "retry"
	heldNo, heldEndpoint = "no", "endpoint"
)

var terminalEvents = []string{"call.completed", "call.failed", "call.no_answer", "call.busy"}

func (m *metrics) attempt(ctx context.Context, w deliveries.Work, slowed bool, judged deliveries.Result) {
	result, response := delivered, judged.Response
	if response.Failure != "" {
		result = string(response.Failure)
	}
	try, by := first, heldNo
	if w.Retry {
		try = retry
	}
	if slowed {
		by = heldEndpoint
	}
	m.attempts.WithLabelValues(result).Inc()
	switch {
	case judged.Outcome == deliveries.OutcomeFailed:
		m.exhausted.Inc()
	case judged.Outcome == deliveries.OutcomeDelivered && w.Replay == 0 && slices.Contains(terminalEvents, w.EventType):
		telemetry.Observe(ctx, m.terminal.WithLabelValues(try, by), max(0, time.Since(w.CreatedAt).Seconds()))
	}
	if response.Connected {
		m.connections.WithLabelValues(strconv.FormatBool(response.Reused)).Inc()
	}
	telemetry.Observe(ctx, m.seconds, response.Duration.Seconds())
	m.lag.WithLabelValues(try).Observe(w.ClaimDelay.Seconds())
}

func (m *metrics) backlog(backlog store.Backlog) {
	m.rows.Set(float64(backlog.Rows))
	m.oldest.Set(backlog.Oldest)
}
