package dialing

import (
	"context"
	"time"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/request"
)

// fence commits the one permission to dial, before anything leaves for the carrier (law 1).
func (d *Dialer) fence(ctx context.Context, r request.Request, o carrier.Originate) error {
	return d.store.Fence(ctx, r, o.CallID, o.From, d.carrier.Name())
}

// fenceAgain commits the one permission to dial another trunk, after one that refused before anything rang.
func (d *Dialer) fenceAgain(ctx context.Context, r request.Request, refused, next carrier.Originate) error {
	return d.store.FenceAgain(ctx, r, refused.CallID, next.CallID, next.From, d.carrier.Name())
}

// originate asks the carrier for what is fenced, once.
func (d *Dialer) originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	return d.carrier.Originate(ctx, o)
}
