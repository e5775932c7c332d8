package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/settings"
	"ringfence.dev/proto/settingsv1"
)

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// ApplySetting creates the wallet of a workspace. The gateway calls it after the commit of the
// workspace in its own database. billing-wallet reads only the currency from the workspace, and the
// currency never changes.
func (a *API) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	id, err := uuid.Parse(req.Msg.GetWorkspace().GetWorkspaceId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("workspace_id: %w", err))
	}
	event := req.Msg.GetWorkspace()
	currency := cmp.Or(event.GetWorkspace(), event.GetTestWorkspace()).GetCurrency()
	if !currencyCode.MatchString(currency) {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("currency is not an ISO 4217 code"))
	}
	if err := a.store.ApplyCurrency(ctx, id, currency); err != nil {
		return nil, settings.ResponseError(ctx, err)
	}
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}
