package inbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of a record.
const (
	applied   = "applied"
	duplicate = "duplicate"
	skipped   = "skipped"
	parked    = "parked"
)

// Reasons why a position moves back.
const (
	databaseRestored = "database_restored"
	topicRecreated   = "topic_recreated"
	logTruncated     = "log_truncated"
)

type metrics struct {
	records      *prometheus.CounterVec
	retries      *prometheus.CounterVec
	movedBack    *prometheus.CounterVec
	expired      *prometheus.CounterVec
	fetchErrors  prometheus.Counter
	batchSeconds *prometheus.HistogramVec
	droppedDays  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory, topic := promauto.With(registry), []string{"topic"}
	return &metrics{
		records: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_inbox_records_total", Help: "Records by what was done with them: applied, duplicate, skipped, parked.",
		}, []string{"topic", "result"}),
		retries: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_inbox_retries_total", Help: "Failed tries to apply a record. Each is followed by another try.",
		}, topic),
		movedBack: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_inbox_position_moved_back_total",
			Help: "Partitions that are read again from an earlier offset, by cause: " +
				"database_restored, topic_recreated, log_truncated.",
		}, []string{"topic", "cause"}),
		expired: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_inbox_expired_records_total",
			Help: "Records that were not applied before Kafka deleted them because of their age or the topic's size.",
		}, topic),
		fetchErrors: factory.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_inbox_fetch_errors_total", Help: "Errors that a broker returned for a fetch.",
		}),
		batchSeconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ringfence_inbox_batch_duration_seconds", Help: "Time from taking a batch of records until all of them were applied.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, topic),
		droppedDays: factory.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_inbox_dropped_days_total", Help: "Dropped daily partitions of event ids.",
		}),
	}
}

// initialize sets the counters that alerts use to 0, so that the first increase of each counter is
// visible.
func (m *metrics) initialize(topics []string) {
	for _, topic := range topics {
		for _, result := range []string{applied, duplicate, skipped, parked} {
			m.records.WithLabelValues(topic, result)
		}
		for _, cause := range []string{databaseRestored, topicRecreated, logTruncated} {
			m.movedBack.WithLabelValues(topic, cause)
		}
		m.retries.WithLabelValues(topic)
		m.expired.WithLabelValues(topic)
	}
}
