package httpapi

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/dialerv1"
)

// Withdraw removes a request from the queue. The service `calls` calls it. The withdrawal and the
// commit of a fence change the same row under a condition, so only one of them succeeds.
func (a *API) Withdraw(
	ctx context.Context,
	req *connect.Request[dialerv1.WithdrawRequest],
) (*connect.Response[dialerv1.WithdrawResponse], error) {
	id, err := uuid.Parse(req.Msg.GetCallRequestId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("call_request_id: %w", err))
	}
	workspaceID, err := uuid.Parse(req.Msg.GetWorkspaceId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("workspace_id: %w", err))
	}
	telemetry.Annotate(ctx, "call_request_id", id.String())
	withdrawn, err := a.store.WithdrawNow(ctx, id, workspaceID)
	if err != nil {
		slog.WarnContext(ctx, "call request not withdrawn from the dial queue", "call_request_id", id, "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("withdraw request %s: not now", id))
	}
	failpoint.Inject("dialer: in withdraw, after commit")
	a.relay.Wake()
	return connect.NewResponse(&dialerv1.WithdrawResponse{Withdrawn: withdrawn}), nil
}
