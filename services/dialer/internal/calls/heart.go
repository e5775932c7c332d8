package calls

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/store"
)

// Heartbeat is this process's sign of life: calls of a process without one are hung up by the others.
type Heartbeat struct {
	store   *store.Store
	lease   time.Duration
	start   time.Time
	last    atomic.Int64 // monotonic, since start; zero: never
	monitor *replicas.Monitor
	gaps    atomic.Int64 // how often the next sign came so late that others may have declared this process dead
}

// NewHeartbeat sends heartbeats to the store; lease is how long the others wait for the next one. The store
// must have connections that nothing else uses (store.On): a heartbeat that waits for a connection
// behind other work makes a healthy process look dead.
func NewHeartbeat(st *store.Store, lease time.Duration) *Heartbeat {
	return &Heartbeat{store: st, lease: lease, start: time.Now(), monitor: replicas.NewMonitor(lease)}
}

// Healthy reports whether this process may take over the calls of processes that it finds dead.
func (h *Heartbeat) Healthy() bool { return h.monitor.Healthy() }

// Beat gives one sign of life.
func (h *Heartbeat) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	now := time.Now()
	before := now.Sub(h.start)
	err := h.store.Beat(ctx)
	h.monitor.Observe(now, err)
	if err != nil {
		return err
	}
	if last := h.last.Load(); !h.inTime(last) {
		h.gaps.Add(1) // before last, so that whoever sees the new sign knows of the gap
	}
	h.last.Store(int64(before))
	return nil
}

// Life names the stretch of time up to now in which nobody can have declared this process dead, by its own monotonic clock and with a fifth of
// the lease to spare. The same life later means that it went on without a gap; 0, that there may be one just now.
func (h *Heartbeat) Life() int64 {
	if !h.inTime(h.last.Load()) {
		return 0
	}
	return h.gaps.Load()
}

func (h *Heartbeat) inTime(last int64) bool {
	return last > 0 && time.Since(h.start)-time.Duration(last) < h.lease*4/5
}

// Run beats until ctx ends; then the instance hands over what it holds.
func (h *Heartbeat) Run(ctx context.Context) error {
	ticker := time.NewTicker(h.lease / 5)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := h.Beat(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "no sign of life could be given", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	h.last.Store(0) // whoever still dials must ask the database: from the hand-over on the others may take what is ours
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lease)
	defer cancel()
	return h.store.HandOver(last)
}
