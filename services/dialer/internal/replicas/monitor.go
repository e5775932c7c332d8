package replicas

import (
	"sync"
	"time"
)

// Monitor observes the heartbeats of this process, and decides whether this process may declare
// other processes dead. If its own heartbeats are slow, the database is probably slow for all
// processes, and the other processes are probably alive. Monitor is safe for concurrent use.
type Monitor struct {
	lease time.Duration

	mu        sync.Mutex
	lastStart time.Time // start of the last stored heartbeat
	isSlow    bool      // the last heartbeat failed or took more than a third of the lease
	// resumedAt is the time since which no heartbeat has failed or been late. It is zero after a
	// failed heartbeat.
	resumedAt time.Time
}

// NewMonitor returns a monitor. A process counts as dead if it has stored no heartbeat for the
// duration lease. The monitor is healthy only after its heartbeats were on time for a whole lease,
// because the process can have started directly after an outage of the database.
func NewMonitor(lease time.Duration) *Monitor { return &Monitor{lease: lease} }

// Observe records the result of a heartbeat that started at startedAt and has just ended. A
// heartbeat is late if it started more than two thirds of the lease after the previous one.
func (m *Monitor) Observe(startedAt time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := !m.lastStart.IsZero() && startedAt.Sub(m.lastStart) > m.lease*2/3
	m.isSlow = err != nil || time.Since(startedAt) > m.lease/3
	if err != nil || late {
		m.resumedAt = time.Time{}
	}
	if err != nil {
		return
	}
	m.lastStart = startedAt
	if m.resumedAt.IsZero() {
		m.resumedAt = startedAt
	}
}

// Healthy reports whether this process may take over calls of other processes. The last heartbeat
// must have been fast and recent, and for a whole lease no heartbeat may have failed or been late.
// In this time, every live process has sent a heartbeat.
func (m *Monitor) Healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isSlow || m.lastStart.IsZero() || time.Since(m.lastStart) > m.lease*2/3 {
		return false
	}
	return !m.resumedAt.IsZero() && time.Since(m.resumedAt) >= m.lease
}
