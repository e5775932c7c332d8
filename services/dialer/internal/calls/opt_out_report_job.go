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

// OptOutReporter reports opt-outs to contacts-compliance until that service acknowledges them. An
// opt-out is stored before it is reported. Until it is acknowledged, the dialer itself does not
// dial the number.
type OptOutReporter struct {
	store    *store.Store
	contacts *peers.Contacts
	wake     chan struct{}
}

// NewOptOutReporter returns a reporter for the opt-outs in the store.
func NewOptOutReporter(st *store.Store, contacts *peers.Contacts) *OptOutReporter {
	return &OptOutReporter{store: st, contacts: contacts, wake: make(chan struct{}, 1)}
}

// Wake makes Run report the stored opt-outs. It is called after an opt-out was stored, and never
// blocks.
func (r *OptOutReporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run reports opt-outs until ctx ends.
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
		if err := r.reportDue(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "opt-out not reported to contacts-compliance", "error", err)
		}
	}
}

func (r *OptOutReporter) reportDue(ctx context.Context) error {
	due, err := r.store.DueReports(ctx)
	if err != nil {
		return err
	}
	var fault error
	for _, o := range due {
		failpoint.Inject("dialer: before opt-out report")
		if err := r.contacts.OptOut(ctx, o); err != nil {
			fault = errors.Join(fault, err)
			if unreachable(err) {
				return fault // the next run reports the remaining opt-outs
			}
			continue // a rejected report must not delay the remaining reports
		}
		failpoint.Inject("dialer: after opt-out report")
		if err := r.store.Acknowledged(ctx, o.CallID); err != nil {
			return errors.Join(fault, err)
		}
	}
	return fault
}

// unreachable reports whether contacts-compliance cannot be reached. Any other error concerns only
// the opt-out that was reported.
func unreachable(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return true
	}
	return false
}
