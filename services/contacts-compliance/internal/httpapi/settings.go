package httpapi

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// ApplySetting stores the calling policy of a workspace. After the response, every check on every
// replica uses the policy.
func (a *API) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	change, err := store.PolicyChangeOf(req.Msg.GetWorkspace())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if change != nil {
		if err := a.store.ApplyPolicy(ctx, *change, a.checks.Packs()); err != nil {
			return nil, settings.ResponseError(ctx, err)
		}
	}
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}

// CheckPolicy validates a calling policy and stores nothing.
func (a *API) CheckPolicy(
	_ context.Context, req *connect.Request[settingsv1.CheckPolicyRequest],
) (*connect.Response[settingsv1.CheckPolicyResponse], error) {
	var fault *apierr.Error
	_, err := gate.ParsePolicy(req.Msg.GetPolicyJson(), a.checks.Packs())
	if errors.As(err, &fault) {
		return connect.NewResponse(&settingsv1.CheckPolicyResponse{Fault: fault.Message}), nil
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&settingsv1.CheckPolicyResponse{}), nil
}
