// Package consumer applies events of other services. It notes verdicts and confirmations of call
// requests in the transaction of the record's inbox row, for the settling package, and opens the
// wallets of workspaces.
package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/billing-wallet/internal/hold"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// Consumer maps topics to functions.
type Consumer struct{ store *store.Store }

// New makes a consumer over the store.
func New(st *store.Store) *Consumer { return &Consumer{store: st} }

// Handlers are the topics that billing-wallet reads.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequest,
		kafka.DialEvents.Name:   c.onDialEvent,
		kafka.Workspaces.Name:   c.onWorkspace,
	}
}

func (c *Consumer) note(ctx context.Context, tx pgx.Tx, v hold.Verdict) error {
	v.Traceparent = telemetry.Carrier(ctx)
	return c.store.Note(ctx, tx, v)
}

func (c *Consumer) noteIfHeld(ctx context.Context, tx pgx.Tx, v hold.Verdict) error {
	v.Traceparent = telemetry.Carrier(ctx)
	return c.store.NoteIfHeld(ctx, tx, v, kafka.Skipf("hold of %s is settled or unknown", v.RequestID))
}

// ids reads the two ids that every fact about a request carries.
func ids(request, workspace string) (requestID, workspaceID uuid.UUID, err error) {
	if requestID, err = uuid.Parse(request); err != nil {
		return requestID, workspaceID, kafka.Parkf("call_request_id %q is no UUID", request)
	}
	if workspaceID, err = uuid.Parse(workspace); err != nil {
		return requestID, workspaceID, kafka.Parkf("workspace_id %q is no UUID", workspace)
	}
	return requestID, workspaceID, nil
}
