package dial

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// fence commits the one permission to dial, before anything is sent to the carrier.
func (d *Dialer) fence(ctx context.Context, r dialqueue.Request, o carrier.Originate) error {
	return d.fences.do(store.Fence{
		Request: r, CallID: o.CallID, From: o.From, Trunk: d.carrier.Name(), Trace: trace.SpanContextFromContext(ctx),
	})
}

// fenceAgain commits the one permission to dial another trunk, after one that refused before anything rang.
func (d *Dialer) fenceAgain(ctx context.Context, r dialqueue.Request, refused, next carrier.Originate) error {
	return d.store.FenceAgain(ctx, r, refused.CallID, next.CallID, next.From, d.carrier.Name())
}

// originate asks the carrier for what is fenced, once.
func (d *Dialer) originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	return d.carrier.Originate(ctx, o)
}
