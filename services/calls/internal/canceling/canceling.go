// Package canceling takes call requests back: it asks the dialer to let the request go and believes nothing else. Who
// wins, the cancel or the dial, is decided by the dialer's row.
package canceling

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/questionv1"
	"ringfence.dev/services/calls/internal/asking"
	"ringfence.dev/services/calls/internal/call"
	"ringfence.dev/services/calls/internal/store"
)

// Desk cancels.
type Desk struct {
	store *store.Store
	peers *asking.Peers
	wake  func()
}

// New makes a desk; wake tells the outbox relay of a commit.
func New(st *store.Store, peers *asking.Peers, wake func()) *Desk {
	return &Desk{store: st, peers: peers, wake: wake}
}

// Cancel ends a queued request. Any other state is 409 not_cancelable; a dialer that does not answer is 503, and whether it
// let go is not known: if it did, and when our own commit is lost, its fact of the withdrawal cancels the request.
func (d *Desk) Cancel(ctx context.Context, workspaceID, id uuid.UUID) (call.Request, error) {
	req, err := d.store.Request(ctx, workspaceID, id)
	if errors.Is(err, pg.ErrNotFound) {
		return call.Request{}, apierr.NotFound("call request")
	}
	if err != nil {
		return call.Request{}, err
	}
	if req.Status != call.RequestQueued {
		return call.Request{}, notCancelable(string(req.Status))
	}
	answer, err := d.peers.Withdraw(ctx, &questionv1.WithdrawRequest{CallRequestId: id.String(), WorkspaceId: workspaceID.String()})
	if err != nil {
		return call.Request{}, err
	}
	if !answer.GetWithdrawn() {
		return call.Request{}, notCancelable("being dialled")
	}
	crash.Point("calls: after withdraw")
	ctx = context.WithoutCancel(ctx) // it is withdrawn, whether or not the client still listens
	req, err = d.store.Cancel(ctx, workspaceID, id, time.Now())
	if errors.Is(err, pg.ErrNotFound) {
		return d.endedMeanwhile(ctx, workspaceID, id)
	}
	if err != nil {
		return call.Request{}, err
	}
	d.wake()
	return req, nil
}

// endedMeanwhile finds what became of a request between our look and our update: the fact of this very withdrawal may have been
// faster, or another cancel, which then has the 200.
func (d *Desk) endedMeanwhile(ctx context.Context, workspaceID, id uuid.UUID) (call.Request, error) {
	req, err := d.store.AnswerCancel(ctx, workspaceID, id)
	if !errors.Is(err, pg.ErrNotFound) {
		return req, err
	}
	if req, err = d.store.Request(ctx, workspaceID, id); err != nil {
		return call.Request{}, err
	}
	return call.Request{}, notCancelable(string(req.Status))
}

func notCancelable(state string) error {
	return apierr.Conflict("not_cancelable", "The call request is %s. Only a queued one can be canceled.", state)
}
