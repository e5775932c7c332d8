package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/billingv1"
)

const holdTimeout = 2 * time.Second

// ErrHoldRefused means that billing-wallet permanently refuses the hold: the credit is not
// sufficient, the workspace has no wallet, the hold of this call is settled, or the call belongs to
// another workspace.
var ErrHoldRefused = errors.New("the hold is refused")

// Wallet is a client of billing-wallet. Wallet is safe for concurrent use.
type Wallet struct {
	client billingv1.HoldServiceClient
}

// NewWallet returns a client of the service at the base URL. The client signs its tokens with keys.
func NewWallet(base string, keys *serviceauth.Keys) (*Wallet, error) {
	traced, err := otelconnect.NewInterceptor(otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("trace requests: %w", err)
	}
	return &Wallet{client: billingv1.NewHoldServiceClient(
		serviceauth.Client(), base, connect.WithInterceptors(traced, keys.ClientInterceptor("billing-wallet")),
	)}, nil
}

// InboundHold is the request for a hold of the price of the longest inbound call.
type InboundHold struct {
	CallID, WorkspaceID uuid.UUID
	PerMinute           money.Micro
	IncrementSeconds    int32
	MaxCallSeconds      int32
}

// HoldInbound reserves the price of the longest call. It is idempotent by call id. It returns
// ErrHoldRefused if billing-wallet refuses the hold. After another error it is not known whether
// billing-wallet made the hold. connect.CodeOf returns the code of the error.
func (w *Wallet) HoldInbound(ctx context.Context, h InboundHold) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	response, err := w.client.Hold(ctx, connect.NewRequest(&billingv1.HoldRequest{
		WorkspaceId: h.WorkspaceID.String(), MaxCallSeconds: h.MaxCallSeconds,
		Inbound: &billingv1.InboundHold{
			CallId: h.CallID.String(), PerMinuteMicro: int64(h.PerMinute), IncrementSeconds: h.IncrementSeconds,
		},
	}))
	switch code := connect.CodeOf(err); {
	case err == nil && response.Msg.GetHeld() != nil:
		return nil
	case err == nil:
		err = fmt.Errorf("%w: the credit is not sufficient", ErrHoldRefused)
	case code == connect.CodeNotFound, code == connect.CodeFailedPrecondition:
		err = fmt.Errorf("%w: %w", ErrHoldRefused, err)
	}
	return fmt.Errorf("hold the price of inbound call %s: %w", h.CallID, err)
}
