// Package consumer applies events of other services. Each batch of events is applied in one
// transaction, which libs/inbox begins. The package enqueues the ends of call requests for package
// settlement, confirms holds, and creates the wallets of workspaces.
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

type Consumer struct {
	store       *store.Store
	wakeSettler func()
}

// New returns a consumer. It calls wakeSettler after each commit that stored ends of requests.
// wakeSettler must not block.
func New(st *store.Store, wakeSettler func()) *Consumer {
	return &Consumer{store: st, wakeSettler: wakeSettler}
}

// Handlers returns the handler of each topic.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequests,
		kafka.DialEvents.Name:   c.onDialEvents,
		kafka.Workspaces.Name:   inbox.Each(c.onWorkspace, nil),
	}
}

// newOutcome returns an outcome with the ids and the trace context of ctx. Its Reason is empty.
// request is the id of the call request or of the inbound call.
func newOutcome(ctx context.Context, request, workspace string) (requestEnd holds.Outcome, err error) {
	if requestEnd.RequestID, err = uuid.Parse(request); err != nil {
		return requestEnd, kafka.Parkf("call_request_id or call_id %q is no UUID", request)
	}
	if requestEnd.WorkspaceID, err = uuid.Parse(workspace); err != nil {
		return requestEnd, kafka.Parkf("workspace_id %q is no UUID", workspace)
	}
	requestEnd.Traceparent = telemetry.Carrier(ctx)
	return requestEnd, nil
}
