package callrequests

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

const (
	republishBatch = 100
	// maxPerPass limits the number of requests in one pass. If the dialer did not work for hours,
	// many requests are overdue. Without the limit, the dialer would receive all of them again
	// before any new request.
	maxPerPass = 500
)

// RepublishJob publishes overdue call requests again. A request is overdue if it should have ended
// long ago but has not, for example because an event was lost. The dialer never dials a request
// twice. If it has already ended the request, it publishes the end again.
type RepublishJob struct {
	store       *store.Store
	overdueTime time.Duration
	wake        func()
	count       prometheus.Counter
	// lastDue is the due time of the last published request. The next pass publishes only requests
	// with a later due time. lastDue is zero if the last pass published the newest overdue request.
	lastDue time.Time
}

// NewRepublishJob returns a job for requests that are overdue by more than overdueTime. The job
// calls wake after it has written events to the outbox.
func NewRepublishJob(st *store.Store, overdueTime time.Duration, wake func(),
	metrics prometheus.Registerer) *RepublishJob {
	w := &RepublishJob{store: st, overdueTime: overdueTime, wake: wake}
	w.count = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ringfence_calls_republished_requests_total",
		Help: "Call requests that were published again because they were overdue.",
	})
	metrics.MustRegister(w.count)
	return w
}

// Run runs the job until ctx ends. It always returns nil.
func (w *RepublishJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(min(max(w.overdueTime/15, 100*time.Millisecond), time.Minute))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.Once(ctx); err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "overdue call requests not published again", "error", err)
		}
	}
}

// Once runs one pass: it publishes at most maxPerPass overdue requests again.
func (w *RepublishJob) Once(ctx context.Context) error {
	for published := 0; published < maxPerPass; {
		done, last, err := w.store.Republish(ctx, w.overdueTime, w.lastDue, republishBatch, time.Now(), continueTrace)
		if err != nil {
			return err
		}
		if done > 0 {
			w.count.Add(float64(done))
			w.wake()
		}
		if w.lastDue, published = last, published+done; done < republishBatch {
			w.lastDue = time.Time{}
			return nil
		}
	}
	return nil
}

func continueTrace(ctx context.Context, req *callstate.Request) (context.Context, func()) {
	ctx, span := telemetry.Continue(ctx, "republish call request", req.Traceparent, time.Since(req.QueuedAt), telemetry.CallRequestID(req.ID.String()))
	return ctx, func() { span.End() }
}
