package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	repeatInterval = time.Minute
	// repeatAfter is the time after which an erasure that is not yet done is published again.
	repeatAfter = 15 * time.Minute
)

// ErasureRepeatJob publishes an erasure again until every service has reported that its data is
// erased.
type ErasureRepeatJob struct {
	store       *store.Store
	wake        func()
	republished prometheus.Counter
}

// NewErasureRepeatJob creates a job. It calls wake after a commit that wrote to the outbox.
func NewErasureRepeatJob(st *store.Store, wake func(), metrics prometheus.Registerer) *ErasureRepeatJob {
	w := &ErasureRepeatJob{store: st, wake: wake, republished: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ringfence_contacts_erasures_republished_total",
		Help: "Erasures that were published again, because they were still open 15 minutes after the last time.",
	})}
	metrics.MustRegister(w.republished)
	return w
}

// Run runs once a minute until ctx ends.
func (w *ErasureRepeatJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(repeatInterval)
	defer ticker.Stop()
	for {
		if err := w.RunOnce(ctx, repeatAfter); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "open erasures not published again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// RunOnce publishes again the open erasures whose last publication is older than minAge.
func (w *ErasureRepeatJob) RunOnce(ctx context.Context, minAge time.Duration) error {
	published, err := w.store.RepublishErasures(ctx, minAge)
	w.republished.Add(float64(published))
	if published > 0 {
		slog.WarnContext(ctx, "open erasures published again", "erasures", published)
		w.wake()
	}
	return err
}
