// Package keeping forgets what was said in calls a day after their end: by then it was judged and told, and calls keeps it for as long as the workspace
// wants.
package keeping

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/store"
)

const (
	// spoken is less than any workspace can ask for.
	spoken = 24 * time.Hour
	every  = 10 * time.Minute
	batch  = 500
)

// Keeper forgets.
type Keeper struct{ store *store.Store }

// New keeps the store.
func New(st *store.Store) *Keeper { return &Keeper{store: st} }

// Run works until ctx ends. Replicas share the work row by row.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := k.Forget(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "what was said long ago was not forgotten", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Forget forgets everything that is old enough at the given time.
func (k *Keeper) Forget(ctx context.Context, now time.Time) error {
	for {
		forgotten, err := k.store.ForgetSpoken(ctx, now.Add(-spoken), batch)
		if err != nil || forgotten < batch {
			return err
		}
	}
}
