package pauses

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// readInterval is the time between two reads of the pauses.
	readInterval = 300 * time.Millisecond
	// maxAge is the maximum age of the pauses at which an INVITE is permitted. No INVITE may be sent
	// more than 2 s after the response to a pause. The remaining second is for sending the INVITE.
	maxAge = time.Second
	// readTimeout limits one read.
	readTimeout = 2 * time.Second
)

// Period is the latest pause of a scope. Open reports that the pause has not ended.
type Period struct {
	Scope
	Open   bool      `db:"open"`
	EndsAt time.Time `db:"ends_at"`
}

// Monitor reads the pauses several times per second, so that the permit for an INVITE needs no
// query. If the database does not respond, no INVITE is permitted. A nil Monitor has no pauses.
// Monitor is safe for concurrent use.
type Monitor struct {
	read   func(context.Context) ([]Period, error)
	paused *prometheus.GaugeVec

	reading chan struct{} // has one slot, so that concurrent permits share one read
	mu      sync.Mutex
	periods map[Scope]Period
	readAt  time.Time // start of the last successful read
}

// NewMonitor returns a monitor that reads pauses with the function read, and registers its metric.
func NewMonitor(read func(context.Context) ([]Period, error), metrics prometheus.Registerer) *Monitor {
	m := &Monitor{read: read, reading: make(chan struct{}, 1), paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ringfence_dialer_dialing_paused",
		Help: "Pauses of dialing that have not ended, by level: everything, workspace, agent, or trunk.",
	}, []string{"level"})}
	metrics.MustRegister(m.paused)
	m.count(nil)
	return m
}

// Run reads the pauses until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	for {
		if err := m.refresh(ctx, readInterval/2); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "pauses of dialing not read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// MayDial reports whether a request of the agent may be dialed now. It returns false if the pauses
// cannot be read.
func (m *Monitor) MayDial(ctx context.Context, workspaceID, agentID uuid.UUID) bool {
	return m.active(ctx, Scope{Level: Everything}, Scope{Workspace, workspaceID}, Scope{Agent, agentID})
}

// MayUse reports whether an INVITE may be sent to the trunk now. It returns false if the pauses
// cannot be read.
func (m *Monitor) MayUse(ctx context.Context, trunkID uuid.UUID) bool {
	return m.active(ctx, Scope{Trunk, trunkID})
}

// Delayed reports whether a pause of the last day delayed a request that was due at dueAt.
func (m *Monitor) Delayed(workspaceID, agentID uuid.UUID, dueAt time.Time) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, scope := range []Scope{{Level: Everything}, {Workspace, workspaceID}, {Agent, agentID}} {
		if period, ok := m.periods[scope]; ok && (period.Open || period.EndsAt.After(dueAt)) {
			return true
		}
	}
	return false
}

func (m *Monitor) active(ctx context.Context, scopes ...Scope) bool {
	if m == nil {
		return true
	}
	if err := m.refresh(ctx, maxAge); err != nil {
		slog.WarnContext(ctx, "dial not permitted: pauses of dialing not read", "error", err)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.readAt) > maxAge {
		return false
	}
	for _, scope := range scopes {
		if m.periods[scope].Open {
			return false
		}
	}
	return true
}

// refresh reads the pauses unless the last read is younger than age.
func (m *Monitor) refresh(ctx context.Context, age time.Duration) error {
	if m.isFresh(age) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case m.reading <- struct{}{}:
		defer func() { <-m.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.isFresh(age) {
		return nil
	}
	start := time.Now()
	found, err := m.read(ctx)
	if err != nil {
		return err
	}
	periods := make(map[Scope]Period, len(found))
	for _, period := range found {
		periods[period.Scope] = period
	}
	m.mu.Lock()
	m.periods, m.readAt = periods, start
	m.mu.Unlock()
	m.count(found)
	return nil
}

func (m *Monitor) isFresh(age time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.readAt.IsZero() && time.Since(m.readAt) < age
}

func (m *Monitor) count(periods []Period) {
	open := map[Level]int{Everything: 0, Workspace: 0, Agent: 0, Trunk: 0}
	for _, period := range periods {
		if period.Open {
			open[period.Level]++
		}
	}
	for level, n := range open {
		m.paused.WithLabelValues(string(level)).Set(float64(n))
	}
}
