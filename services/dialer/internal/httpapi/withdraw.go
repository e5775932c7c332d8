package httpapi

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/questionv1"
)

// Withdraw answers question 4. Withdraw and fence are guarded updates of one row: whoever commits first has it.
func (a *API) Withdraw(ctx context.Context, req *connect.Request[questionv1.WithdrawRequest]) (*connect.Response[questionv1.WithdrawResponse], error) {
	id, err := uuid.Parse(req.Msg.GetCallRequestId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("call_request_id: %w", err))
	}
	workspaceID, err := uuid.Parse(req.Msg.GetWorkspaceId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("workspace_id: %w", err))
	}
	telemetry.Annotate(ctx, "call_request_id", id.String())
	var withdrawn bool
	err = pg.InTx(ctx, a.pool, func(tx pgx.Tx) error {
		var err error
		withdrawn, err = a.store.Withdraw(ctx, tx, id, workspaceID)
		crash.Point("dialer: in withdraw, before commit")
		return err
	})
	if err != nil {
		slog.WarnContext(ctx, "withdraw could not be answered", "call_request_id", id, "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("withdraw request %s: not now", id))
	}
	crash.Point("dialer: in withdraw, after commit")
	a.relay.Wake()
	return connect.NewResponse(&questionv1.WithdrawResponse{Withdrawn: withdrawn}), nil
}
