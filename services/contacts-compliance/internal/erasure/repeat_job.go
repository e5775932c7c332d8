// Package erasure sees that every erasure is carried out: it tells of those that are not, again and again.
package erasure

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	pause = time.Minute
	// after is how long the others have before they are told again.
	after = 15 * time.Minute
)

// Worker tells again.
type Worker struct {
	store *store.Store
	wake  func()
	again prometheus.Counter
}

// New makes a worker; wake tells the outbox relay of a commit.
func New(st *store.Store, wake func(), metrics prometheus.Registerer) *Worker {
	w := &Worker{store: st, wake: wake, again: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ringfence_contacts_erasures_republished_total", Help: "Erasures that were not carried out a quarter of an hour after they were last told of, and were told of again.",
	})}
	metrics.MustRegister(w.again)
	return w
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := w.Once(ctx, after); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "erasures could not be told again; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once tells again of what was last told of longer than after ago and is not carried out.
func (w *Worker) Once(ctx context.Context, after time.Duration) error {
	told, err := w.store.TellAgain(ctx, after)
	w.again.Add(float64(told))
	if told > 0 {
		slog.WarnContext(ctx, "erasures are not carried out and were told again", "erasures", told)
		w.wake()
	}
	return err
}
