// Package republishing orders again what is still queued long after it was due, so that every accepted request ends
// (architecture.md, law 4). The dialer knows a request by its id: a second order is no second dial.
package republishing

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/call"
	"ringfence.dev/services/calls/internal/store"
)

const batch = 100

// Worker republishes.
type Worker struct {
	store *store.Store
	after time.Duration
	wake  func()
	count prometheus.Counter
}

// New makes a worker that orders again what is queued for longer than after past its time; wake tells the outbox relay of a commit.
func New(st *store.Store, after time.Duration, wake func(), metrics prometheus.Registerer) *Worker {
	w := &Worker{store: st, after: after, wake: wake, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "calls_republished_total", Help: "Call requests ordered again because they were still queued long after they were due.",
	})}
	metrics.MustRegister(w.count)
	return w
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	ticker := time.NewTicker(min(max(w.after/15, 100*time.Millisecond), time.Minute))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "call requests could not be republished; trying again", "error", err)
		}
	}
}

// Once republishes everything that is overdue.
func (w *Worker) Once(ctx context.Context) error {
	for {
		done, err := w.store.Republish(ctx, w.after, batch, time.Now(), resume)
		if err != nil {
			return err
		}
		if done > 0 {
			w.count.Add(float64(done))
			w.wake()
		}
		if done < batch {
			return nil
		}
	}
}

func resume(ctx context.Context, req *call.Request) (context.Context, func()) {
	ctx, span := telemetry.Continue(ctx, "republish call request", req.Traceparent, time.Since(req.QueuedAt), telemetry.CallRequestID(req.ID.String()))
	return ctx, func() { span.End() }
}
