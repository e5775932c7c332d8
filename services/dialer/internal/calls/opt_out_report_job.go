// Package reporting tells contacts-compliance of every opt-out that was heard in a call, again and again until it is acknowledged. What was
// heard is stored before; until the acknowledgement the dialer itself dials nobody at that number.

package calls

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/store"
)

const reportInterval = time.Second

// OptOutReporter reports.
type OptOutReporter struct {
	store    *store.Store
	contacts *peers.Contacts
	wake     chan struct{}
}

// NewOptOutReporter reports what the store holds.
func NewOptOutReporter(st *store.Store, contacts *peers.Contacts) *OptOutReporter {
	return &OptOutReporter{store: st, contacts: contacts, wake: make(chan struct{}, 1)}
}

// Wake says that an opt-out was heard. It never blocks.
func (r *OptOutReporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run reports until ctx ends.
func (r *OptOutReporter) Run(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval)
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

func (r *OptOutReporter) report(ctx context.Context) error {
	due, err := r.store.DueReports(ctx)
	if err != nil {
		return err
	}
	var fault error
	for _, o := range due {
		failpoint.Inject("dialer: before opt-out report")
		if err := r.contacts.OptOut(ctx, o); err != nil {
			fault = errors.Join(fault, err)
			if silent(err) {
				return fault // the others come again in 3 s as well
			}
			continue // one that is not understood must not keep the others from being told
		}
		failpoint.Inject("dialer: after opt-out report")
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
