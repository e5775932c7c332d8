package calls

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/store"
)

// Heartbeat stores the heartbeats of this process, so that other processes know that it is alive.
// If the heartbeats stop, other processes hang up the calls of this process.
type Heartbeat struct {
	store      *store.Store
	lease      time.Duration
	start      time.Time
	lastStored atomic.Int64 // time from start to the last stored heartbeat; 0 if there is none
	monitor    *replicas.Monitor
	// lateHeartbeats is the number of heartbeats that were late. Before a late heartbeat, other
	// processes can have considered this process dead.
	lateHeartbeats atomic.Int64
}

// NewHeartbeat returns a heartbeat of this process. Without a heartbeat for the length of the
// lease, other processes consider this process dead. The store must keep one database connection
// free for the heartbeat (store.On).
func NewHeartbeat(st *store.Store, lease time.Duration) *Heartbeat {
	return &Heartbeat{store: st, lease: lease, start: time.Now(), monitor: replicas.NewMonitor(lease)}
}

// Healthy reports whether this process may take over calls of processes that seem to be dead.
func (h *Heartbeat) Healthy() bool { return h.monitor.Healthy() }

// Send sends one heartbeat.
func (h *Heartbeat) Send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	now := time.Now()
	before := now.Sub(h.start)
	err := h.store.Heartbeat(ctx)
	h.monitor.Observe(now, err)
	if err != nil {
		return err
	}
	if last := h.lastStored.Load(); !h.inTime(last) {
		// lateHeartbeats must change before lastStored. A goroutine that reads the new lastStored must
		// also read the new lateHeartbeats.
		h.lateHeartbeats.Add(1)
	}
	h.lastStored.Store(int64(before))
	return nil
}

// Generation returns the number of the current period without late heartbeats. It returns 0 if the
// last heartbeat is older than four fifths of the lease.
//
// While the number stays the same and is not 0, no other process can have considered this process
// dead.
func (h *Heartbeat) Generation() int64 {
	if !h.inTime(h.lastStored.Load()) {
		return 0
	}
	return h.lateHeartbeats.Load()
}

func (h *Heartbeat) inTime(last int64) bool {
	return last > 0 && time.Since(h.start)-time.Duration(last) < h.lease*4/5
}

// Run sends heartbeats until ctx ends. Then it gives up the ownership of this process's calls, so
// that other processes can take them over.
func (h *Heartbeat) Run(ctx context.Context) error {
	ticker := time.NewTicker(h.lease / 5)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := h.Send(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "heartbeat of this process not stored", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	h.lastStored.Store(0) // Generation is 0 from now on, because other processes can take over the calls
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lease)
	defer cancel()
	return h.store.HandOver(last)
}
