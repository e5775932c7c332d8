package callrequests

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

const (
	overdueBatch = 100
	// maxOverdue limits the number of calls in one pass.
	maxOverdue = 500
)

// OverdueJob publishes call_overdue for calls that should have ended long ago. The dialer then
// publishes the end of the call again. Replicas can run the job concurrently.
type OverdueJob struct {
	store       *store.Store
	overdueTime time.Duration
	wake        func()
}

// NewOverdueJob returns a job for calls that should have ended more than overdueTime ago. The job
// calls wake after it has written events to the outbox.
func NewOverdueJob(st *store.Store, overdueTime time.Duration, wake func()) *OverdueJob {
	return &OverdueJob{store: st, overdueTime: overdueTime, wake: wake}
}

// Run runs the job until ctx ends. It always returns nil.
func (w *OverdueJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(min(max(w.overdueTime/15, 100*time.Millisecond), time.Minute))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "overdue calls not reported to the dialer", "error", err)
		}
	}
}

// Once runs one pass: it reports at most maxOverdue calls.
func (w *OverdueJob) Once(ctx context.Context) error {
	for reported := 0; reported < maxOverdue; {
		n, err := w.store.ReportOverdueCalls(ctx, w.overdueTime, overdueBatch, time.Now(), traceOverdue)
		if err != nil {
			return err
		}
		if n > 0 {
			slog.WarnContext(ctx, "overdue calls reported to the dialer", "calls", n)
			w.wake()
		}
		if reported += n; n < overdueBatch {
			return nil
		}
	}
	return nil
}

func traceOverdue(ctx context.Context, c *callstate.Call) (context.Context, func()) {
	ctx, span := telemetry.Continue(ctx, "report overdue call", c.Traceparent, 0, telemetry.CallID(c.ID.String()))
	return ctx, func() { span.End() }
}
