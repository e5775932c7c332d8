package bridging

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/asking"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

// answersAtOnce is how many callers are answered side by side.
const answersAtOnce = 16

// Answerer picks up the calls that come in: the caller is recognised if contacts-compliance can say in time, the ringing goes out with it, and
// the carrier is told to answer.
type Answerer struct {
	store    *store.Store
	contacts *asking.Contacts
	carrier  carrier.Carrier
	relay    *outbox.Relay
	wake     chan struct{}
}

// NewAnswerer picks up over one carrier.
func NewAnswerer(st *store.Store, contacts *asking.Contacts, trunk carrier.Carrier, relay *outbox.Relay) *Answerer {
	return &Answerer{store: st, contacts: contacts, carrier: trunk, relay: relay, wake: make(chan struct{}, 1)}
}

// Wake says that a call came in. It never blocks.
func (a *Answerer) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run answers until ctx ends.
func (a *Answerer) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.wake:
		}
		if err := a.answerDue(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "callers wait to be answered", "error", err)
		}
	}
}

func (a *Answerer) answerDue(ctx context.Context) error {
	due, err := a.store.DueAnswers(ctx)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(answersAtOnce)
	for _, arrival := range due {
		group.Go(func() error { return a.answer(ctx, arrival) })
	}
	return group.Wait()
}

func (a *Answerer) answer(ctx context.Context, arrival store.Arrival) error {
	ctx, span := telemetry.Continue(ctx, "answer inbound call", arrival.Traceparent, 0, telemetry.CallID(arrival.CallID.String()))
	defer span.End()
	var who asking.Caller
	if arrival.From != call.Anonymous {
		var err error
		if who, err = a.contacts.Recognise(ctx, arrival.WorkspaceID, arrival.From); err != nil {
			slog.DebugContext(ctx, "caller not recognised", "call_id", arrival.CallID, "error", err)
		}
	}
	err := a.change(ctx, arrival.CallID, func(c *call.Call) {
		if c.Version == 0 {
			c.ContactID, c.TimeZone = who.ContactID, who.TimeZone
		}
		c.Arrive()
	})
	if err != nil {
		return err
	}
	err = a.carrier.Answer(ctx, arrival.CallID)
	if errors.Is(err, carrier.ErrUnknownCall) {
		return a.change(ctx, arrival.CallID, func(c *call.Call) {
			c.End(call.End{At: time.Now(), Cause: call.RecoveryOnTimerExpire})
		})
	}
	return err
}

func (a *Answerer) change(ctx context.Context, callID uuid.UUID, decide func(*call.Call)) error {
	err := a.store.Change(ctx, []uuid.UUID{callID}, func(calls map[uuid.UUID]*call.Call) {
		if c := calls[callID]; c != nil {
			decide(c)
		}
	})
	a.relay.Wake()
	return err
}
