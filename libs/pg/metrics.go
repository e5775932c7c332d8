package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout is how long a scrape waits for the database.
const scrapeTimeout = time.Second

// Pool registers the metrics of the pool. With one query per scrape, it also reports whether the
// database responds within a second, the database's clock, and the deleted rows of its queue
// tables.
func Pool(pool *pgxpool.Pool, metrics prometheus.Registerer) {
	metrics.MustRegister(&watch{
		pool:        pool,
		connections: described("pool_connections", "Connections of the pool by state: busy, idle, opening.", "state"),
		most:        described("pool_max_connections", "Maximum number of connections of the pool."),
		acquires:    described("pool_acquires_total", "Times that a connection was acquired."),
		waits:       described("pool_waits_total", "Times that an acquire waited because no connection was idle."),
		waited:      described("pool_wait_seconds_total", "Time that acquires waited for a connection."),
		gaveUp:      described("pool_acquire_timeouts_total", "Times that an acquire was canceled while it waited."),
		up:          described("up", "1 if the database responded to this scrape within a second."),
		deadRows: described("queue_dead_rows",
			"Deleted rows that vacuum has not removed, in the queue table of this schema that has the most."),
		offset: described("clock_offset_seconds", "How far the database's clock is ahead of this process's clock, "+
			"accurate to half of the query's duration."),
	})
}

func described(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ringfence_postgres_"+name, help, labels, nil)
}

type watch struct {
	pool                                                           *pgxpool.Pool
	connections, most, acquires, waits, waited, gaveUp, up, offset *prometheus.Desc
	deadRows                                                       *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (w *watch) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{w.connections, w.most, w.acquires, w.waits, w.waited, w.gaveUp, w.up,
		w.offset, w.deadRows} {
		to <- desc
	}
}

// Collect implements prometheus.Collector. It queries the database.
func (w *watch) Collect(to chan<- prometheus.Metric) {
	stat := w.pool.Stat()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	counter := func(desc *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value)
	}
	gauge(w.connections, float64(stat.AcquiredConns()), "busy")
	gauge(w.connections, float64(stat.IdleConns()), "idle")
	gauge(w.connections, float64(stat.ConstructingConns()), "opening")
	gauge(w.most, float64(stat.MaxConns()))
	counter(w.acquires, float64(stat.AcquireCount()))
	counter(w.waits, float64(stat.EmptyAcquireCount()))
	counter(w.waited, stat.EmptyAcquireWaitTime().Seconds())
	counter(w.gaveUp, float64(stat.CanceledAcquireCount()))
	offset, deadRows, err := w.query()
	if err != nil {
		gauge(w.up, 0)
		return
	}
	gauge(w.up, 1)
	gauge(w.offset, offset.Seconds())
	gauge(w.deadRows, float64(deadRows))
}

// countDeadRows recognizes queue tables by their autovacuum setting: they are vacuumed after a
// fixed number of rows. Many deleted rows mean that a session, a replication slot or a prepared
// transaction has an old snapshot.
const countDeadRows = `
SELECT coalesce(max(pg_stat_get_dead_tuples(c.oid)), 0) FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.reloptions @> ARRAY['autovacuum_vacuum_scale_factor=0']`

func (w *watch) query() (offset time.Duration, deadRows int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	// The connection is acquired before the clock is read, because opening a connection takes time.
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Release()
	asked, theirs := time.Now(), time.Time{}
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		return 0, 0, err
	}
	offset = theirs.Sub(asked.Add(time.Since(asked) / 2))
	if err := conn.QueryRow(ctx, countDeadRows).Scan(&deadRows); err != nil {
		return 0, 0, err
	}
	return offset, deadRows, nil
}
