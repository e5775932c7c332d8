package callrequests

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/store"
)

// Canceler cancels queued call requests.
type Canceler struct {
	store *store.Store
	peers *peers.Clients
	wake  func()
}

// NewCanceler returns a canceler. It calls wake after each commit that wrote an event, so that the
// relay publishes the event.
func NewCanceler(st *store.Store, peers *peers.Clients, wake func()) *Canceler {
	return &Canceler{store: st, peers: peers, wake: wake}
}

// Cancel cancels a queued call request after the dialer has withdrawn it. If the request is not
// queued, the error is 409 not_cancelable. If the dialer does not respond, the error is 503. In
// this case the dialer can have withdrawn the request, and its event `withdrawn` then cancels the
// request.
func (d *Canceler) Cancel(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Request, error) {
	req, err := d.store.Request(ctx, workspaceID, id)
	if errors.Is(err, pg.ErrNotFound) {
		return callstate.Request{}, apierr.NotFound("call request")
	}
	if err != nil {
		return callstate.Request{}, err
	}
	if req.Status != callstate.RequestQueued {
		return callstate.Request{}, notCancelable(string(req.Status))
	}
	answer, err := d.peers.Withdraw(ctx, &dialerv1.WithdrawRequest{CallRequestId: id.String(), WorkspaceId: workspaceID.String()})
	if err != nil {
		return callstate.Request{}, err
	}
	if !answer.GetWithdrawn() {
		return callstate.Request{}, notCancelable("being dialled")
	}
	failpoint.Inject("calls: after withdraw")
	// the dialer has already withdrawn the request, so the commit must not stop if the client
	// disconnects
	ctx = context.WithoutCancel(ctx)
	req, err = d.store.Cancel(ctx, workspaceID, id, time.Now())
	if errors.Is(err, pg.ErrNotFound) {
		return d.readEndedRequest(ctx, workspaceID, id)
	}
	if err != nil {
		return callstate.Request{}, err
	}
	d.wake()
	return req, nil
}

// readEndedRequest handles a request that was no longer queued after the dialer withdrew it. Either
// the dialer's event `withdrawn` or a concurrent cancel has canceled the request. If several
// clients cancel the same request, only one of them gets 200.
func (d *Canceler) readEndedRequest(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Request, error) {
	req, err := d.store.AnswerCancel(ctx, workspaceID, id)
	if !errors.Is(err, pg.ErrNotFound) {
		return req, err
	}
	if req, err = d.store.Request(ctx, workspaceID, id); err != nil {
		return callstate.Request{}, err
	}
	return callstate.Request{}, notCancelable(string(req.Status))
}

func notCancelable(state string) error {
	return apierr.Conflict("not_cancelable", "The call request is %s. Only a queued one can be canceled.", state)
}
