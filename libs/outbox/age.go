package outbox

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	busySample = time.Second
	idleSample = 5 * time.Second
)

// ageSample contains the age of the oldest row, and the time at which this process read it.
type ageSample struct {
	age time.Duration
	at  time.Time
}

// OldestAge returns how long the oldest unpublished row has waited, or 0 if the outbox is empty.
// Every replica reads the age every second, or every 5 s while the outbox is empty. Between two
// reads, the returned age grows with the clock.
func (r *Relay) OldestAge() time.Duration {
	sample := r.age.Load()
	if sample == nil || sample.age == 0 {
		return 0
	}
	return sample.age + time.Since(sample.at)
}

// sampleAge uses the row with the lowest id as the oldest row, and counts rows up to a limit. Both
// searches start at the floor, the lowest id from which rows must be read. The floor is stored with
// the lease.
const sampleAge = `
WITH lease AS MATERIALIZED (SELECT floor FROM outbox_leases)
SELECT coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - created_at), 0.001)
                 FROM outbox WHERE id >= (SELECT floor FROM lease) ORDER BY id LIMIT 1), 0)::float8,
       (SELECT count(*) FROM (
           SELECT FROM outbox WHERE id >= (SELECT floor FROM lease) ORDER BY id LIMIT 10000) AS bounded)`

func (r *Relay) sampleAges(ctx context.Context) {
	for {
		pause := busySample
		// A leader that has just found the outbox empty need not read it again.
		last := r.age.Load()
		if r.leads.Load() && last != nil && last.age == 0 && time.Since(last.at) < 2*slowPoll {
			r.metrics.rows.Set(0)
		} else if sample, err := r.sample(ctx); err == nil {
			r.age.Store(sample)
			if sample.age == 0 && !r.leads.Load() {
				pause = idleSample
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *Relay) sample(ctx context.Context) (*ageSample, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var seconds float64
	var rows int64
	if err := r.pool.QueryRow(ctx, sampleAge).Scan(&seconds, &rows); err != nil {
		return nil, err
	}
	r.metrics.rows.Set(float64(rows))
	return &ageSample{age: time.Duration(seconds * float64(time.Second)), at: time.Now()}, nil
}

type relayMetrics struct {
	rows, leader    prometheus.Gauge
	batchRows       prometheus.Histogram
	publishSeconds  prometheus.Histogram
	records, faults *prometheus.CounterVec
}

func newRelayMetrics(registry prometheus.Registerer, r *Relay) *relayMetrics {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringfence_outbox_oldest_age_seconds", Help: "Age of the oldest unpublished row; 0 if there is none.",
	}, func() float64 { return r.OldestAge().Seconds() })
	return &relayMetrics{
		rows: factory.NewGauge(prometheus.GaugeOpts{Name: "ringfence_outbox_rows", Help: "Unpublished rows, counted up to 10000."}),
		leader: factory.NewGauge(prometheus.GaugeOpts{Name: "ringfence_outbox_leader",
			Help: "1 if the relay of this replica has the lease."}),
		batchRows: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "ringfence_outbox_batch_rows", Help: "Rows of a batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		publishSeconds: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "ringfence_outbox_publish_duration_seconds", Help: "Time from sending a batch to Kafka until its rows were deleted.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		records: factory.NewCounterVec(prometheus.CounterOpts{Name: "ringfence_outbox_published_total", Help: "Rows acknowledged by Kafka."}, []string{"topic"}),
		faults:  factory.NewCounterVec(prometheus.CounterOpts{Name: "ringfence_outbox_publish_errors_total", Help: "Rows that Kafka did not accept; they are published again."}, []string{"topic"}),
	}
}

func (m *relayMetrics) published(rows []outboxRow, faults []error, took time.Duration) {
	m.batchRows.Observe(float64(len(rows)))
	m.publishSeconds.Observe(took.Seconds())
	for i, row := range rows {
		if faults[i] != nil {
			m.faults.WithLabelValues(row.Topic).Inc()
			continue
		}
		m.records.WithLabelValues(row.Topic).Inc()
	}
}
