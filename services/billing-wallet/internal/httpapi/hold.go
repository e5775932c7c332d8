package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// maxCallSeconds limits max_call_seconds to one day.
const maxCallSeconds = 24 * 60 * 60

// Hold implements HoldService. The error code is CodeFailedPrecondition if the request or the
// inbound call has ended, and CodeNotFound if the workspace has no wallet.
func (a *API) Hold(ctx context.Context, request *connect.Request[billingv1.HoldRequest]) (*connect.Response[billingv1.HoldResponse], error) {
	order, err := orderOf(request.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if order.Inbound != nil {
		trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(order.RequestID.String()))
	} else {
		trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(order.RequestID.String()))
	}
	decision, err := a.holds.Hold(ctx, order)
	if err != nil {
		return nil, holdError(ctx, order, err)
	}
	var insufficient *holds.Insufficient
	response := &billingv1.HoldResponse{}
	switch {
	case errors.As(decision.Err, &insufficient):
		response.Result = &billingv1.HoldResponse_Insufficient{Insufficient: &billingv1.Insufficient{Message: insufficient.Error()}}
	case decision.Err != nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition, decision.Err)
	default:
		response.Result = &billingv1.HoldResponse_Held{Held: &billingv1.Held{
			AmountMicro: int64(decision.Hold.Amount), Currency: decision.Hold.Currency,
			MaxCallSeconds: decision.Hold.MaxCallSeconds,
		}}
	}
	return connect.NewResponse(response), nil
}

func orderOf(request *billingv1.HoldRequest) (order holds.Order, err error) {
	if order.WorkspaceID, err = uuid.Parse(request.WorkspaceId); err != nil {
		return order, fmt.Errorf("workspace_id: %w", err)
	}
	if request.MaxCallSeconds < 1 || request.MaxCallSeconds > maxCallSeconds {
		return order, fmt.Errorf("max_call_seconds is %d, want 1 to %d", request.MaxCallSeconds, maxCallSeconds)
	}
	order.MaxCallSeconds = request.MaxCallSeconds
	if request.Inbound != nil {
		return inboundOrder(order, request.Inbound)
	}
	if order.RequestID, err = uuid.Parse(request.CallRequestId); err != nil {
		return order, fmt.Errorf("call_request_id: %w", err)
	}
	to, ok := phone.Parse(request.ToE164)
	if !ok {
		return order, errors.New("to_e164 is no E.164 number")
	}
	order.To = string(to)
	return order, nil
}

func inboundOrder(order holds.Order, call *billingv1.InboundHold) (holds.Order, error) {
	callID, err := uuid.Parse(call.CallId)
	if err != nil {
		return order, fmt.Errorf("inbound.call_id: %w", err)
	}
	rate := holds.Rate{PerMinute: money.Micro(call.PerMinuteMicro), IncrementSeconds: call.IncrementSeconds}
	if rate.PerMinute < 0 || rate.PerMinute > holds.MaxPerMinute {
		return order, fmt.Errorf("inbound.per_minute_micro is %d, want 0 to %d", call.PerMinuteMicro,
			int64(holds.MaxPerMinute))
	}
	if rate.IncrementSeconds < 1 || rate.IncrementSeconds > holds.MaxIncrementSeconds {
		return order, fmt.Errorf("inbound.increment_seconds is %d, want 1 to %d", call.IncrementSeconds,
			holds.MaxIncrementSeconds)
	}
	order.RequestID, order.Inbound = callID, &rate
	return order, nil
}

// holdError converts an error of a hold to an RPC error. It also logs an internal error, because no
// caller of holdError logs it.
func holdError(ctx context.Context, order holds.Order, err error) error {
	switch {
	case errors.Is(err, store.ErrNoWallet):
		return connect.NewError(connect.CodeNotFound, store.ErrNoWallet)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), pg.IsDown(err):
		return connect.NewError(connect.CodeUnavailable, errors.New("the wallet cannot be reached"))
	}
	slog.ErrorContext(ctx, "credit hold failed", "call_request_id", order.RequestID, "error", err)
	return connect.NewError(connect.CodeInternal, errors.New("the hold could not be made"))
}
