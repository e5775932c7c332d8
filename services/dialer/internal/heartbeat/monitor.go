// Package heartbeat measures the heartbeats of this process.
package heartbeat

import (
	"sync"
	"time"
)

// Monitor decides whether this process may declare others dead. If its own heartbeats are slow, the
// database is probably slow for every process, and the others are as alive as this one. A Monitor is
// safe for concurrent use.
type Monitor struct {
	lease time.Duration

	mu      sync.Mutex
	started time.Time // of the last heartbeat that was stored
	slow    bool      // the last heartbeat failed, or took more than a third of the lease
}

// NewMonitor returns a monitor for processes that are dead after lease without a heartbeat. It is not
// healthy before the first heartbeat.
func NewMonitor(lease time.Duration) *Monitor { return &Monitor{lease: lease} }

// Observe takes the result of a heartbeat that was sent at start and has just ended.
func (m *Monitor) Observe(start time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = err != nil || time.Since(start) > m.lease/3
	if err == nil {
		m.started = start
	}
}

// Healthy reports whether this process may take over the calls of others. The last heartbeat must have
// taken at most a third of the lease, and must have been sent within two thirds of the lease: the next
// one may be under way.
func (m *Monitor) Healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.slow && !m.started.IsZero() && time.Since(m.started) <= m.lease*2/3
}
