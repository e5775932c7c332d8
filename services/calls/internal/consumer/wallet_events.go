package consumer

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
)

// onWalletEvent records what became of a hold, and answers for holds whose request nobody has seen.
func (c *Consumer) onWalletEvent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.WalletEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	requestID, err := uuid.Parse(ev.GetCallRequestId())
	if err != nil {
		return kafka.Parkf("read call request id: %w", err)
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(requestID.String()))
	switch e := ev.GetEvent().(type) {
	case *eventv1.WalletEvent_Captured:
		amount := money.Micro(e.Captured.GetAmountMicro())
		return c.settle(ctx, tx, requestID, &amount)
	case *eventv1.WalletEvent_Released:
		return c.settle(ctx, tx, requestID, nil)
	case *eventv1.WalletEvent_Unconfirmed:
		workspaceID, err := uuid.Parse(ev.GetWorkspaceId())
		if err != nil {
			return kafka.Parkf("read workspace id: %w", err)
		}
		exists, err := c.store.Unconfirmed(ctx, tx, requestID, workspaceID, time.Now())
		if err == nil && !exists {
			crash.Point("calls: after tombstone")
		}
		return err
	default:
		return kafka.Parkf("the wallet event is newer than this build")
	}
}

// settle keeps the charge with the request, because it may overtake the call, and folds it into the call that is known.
func (c *Consumer) settle(ctx context.Context, tx pgx.Tx, requestID uuid.UUID, amount *money.Micro) error {
	req, err := c.store.LockRequest(ctx, tx, requestID)
	if err != nil {
		return err
	}
	if req == nil {
		return kafka.Skipf("call request %s is not ours", requestID) // an abandoned one's release
	}
	if !req.Settle(amount) {
		return nil
	}
	if err = c.store.SaveCharge(ctx, tx, req); err != nil {
		return err
	}
	known, err := c.store.LockCallOfRequest(ctx, tx, requestID)
	if err != nil || known == nil {
		return err
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(known.ID.String()))
	changed, late := known.Settle(amount)
	if late {
		c.late.WithLabelValues("charge").Inc()
	}
	if !changed {
		return nil
	}
	return c.save(ctx, tx, known, known.Status)
}
