package calls

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/store"
)

// Heartbeat shows the other processes that this process is alive. The other processes hang up the
// calls of a process whose heartbeats stop.
type Heartbeat struct {
	store   *store.Store
	lease   time.Duration
	start   time.Time
	last    atomic.Int64 // last successful heartbeat, as monotonic time since start; 0: none
	monitor *replicas.Monitor
	// gaps is the number of heartbeats that were too late. Other processes may have considered this
	// process dead before these heartbeats.
	gaps atomic.Int64
}

// NewHeartbeat returns a heartbeat of this process. lease is how long the other processes wait for
// the next heartbeat. The store must use database connections that no other code uses (store.On). A
// heartbeat that waits for a connection would make a healthy process look dead.
func NewHeartbeat(st *store.Store, lease time.Duration) *Heartbeat {
	return &Heartbeat{store: st, lease: lease, start: time.Now(), monitor: replicas.NewMonitor(lease)}
}

// Healthy reports whether this process may take over the calls of processes that seem to be dead.
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
	if last := h.last.Load(); !h.inTime(last) {
		h.gaps.Add(1) // gaps before last, so that a reader of the new heartbeat also sees the gap
	}
	h.last.Store(int64(before))
	return nil
}

// Generation returns a number that identifies the current period without a late heartbeat. In this
// period, no other process can have considered this process dead. The number is 0 if a heartbeat
// can be late now. If two calls return the same number, no heartbeat was late in between. The
// safety margin is a fifth of the lease.
func (h *Heartbeat) Generation() int64 {
	if !h.inTime(h.last.Load()) {
		return 0
	}
	return h.gaps.Load()
}

func (h *Heartbeat) inTime(last int64) bool {
	return last > 0 && time.Since(h.start)-time.Duration(last) < h.lease*4/5
}

// Run sends heartbeats until ctx ends. Then it releases the calls of this process, so that other
// processes take them over.
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
	h.last.Store(0) // attempts must now query the database, because other processes can take over the calls
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lease)
	defer cancel()
	return h.store.HandOver(last)
}
