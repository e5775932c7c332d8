package inbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// What became of a record.
const (
	applied   = "applied"
	duplicate = "duplicate"
	skipped   = "skipped"
	parked    = "parked"
)

type metrics struct {
	records      *prometheus.CounterVec
	retries      *prometheus.CounterVec
	resets       *prometheus.CounterVec
	fetchFaults  prometheus.Counter
	batchSeconds *prometheus.HistogramVec
	pruned       prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory, topic := promauto.With(registry), []string{"topic"}
	return &metrics{
		records: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "inbox_records_total", Help: "Records by what became of them: applied, duplicate, skipped, parked.",
		}, []string{"topic", "result"}),
		retries:     factory.NewCounterVec(prometheus.CounterOpts{Name: "inbox_retries_total", Help: "Tries that failed and are made again."}, topic),
		resets:      factory.NewCounterVec(prometheus.CounterOpts{Name: "inbox_data_loss_total", Help: "Partitions whose log was shorter than what was read from it; reading began again."}, topic),
		fetchFaults: factory.NewCounter(prometheus.CounterOpts{Name: "inbox_fetch_faults_total", Help: "Faults told by the broker while fetching."}),
		batchSeconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "inbox_batch_seconds", Help: "From taking a batch until its last record was settled.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, topic),
		pruned: factory.NewCounter(prometheus.CounterOpts{Name: "inbox_pruned_total", Help: "Event ids forgotten because of their age."}),
	}
}

// begin makes counters that an alert looks at stand at zero, so that the first is seen to grow.
func (m *metrics) begin(topics []string) {
	for _, topic := range topics {
		for _, result := range []string{applied, duplicate, skipped, parked} {
			m.records.WithLabelValues(topic, result)
		}
		m.retries.WithLabelValues(topic)
		m.resets.WithLabelValues(topic)
	}
}
