package httpapi

import (
	"context"

	"connectrpc.com/connect"

	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// ApplySetting stores the settings of a workspace that the gateway has committed. After the
// response, every claim on every replica uses these settings.
func (a *API) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	workspace, err := store.WorkspaceOf(req.Msg.GetWorkspace())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := a.store.ApplyWorkspace(ctx, workspace); err != nil {
		return nil, settings.ResponseError(ctx, err)
	}
	a.wakeDispatcher()
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}
