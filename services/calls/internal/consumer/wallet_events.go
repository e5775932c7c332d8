package consumer

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/store"
)

// onWalletEvents records what became of holds, and answers for holds whose request nobody has seen.
func (c *Consumer) onWalletEvents(ctx context.Context, tx pgx.Tx, recs []inbox.Fresh) (verdicts []error, err error) {
	events, ids, wanted := make([]*eventv1.WalletEvent, len(recs)), make([]uuid.UUID, len(recs)), store.Wanted{CallsOfRequests: true}
	for i, rec := range recs {
		events[i] = &eventv1.WalletEvent{}
		if err := rec.Decode(events[i]); err != nil {
			return nil, err
		}
		if ids[i], err = uuid.Parse(events[i].GetCallRequestId()); err != nil {
			return nil, kafka.Parkf("read call request id: %w", err)
		}
		rec.Span.SetAttributes(telemetry.CallRequestID(ids[i].String()))
		wanted.Partitions, wanted.Requests = append(wanted.Partitions, rec.Partition), append(wanted.Requests, ids[i])
	}
	f, err := c.store.Lock(ctx, tx, wanted)
	if err != nil {
		return nil, err
	}
	verdicts = make([]error, len(recs))
	for i, ev := range events {
		traced := trace.ContextWithSpan(ctx, recs[i].Span)
		switch e := ev.GetEvent().(type) {
		case *eventv1.WalletEvent_Captured:
			amount := money.Micro(e.Captured.GetAmountMicro())
			verdicts[i] = c.settle(traced, f, ids[i], &amount)
		case *eventv1.WalletEvent_Released:
			verdicts[i] = c.settle(traced, f, ids[i], nil)
		case *eventv1.WalletEvent_Unconfirmed:
			verdicts[i] = c.answerFor(traced, tx, ids[i], ev.GetWorkspaceId())
		default:
			verdicts[i] = kafka.Parkf("the wallet event is newer than this build")
		}
		if verdicts[i] != nil && !kafka.IsSkip(verdicts[i]) {
			return nil, verdicts[i]
		}
	}
	return verdicts, f.Write(ctx, tx)
}

// answerFor says whether the request of a hold exists.
func (c *Consumer) answerFor(ctx context.Context, tx pgx.Tx, requestID uuid.UUID, workspace string) error {
	workspaceID, err := uuid.Parse(workspace)
	if err != nil {
		return kafka.Parkf("read workspace id: %w", err)
	}
	exists, err := c.store.Unconfirmed(ctx, tx, requestID, workspaceID, time.Now())
	if err == nil && !exists {
		crash.Point("calls: after tombstone")
	}
	return err
}

// settle keeps the charge with the request, because it may overtake the call, and folds it into the call that is known.
func (c *Consumer) settle(ctx context.Context, f *store.Fold, requestID uuid.UUID, amount *money.Micro) error {
	req := f.Request(requestID)
	if req == nil {
		return kafka.Skipf("call request %s is not ours", requestID) // an abandoned one's release
	}
	if !req.Settle(amount) {
		return nil
	}
	f.Charge(req)
	known := f.CallOfRequest(requestID)
	if known == nil {
		return nil
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(known.ID.String()))
	changed, late := known.Settle(amount)
	if late {
		c.late.WithLabelValues("charge").Inc()
	}
	if !changed {
		return nil
	}
	return c.keep(ctx, f, known, known.Status)
}
