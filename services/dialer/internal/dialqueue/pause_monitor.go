package dialqueue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// pauseReadInterval is the time between two reads of the pauses.
	pauseReadInterval = 300 * time.Millisecond
	// maxPauseAge is the maximum time from the start of the last successful read of the pauses to the
	// permission of an INVITE. The API promises that no INVITE is sent more than 2 s after the
	// response to a pause. The remaining second is for sending the INVITE.
	maxPauseAge = time.Second
	// pauseReadTimeout limits one read.
	pauseReadTimeout = 2 * time.Second
)

// LatestPause is the latest pause of a scope. Open is true if the pause has not ended.
type LatestPause struct {
	PauseScope
	Open   bool      `db:"open"`
	EndsAt time.Time `db:"ends_at"`
}

// PauseMonitor reads the pauses several times per second, so that the permission of an INVITE needs
// no query. If the database does not respond, no INVITE is permitted. A nil PauseMonitor has no
// pauses. PauseMonitor is safe for concurrent use.
type PauseMonitor struct {
	read   func(context.Context) ([]LatestPause, error)
	paused *prometheus.GaugeVec

	reading chan struct{} // channel of size 1, so that concurrent callers wait for one read
	mu      sync.Mutex
	periods map[PauseScope]LatestPause
	readAt  time.Time // start of the last successful read
}

// NewPauseMonitor returns a monitor that reads pauses with the function read, and registers its
// metric.
func NewPauseMonitor(read func(context.Context) ([]LatestPause, error), metrics prometheus.Registerer) *PauseMonitor {
	m := &PauseMonitor{read: read, reading: make(chan struct{}, 1), paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ringfence_dialer_dialing_paused",
		Help: "Pauses of dialing that have not ended, by level: everything, workspace, agent, or trunk.",
	}, []string{"level"})}
	metrics.MustRegister(m.paused)
	m.count(nil)
	return m
}

// Run reads the pauses until ctx ends.
func (m *PauseMonitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(pauseReadInterval)
	defer ticker.Stop()
	for {
		if err := m.refresh(ctx, pauseReadInterval/2); err != nil && ctx.Err() == nil {
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
func (m *PauseMonitor) MayDial(ctx context.Context, workspaceID, agentID uuid.UUID) bool {
	return m.active(ctx, PauseScope{Level: PauseEverything}, PauseScope{PauseWorkspace, workspaceID},
		PauseScope{PauseAgent, agentID})
}

// MayUse reports whether an INVITE may be sent to the trunk now. It returns false if the pauses
// cannot be read.
func (m *PauseMonitor) MayUse(ctx context.Context, trunkID uuid.UUID) bool {
	return m.active(ctx, PauseScope{PauseTrunk, trunkID})
}

// Delayed reports whether a pause delayed a request that was due at dueAt. It considers only the
// pauses of the last day.
func (m *PauseMonitor) Delayed(workspaceID, agentID uuid.UUID, dueAt time.Time) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, scope := range []PauseScope{{Level: PauseEverything}, {PauseWorkspace, workspaceID}, {PauseAgent, agentID}} {
		if period, ok := m.periods[scope]; ok && (period.Open || period.EndsAt.After(dueAt)) {
			return true
		}
	}
	return false
}

func (m *PauseMonitor) active(ctx context.Context, scopes ...PauseScope) bool {
	if m == nil {
		return true
	}
	if err := m.refresh(ctx, maxPauseAge); err != nil {
		slog.WarnContext(ctx, "dial not permitted: pauses of dialing not read", "error", err)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.readAt) > maxPauseAge {
		return false
	}
	for _, scope := range scopes {
		if m.periods[scope].Open {
			return false
		}
	}
	return true
}

// refresh reads the pauses, unless the last successful read began less than age ago.
func (m *PauseMonitor) refresh(ctx context.Context, age time.Duration) error {
	if m.isFresh(age) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pauseReadTimeout)
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
	periods := make(map[PauseScope]LatestPause, len(found))
	for _, period := range found {
		periods[period.PauseScope] = period
	}
	m.mu.Lock()
	m.periods, m.readAt = periods, start
	m.mu.Unlock()
	m.count(found)
	return nil
}

func (m *PauseMonitor) isFresh(age time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.readAt.IsZero() && time.Since(m.readAt) < age
}

func (m *PauseMonitor) count(periods []LatestPause) {
	open := map[PauseLevel]int{PauseEverything: 0, PauseWorkspace: 0, PauseAgent: 0, PauseTrunk: 0}
	for _, period := range periods {
		if period.Open {
			open[period.Level]++
		}
	}
	for level, n := range open {
		m.paused.WithLabelValues(string(level)).Set(float64(n))
	}
}
