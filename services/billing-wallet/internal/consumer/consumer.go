// Package consumer applies events of other services. It stores verdicts on holds and confirmations of call
// requests in the transaction of the record, for package settling, and opens the wallets of workspaces.
package consumer

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
)

var (
	errNothingToConfirm = errors.New("the hold is confirmed, settled or unknown")
	errNotHeld          = errors.New("the hold is settled or unknown")
)

// Consumer applies events to the store.
type Consumer struct {
	store  *store.Store
	settle func()
}

// New returns a consumer. settle is called after verdicts were stored; it must not block.
func New(st *store.Store, settle func()) *Consumer { return &Consumer{store: st, settle: settle} }

// Handlers maps each topic to its handler.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequests,
		kafka.DialEvents.Name:   c.onDialEvents,
		kafka.Workspaces.Name:   inbox.Each(c.onWorkspace, nil),
	}
}

// verdictOn returns a verdict on the hold of a request, without a reason. It stores the trace of ctx.
func verdictOn(ctx context.Context, request, workspace string) (v holds.Outcome, err error) {
	if v.RequestID, err = uuid.Parse(request); err != nil {
		return v, kafka.Parkf("call_request_id %q is no UUID", request)
	}
	if v.WorkspaceID, err = uuid.Parse(workspace); err != nil {
		return v, kafka.Parkf("workspace_id %q is no UUID", workspace)
	}
	v.Traceparent = telemetry.Carrier(ctx)
	return v, nil
}
