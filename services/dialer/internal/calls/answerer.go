package calls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/store"
)

// maxAnswers is the highest number of inbound calls with a price that this process answers at the
// same time. For calls without a price, the same limit applies separately.
const maxAnswers = 16

// Answerer answers inbound calls. For each call, it looks up the caller in contacts-compliance,
// publishes the event `ringing`, and answers the call at the carrier. If the lookup fails, the
// event contains no contact.
//
// A call is refused as busy if the workspace has reached its limit of concurrent inbound calls. If
// the call has a price, Answerer first reserves the price of the longest permitted call in
// billing-wallet. If billing-wallet refuses the hold, the call is refused as busy. If
// billing-wallet does not respond, the call continues to ring, and Answerer tries again. Calls with
// and without a price are answered independently, so that calls without a price do not wait for
// billing-wallet.
type Answerer struct {
	store    *store.Store
	contacts *peers.Contacts
	wallet   *peers.Wallet
	carriers carrier.Carriers
	relay    *outbox.Relay
	hangUp   func()
	// wakeFree and wakePriced start a search for calls without and with a price.
	wakeFree, wakePriced chan struct{}
}

// NewAnswerer returns an answerer for the inbound calls of the carriers. The answerer calls hangUp
// after it has marked a call as refused. hangUp must not block. The caller starts the answerer with
// Run.
func NewAnswerer(st *store.Store, contacts *peers.Contacts, wallet *peers.Wallet, carriers carrier.Carriers,
	relay *outbox.Relay, hangUp func()) *Answerer {
	return &Answerer{
		store: st, contacts: contacts, wallet: wallet, carriers: carriers, relay: relay, hangUp: hangUp,
		wakeFree: make(chan struct{}, 1), wakePriced: make(chan struct{}, 1),
	}
}

// Wake makes Run search for calls to answer. It is called after an inbound call was stored, and
// never blocks.
func (a *Answerer) Wake() {
	for _, wake := range []chan struct{}{a.wakeFree, a.wakePriced} {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Run answers calls until ctx ends.
func (a *Answerer) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { a.answer(ctx, false, a.wakeFree) })
	group.Go(func() { a.answer(ctx, true, a.wakePriced) })
	group.Wait()
	return nil
}

// answer answers the calls with a price, or those without a price, until ctx ends.
func (a *Answerer) answer(ctx context.Context, priced bool, wake <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = a.answerDue(ctx, priced); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "not all waiting inbound calls could be answered", "error", err)
			}
		}
	}
}

// answerDue answers up to maxAnswers calls at the same time. more is true if further calls can be
// due.
func (a *Answerer) answerDue(ctx context.Context, priced bool) (more bool, err error) {
	due, err := a.store.DueAnswers(ctx, priced, maxAnswers)
	if err != nil {
		return false, err
	}
	var group errgroup.Group
	for _, arrival := range due {
		group.Go(func() error { return a.answerCall(ctx, arrival) })
	}
	return len(due) == maxAnswers, group.Wait()
}

func (a *Answerer) answerCall(ctx context.Context, arrival store.Arrival) error {
	ctx, span := telemetry.Continue(
		ctx,
		"answer inbound call",
		arrival.Traceparent,
		0,
		telemetry.CallID(arrival.CallID.String()),
	)
	defer span.End()
	var caller peers.Caller
	if arrival.From != callstate.Anonymous {
		var err error
		if caller, err = a.contacts.Recognise(ctx, arrival.WorkspaceID, arrival.From); err != nil {
			slog.DebugContext(ctx, "caller lookup of an inbound call failed", "call_id", arrival.CallID, "error", err)
		}
	}
	admission, live, err := a.store.Admit(ctx, arrival.WorkspaceID, arrival.CallID, func(c *callstate.Call) {
		if c.Version == 0 {
			c.ContactID, c.TimeZone = caller.ContactID, caller.TimeZone
		}
		c.Arrive()
	})
	a.relay.Wake()
	if err != nil || !live {
		return err
	}
	if admission.Refused {
		slog.InfoContext(ctx, "inbound call refused: too many concurrent inbound calls of the workspace",
			"call_id", arrival.CallID, "workspace_id", arrival.WorkspaceID)
		a.hangUp()
		return nil
	}
	if admission.Priced {
		held, err := a.hold(ctx, arrival, admission)
		if err != nil || !held {
			return err
		}
	}
	err = a.carriers.Of(arrival.Test).Answer(ctx, arrival.CallID)
	if errors.Is(err, carrier.ErrUnknownCall) {
		return a.changeCall(ctx, arrival.CallID, func(c *callstate.Call) {
			c.End(callstate.End{At: time.Now(), Cause: callstate.RecoveryOnTimerExpire})
		})
	}
	return err
}

// hold reserves the price of the longest call. If billing-wallet refuses the hold, hold marks the
// call as refused and returns false. After an error, the caller can call hold again.
func (a *Answerer) hold(ctx context.Context, arrival store.Arrival, admission store.Admission) (held bool, err error) {
	err = a.wallet.HoldInbound(ctx, peers.InboundHold{
		CallID: arrival.CallID, WorkspaceID: arrival.WorkspaceID, PerMinute: admission.PerMinute,
		IncrementSeconds: admission.IncrementSeconds, MaxCallSeconds: admission.MaxCallSeconds,
	})
	switch {
	case err == nil:
		return true, nil
	case isHoldFault(err):
		slog.ErrorContext(ctx, "billing-wallet rejected the request for a hold",
			"call_id", arrival.CallID, "workspace_id", arrival.WorkspaceID, "error", err)
		return false, nil
	case !errors.Is(err, peers.ErrHoldRefused):
		return false, err
	}
	refused, storeErr := a.store.RefuseOwned(ctx, arrival.CallID)
	if storeErr != nil || !refused {
		return false, storeErr
	}
	slog.InfoContext(ctx, "inbound call refused: no hold",
		"call_id", arrival.CallID, "workspace_id", arrival.WorkspaceID, "error", err)
	a.hangUp()
	return false, nil
}

// isHoldFault reports whether billing-wallet rejected the request itself: its content, or the key
// of the dialer. The operator has to repair the cause, and the call rings until then.
func isHoldFault(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return true
	}
	return false
}

func (a *Answerer) changeCall(ctx context.Context, callID uuid.UUID, changeState func(*callstate.Call)) error {
	err := a.store.Change(ctx, []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		if c := calls[callID]; c != nil {
			changeState(c)
		}
	})
	a.relay.Wake()
	return err
}
