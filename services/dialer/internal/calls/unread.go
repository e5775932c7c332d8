package calls

import (
	"context"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

// ApplyUnread applies the events of a call that the previous release stored and did not apply. It
// is to be removed with the next release.
func (a *Applier) ApplyUnread(
	ctx context.Context, guard store.Guard, callID uuid.UUID, unread []store.UnreadEvent,
) error {
	events := make([]carrier.Event, 0, len(unread))
	for _, u := range unread {
		e := carrier.Event{
			At: u.At, Kind: carrier.Kind(u.Kind), CallID: callID, From: u.From, To: u.To, Inbound: u.Inbound, Role: u.Role,
			Text: u.Text, DialedAt: u.DialedAt,
		}
		if u.SpokenUntil != nil {
			e.SpokenUntil = *u.SpokenUntil
		}
		if e.Kind == carrier.Ended {
			e.Cause, e.ByUs, e.Outcome, e.Reached = callstate.Cause(u.Cause), u.ByUs, u.Outcome, u.Reached
			e.Disclosure = u.Disclosure
		}
		events = append(events, e)
	}
	return a.Apply(ctx, guard, events)
}
