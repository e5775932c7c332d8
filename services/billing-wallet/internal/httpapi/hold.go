package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// longestCall bounds max_call_seconds: a day.
const longestCall = 24 * 60 * 60

// Hold answers question 3. A request that has ended is CodeFailedPrecondition: its id holds nothing ever again. A
// workspace without a wallet is CodeNotFound.
func (a *API) Hold(ctx context.Context, asked *connect.Request[billingv1.HoldRequest]) (*connect.Response[billingv1.HoldResponse], error) {
	order, err := orderOf(asked.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(order.RequestID.String()))
	decision, err := a.desk.Hold(ctx, order)
	if err != nil {
		return nil, holdFault(ctx, order, err)
	}
	var insufficient *holds.Insufficient
	answer := &billingv1.HoldResponse{}
	switch {
	case errors.As(decision.Err, &insufficient):
		answer.Result = &billingv1.HoldResponse_Insufficient{Insufficient: &billingv1.Insufficient{Message: insufficient.Error()}}
	case decision.Err != nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition, decision.Err)
	default:
		answer.Result = &billingv1.HoldResponse_Held{Held: &billingv1.Held{
			AmountMicro: int64(decision.Hold.Amount), Currency: decision.Hold.Currency,
			MaxCallSeconds: decision.Hold.MaxCallSeconds,
		}}
	}
	return connect.NewResponse(answer), nil
}

func orderOf(asked *billingv1.HoldRequest) (order holds.Order, err error) {
	if order.RequestID, err = uuid.Parse(asked.CallRequestId); err != nil {
		return order, fmt.Errorf("call_request_id: %w", err)
	}
	if order.WorkspaceID, err = uuid.Parse(asked.WorkspaceId); err != nil {
		return order, fmt.Errorf("workspace_id: %w", err)
	}
	to, ok := phone.Parse(asked.ToE164)
	if !ok {
		return order, errors.New("to_e164 is no E.164 number")
	}
	if asked.MaxCallSeconds < 1 || asked.MaxCallSeconds > longestCall {
		return order, fmt.Errorf("max_call_seconds is %d, want 1 to %d", asked.MaxCallSeconds, longestCall)
	}
	order.To, order.MaxCallSeconds = string(to), asked.MaxCallSeconds
	return order, nil
}

// holdFault is the error as calls sees it; a fault of ours is logged here, since nobody above does.
func holdFault(ctx context.Context, order holds.Order, err error) error {
	switch {
	case errors.Is(err, store.ErrNoWallet):
		return connect.NewError(connect.CodeNotFound, store.ErrNoWallet)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), pg.IsDown(err):
		return connect.NewError(connect.CodeUnavailable, errors.New("the wallet cannot be reached"))
	}
	slog.ErrorContext(ctx, "holding credit", "call_request_id", order.RequestID, "error", err)
	return connect.NewError(connect.CodeInternal, errors.New("the hold could not be made"))
}
