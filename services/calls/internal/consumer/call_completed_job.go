package consumer

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

const (
	// completionInterval is the time between two searches for calls whose wait for charge or
	// analysis is over.
	completionInterval = 250 * time.Millisecond
	completionBatch    = 50
)

// CompletionJob publishes call.completed for calls that have waited long enough for their charge or
// analysis. If charge and analysis arrive earlier, the consumer publishes the event. Replicas can
// run the job concurrently.
type CompletionJob struct {
	store *store.Store
	waits callstate.Waits
	wake  func()
}

// NewCompletionJob returns a job. The job calls wake after each commit that wrote events, so that
// the relay publishes the events.
func NewCompletionJob(st *store.Store, waits callstate.Waits, wake func()) *CompletionJob {
	return &CompletionJob{store: st, waits: waits, wake: wake}
}

// Run runs the job until ctx ends. It always returns nil.
func (w *CompletionJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(completionInterval)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "delayed call.completed events not published", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once runs one pass of the job: it publishes all events that are due.
func (w *CompletionJob) Once(ctx context.Context) error {
	for {
		done, err := w.store.Complete(ctx, w.waits, completionBatch, continueTrace)
		if err != nil {
			return err
		}
		if done > 0 {
			w.wake()
		}
		if done < completionBatch {
			return nil
		}
	}
}

// continueTrace continues the trace of the call, so that the trace includes the time for which the
// call waited.
func continueTrace(ctx context.Context, c *callstate.Call) (context.Context, func()) {
	ctx, span := telemetry.Continue(ctx, "complete call", c.Traceparent, 0, telemetry.CallID(c.ID.String()))
	if c.CallRequestID != nil {
		span.SetAttributes(telemetry.CallRequestID(c.CallRequestID.String()))
	}
	return ctx, func() { span.End() }
}
