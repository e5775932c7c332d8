package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/hold"
)

// onCallRequest confirms the hold of a request that exists, and notes the end of one that does not go on.
func (c *Consumer) onCallRequest(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var fact eventv1.CallRequestEvent
	if err := rec.Decode(&fact); err != nil {
		return err
	}
	requestID, workspaceID, err := ids(fact.CallRequestId, fact.WorkspaceId)
	if err != nil {
		return err
	}
	verdict := hold.Verdict{RequestID: requestID, WorkspaceID: workspaceID}
	switch fact.Event.(type) {
	case *eventv1.CallRequestEvent_Requested:
		inbox.Quiet(tx) // a confirmed hold is nothing to settle
		return c.store.Confirm(ctx, tx, workspaceID, requestID,
			kafka.Skipf("hold of %s is confirmed, settled or unknown", requestID))
	case *eventv1.CallRequestEvent_Canceled:
		verdict.Reason = hold.Canceled
	case *eventv1.CallRequestEvent_Abandoned:
		verdict.Reason = hold.Abandoned
	case *eventv1.CallRequestEvent_Erased:
		return kafka.Skipf("no person's data is kept with a hold")
	default:
		return kafka.Parkf("call request event %T is newer than this build", fact.Event)
	}
	return c.note(ctx, tx, verdict)
}
