// Package completing sends the call.completed whose wait for charge and analysis is over, with what there is. An event that
// waits for nothing any more was sent by the fold itself.

package calls

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

const (
	// pause is between two looks at the due rows.
	pause           = 250 * time.Millisecond
	completionBatch = 50
)

// CompletionJob completes calls. Replicas share the work row by row.
type CompletionJob struct {
	store *store.Store
	waits callstate.Waits
	wake  func()
}

// NewCompletionJob makes a worker; wake tells the outbox relay of a commit.
func NewCompletionJob(st *store.Store, waits callstate.Waits, wake func()) *CompletionJob {
	return &CompletionJob{store: st, waits: waits, wake: wake}
}

// Run works until ctx ends.
func (w *CompletionJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "calls could not be completed; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once sends everything that is due.
func (w *CompletionJob) Once(ctx context.Context) error {
	for {
		done, err := w.store.Complete(ctx, w.waits, completionBatch, resume)
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

// resume carries the call's trace on: the wait is part of its way.
func resume(ctx context.Context, c *callstate.Call) (context.Context, func()) {
	ctx, span := telemetry.Continue(ctx, "complete call", c.Traceparent, 0, telemetry.CallID(c.ID.String()))
	if c.CallRequestID != nil {
		span.SetAttributes(telemetry.CallRequestID(c.CallRequestID.String()))
	}
	return ctx, func() { span.End() }
}
