package dial

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// commitFence commits the fence of a request, the row that permits one dial. Before the commit, no
// message may be sent to the carrier.
func (d *Dialer) commitFence(ctx context.Context, r dialqueue.Request, o carrier.Originate) error {
	return d.fences.write(store.Fence{
		Request: r, CallID: o.CallID, From: o.From, Trunk: d.carrier.Name(), Trace: trace.SpanContextFromContext(ctx),
	})
}

// commitNextFence commits a fence for a call over the next trunk. It may be called only if the
// previous trunk refused the call before the phone rang.
func (d *Dialer) commitNextFence(ctx context.Context, r dialqueue.Request, refused, next carrier.Originate) error {
	return d.store.FenceAgain(ctx, r, refused.CallID, next.CallID, next.From, d.carrier.Name())
}

func (d *Dialer) originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	return d.carrier.Originate(ctx, o)
}
