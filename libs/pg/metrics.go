// Package pgwatch exports metrics of a service's database: its pool, whether the database answers, how far
// apart the clocks are, and whether vacuum removes deleted rows. It changes nothing.

package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// lookLimit is how long a scrape waits for the database.
const lookLimit = time.Second

// Pool registers what a pool tells of itself, and what one question in each scrape tells of the database: whether it answers within a second, and how
// far its clock is from ours.
func Pool(pool *pgxpool.Pool, metrics prometheus.Registerer) {
	metrics.MustRegister(&watch{
		pool:        pool,
		connections: described("pool_connections", "Connections of this process by state: busy (lent out), idle, opening.", "state"),
		most:        described("pool_max_connections", "Most connections of this process."),
		acquires:    described("pool_acquires_total", "Times that a connection was lent out."),
		waits:       described("pool_waits_total", "Times that somebody had to wait for a connection, since none was idle."),
		waited:      described("pool_wait_seconds_total", "Time spent waiting for a connection."),
		gaveUp:      described("pool_acquire_timeouts_total", "Times that somebody stopped waiting for a connection."),
		up:          described("up", "1 when the database answered this scrape within a second."),
		deadRows: described("queue_dead_rows",
			"Deleted rows that vacuum has not removed, of the queue table of this schema that has the most."),
		offset: described("clock_offset_seconds", "How far the database's clock is ahead of this process's, "+
			"to within half of the time that the question took."),
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

// Describe tells the metrics' names.
func (w *watch) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{w.connections, w.most, w.acquires, w.waits, w.waited, w.gaveUp, w.up,
		w.offset, w.deadRows} {
		to <- desc
	}
}

// Collect looks at the pool and asks the database.
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
	offset, deadRows, err := w.ask()
	if err != nil {
		gauge(w.up, 0)
		return
	}
	gauge(w.up, 1)
	gauge(w.offset, offset.Seconds())
	gauge(w.deadRows, float64(deadRows))
}

// Queue tables are those that are vacuumed by a count of rows. The statistics are visible to every role, so
// they show an old snapshot of any session, a replication slot or a prepared transaction.
const countDeadRows = `
SELECT coalesce(max(pg_stat_get_dead_tuples(c.oid)), 0) FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.reloptions @> ARRAY['autovacuum_vacuum_scale_factor=0']`

func (w *watch) ask() (offset time.Duration, deadRows int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	conn, err := w.pool.Acquire(ctx) // before the clocks are compared: opening a connection takes its time
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
