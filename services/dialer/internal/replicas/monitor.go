package replicas

import (
	"sync"
	"time"
)

// Monitor uses the heartbeats of this process to decide whether the process may declare other
// processes dead. If its own heartbeats are slow, the database is probably slow for every process,
// and the other processes are probably alive. After an outage of the database, every process looks
// dead until its next heartbeat. A Monitor is safe for concurrent use.
type Monitor struct {
	lease time.Duration

	mu      sync.Mutex
	started time.Time // the start of the last heartbeat that was stored
	slow    bool      // true if the last heartbeat failed, or took more than a third of the lease
	// resumed is the start of the first heartbeat that was stored after the last failed or late
	// heartbeat. It is zero if no heartbeat was stored since.
	resumed time.Time
}

// NewMonitor returns a monitor for processes that are dead after lease without a heartbeat. The
// monitor is not healthy before the heartbeats have been in time for a whole lease, because the
// process can have started directly after an outage of the database.
func NewMonitor(lease time.Duration) *Monitor { return &Monitor{lease: lease} }

// Observe records the result of a heartbeat that was sent at start and has just ended. A heartbeat
// is late if it was sent more than two thirds of the lease after the previous heartbeat.
func (m *Monitor) Observe(start time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := !m.started.IsZero() && start.Sub(m.started) > m.lease*2/3
	m.slow = err != nil || time.Since(start) > m.lease/3
	if err != nil || late {
		m.resumed = time.Time{}
	}
	if err != nil {
		return
	}
	m.started = start
	if m.resumed.IsZero() {
		m.resumed = start
	}
}

// Healthy reports whether this process may take over the calls of others. The last heartbeat must
// have taken at most a third of the lease. It must have been sent within two thirds of the lease,
// because the next heartbeat can be in progress. The heartbeats must have been in time for a whole
// lease, since the start of the process or since a heartbeat that failed or was late. In this time
// every process that is alive sends a heartbeat.
func (m *Monitor) Healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow || m.started.IsZero() || time.Since(m.started) > m.lease*2/3 {
		return false
	}
	return !m.resumed.IsZero() && time.Since(m.resumed) >= m.lease
}
