// Package canceling takes call requests back: it asks the dialer to let the request go and believes nothing else. Who
// wins, the cancel or the dial, is decided by the dialer's row.

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

// Canceler cancels.
type Canceler struct {
	store *store.Store
	peers *peers.Clients
	wake  func()
}

// NewCanceler makes a desk; wake tells the outbox relay of a commit.
func NewCanceler(st *store.Store, peers *peers.Clients, wake func()) *Canceler {
	return &Canceler{store: st, peers: peers, wake: wake}
}

// Cancel ends a queued request. Any other state is 409 not_cancelable; a dialer that does not answer is 503, and whether it
// let go is not known: if it did, and when our own commit is lost, its fact of the withdrawal cancels the request.
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
	ctx = context.WithoutCancel(ctx) // it is withdrawn, whether or not the client still listens
	req, err = d.store.Cancel(ctx, workspaceID, id, time.Now())
	if errors.Is(err, pg.ErrNotFound) {
		return d.endedMeanwhile(ctx, workspaceID, id)
	}
	if err != nil {
		return callstate.Request{}, err
	}
	d.wake()
	return req, nil
}

// endedMeanwhile finds what became of a request between our look and our update: the fact of this very withdrawal may have been
// faster, or another cancel, which then has the 200.
func (d *Canceler) endedMeanwhile(ctx context.Context, workspaceID, id uuid.UUID) (callstate.Request, error) {
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
