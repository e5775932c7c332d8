package erasurereports

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	republishInterval = time.Minute
	// republishAfter is the time after which an erasure that is not yet done is published again.
	republishAfter = 15 * time.Minute
)

// RepublishJob publishes an erasure again until every service has reported that its data is erased.
type RepublishJob struct {
	store       *store.Store
	wake        func()
	republished prometheus.Counter
}

// NewRepublishJob creates a job. It calls wake after a commit that wrote to the outbox.
func NewRepublishJob(st *store.Store, wake func(), metrics prometheus.Registerer) *RepublishJob {
	j := &RepublishJob{store: st, wake: wake, republished: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ringfence_contacts_erasures_republished_total",
		Help: "Erasures that were published again, because they were still open 15 minutes after the last time.",
	})}
	metrics.MustRegister(j.republished)
	return j
}

// Run runs once a minute until ctx ends.
func (j *RepublishJob) Run(ctx context.Context) error {
	ticker := time.NewTicker(republishInterval)
	defer ticker.Stop()
	for {
		if err := j.RunOnce(ctx, republishAfter); err != nil && ctx.Err() == nil {
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
func (j *RepublishJob) RunOnce(ctx context.Context, minAge time.Duration) error {
	published, err := j.store.RepublishErasures(ctx, minAge)
	j.republished.Add(float64(published))
	if published > 0 {
		slog.WarnContext(ctx, "open erasures published again", "erasures", published)
		j.wake()
	}
	return err
}
