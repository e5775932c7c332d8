// Package reporting tells contacts-compliance of every opt-out that was heard in a call, again and again until it is acknowledged. What was
// heard is stored before; until the acknowledgement the dialer itself dials nobody at that number.
package reporting

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"

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
	var fault error
	for _, o := range due {
		crash.Point("dialer: before opt-out report")
		if err := r.contacts.OptOut(ctx, o); err != nil {
			fault = errors.Join(fault, err)
			if silent(err) {
				return fault // the others come again in 3 s as well
			}
			continue // one that is not understood must not keep the others from being told
		}
		crash.Point("dialer: after opt-out report")
		if err := r.store.Acknowledged(ctx, o.CallID); err != nil {
			return errors.Join(fault, err)
		}
	}
	return fault
}

// silent says that contacts-compliance cannot be reached, rather than that it refused one report.
func silent(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return true
	}
	return false
}
