package dial

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// commitFence must succeed before any message is sent to the carrier. A fence is the row that
// permits one dial.
func (d *Dialer) commitFence(ctx context.Context, r dialqueue.Request, o carrier.Originate) error {
	return d.fences.write(store.Fence{
		Request: r, CallID: o.CallID, From: o.From, Trunk: d.carrier.Name(), Trace: trace.SpanContextFromContext(ctx),
	})
}

// commitNextFence commits a fence for a call over the next trunk. The previous trunk must have
// refused the call before the phone rang.
func (d *Dialer) commitNextFence(ctx context.Context, r dialqueue.Request, refused, next carrier.Originate) error {
	return d.store.FenceAgain(ctx, r, refused.CallID, next.CallID, next.From, d.carrier.Name())
}

func (d *Dialer) originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	return d.carrier.Originate(ctx, o)
}
