package httpapi

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// ApplySetting stores a workspace or an agent. The gateway calls it after it has committed a
// workspace, and the service `calls` after it has committed an agent. After the response, every
// dial-time check on every replica uses the new setting.
func (a *API) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	var store func() error
	switch setting := req.Msg.GetSetting().(type) {
	case *settingsv1.ApplySettingRequest_Workspace:
		workspace, err := dialqueue.WorkspaceOf(setting.Workspace)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		store = func() error { return a.store.ApplyWorkspace(ctx, workspace) }
	case *settingsv1.ApplySettingRequest_Agent:
		agent, err := dialqueue.AgentOf(setting.Agent)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		store = func() error { return a.store.ApplyAgent(ctx, agent) }
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the setting is newer than this build"))
	}
	if err := store(); err != nil {
		return nil, settings.ResponseError(ctx, err)
	}
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}
