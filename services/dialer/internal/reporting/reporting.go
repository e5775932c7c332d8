// Package reporting tells contacts-compliance of every opt-out that was heard in a call, again and again until it is acknowledged. What was
// heard is stored before; until the acknowledgement the dialer itself dials nobody at that number.
package reporting

import (
	"context"
	"log/slog"
	"time"

	"ringfence.dev/libs/crash"
	"ringfence.dev/services/dialer/internal/asking"
	"ringfence.dev/services/dialer/internal/store"
)

const every = time.Second

// Reporter reports.
type Reporter struct {
	store    *store.Store
	contacts *asking.Contacts
	wake     chan struct{}
}

// New reports what the store holds.
func New(st *store.Store, contacts *asking.Contacts) *Reporter {
	return &Reporter{store: st, contacts: contacts, wake: make(chan struct{}, 1)}
}

// Wake says that an opt-out was heard. It never blocks.
func (r *Reporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-r.wake:
		}
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "opt-outs heard in calls wait to be reported", "error", err)
		}
	}
}

func (r *Reporter) report(ctx context.Context) error {
	due, err := r.store.DueReports(ctx)
	if err != nil {
		return err
	}
	for _, o := range due {
		crash.Point("dialer: before opt-out report")
		if err := r.contacts.OptOut(ctx, o); err != nil {
			return err // the others come again in 3 s as well
		}
		crash.Point("dialer: after opt-out report")
		if err := r.store.Acknowledged(ctx, o.CallID); err != nil {
			return err
		}
	}
	return nil
}
