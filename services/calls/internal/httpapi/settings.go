package httpapi

import (
	"context"

	"connectrpc.com/connect"

	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/calls/internal/store"
)

// ApplySetting stores a workspace that the gateway has committed. After the response, the next POST
// /v1/calls on every replica uses the new destinations of the workspace.
func (a *API) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	w, err := store.WorkspaceOf(req.Msg.GetWorkspace())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := a.store.ApplyWorkspace(ctx, w); err != nil {
		return nil, settings.ResponseError(ctx, err)
	}
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}
