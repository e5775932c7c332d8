package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/services/dialer/internal/store"
)

// RequestHangup marks a live call to be hung up. The service `calls` calls it.
func (a *API) RequestHangup(
	ctx context.Context, req *connect.Request[dialerv1.RequestHangupRequest],
) (*connect.Response[dialerv1.RequestHangupResponse], error) {
	id, err := uuid.Parse(req.Msg.GetCallId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("call_id: %w", err))
	}
	workspaceID, err := uuid.Parse(req.Msg.GetWorkspaceId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("workspace_id: %w", err))
	}
	telemetry.Annotate(ctx, "call_id", id.String())
	live, err := a.store.RequestHangup(ctx, workspaceID, id, req.Msg.GetOperator())
	if err != nil {
		slog.WarnContext(ctx, "hang-up of a call not stored", "call_id", id, "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("hang up call %s: not now", id))
	}
	failpoint.Inject("dialer: after hangup request")
	a.hangUp()
	return connect.NewResponse(&dialerv1.RequestHangupResponse{Live: live}), nil
}

// hangUpWorkspace handles POST /admin/v1/workspaces/{id}/hangup. It responds 202 with the number of
// live calls. They are hung up after the response.
func (a *API) hangUpWorkspace(w http.ResponseWriter, r *http.Request) error {
	caller := serviceauth.CallerFrom(r.Context())
	calls, err := a.store.RequestHangups(r.Context(), caller.WorkspaceID, caller.Operator)
	if errors.Is(err, store.ErrServerChanged) {
		return apierr.Unavailable("The dialer")
	}
	if err != nil {
		return err
	}
	failpoint.Inject("dialer: after hangup request")
	a.hangUp()
	return httpserver.WriteJSON(w, http.StatusAccepted, struct {
		Calls int64 `json:"calls"`
	}{calls})
}
