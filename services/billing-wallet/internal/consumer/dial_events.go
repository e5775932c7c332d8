package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/hold"
)

// onDialEvent stores the end of a request as a verdict. Every event carries the call so far, so each
// event whose call has ended is a verdict: if ended is lost, the next event of the call settles the
// hold. Only a call that has ended can be charged.
func (c *Consumer) onDialEvent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var fact eventv1.DialEvent
	if err := rec.Decode(&fact); err != nil {
		return err
	}
	if fact.CallRequestId == "" {
		return kafka.Skipf("an inbound call is not charged")
	}
	requestID, workspaceID, err := ids(fact.CallRequestId, fact.WorkspaceId)
	if err != nil {
		return err
	}
	verdict := hold.Verdict{RequestID: requestID, WorkspaceID: workspaceID}
	switch fact.Event.(type) {
	case *eventv1.DialEvent_Ended:
		if verdict, err = ended(verdict, fact.Call); err != nil {
			return err
		}
	case *eventv1.DialEvent_Withdrawn:
		verdict.Reason = hold.Withdrawn
	case *eventv1.DialEvent_Blocked:
		verdict.Reason = hold.Blocked
	case *eventv1.DialEvent_Failed:
		verdict.Reason = hold.Failed
	case *eventv1.DialEvent_Rescheduled, *eventv1.DialEvent_Dialing, *eventv1.DialEvent_Ringing,
		*eventv1.DialEvent_Answered, *eventv1.DialEvent_Analysed, *eventv1.DialEvent_Recorded, *eventv1.DialEvent_Erased:
		if fact.Call.GetEndedAt() == nil {
			return kafka.Skipf("%T of a call that has not ended", fact.Event)
		}
		if verdict, err = ended(verdict, fact.Call); err != nil {
			return err
		}
		inbox.Quiet(tx) // ended has almost always settled the hold
		return c.noteIfHeld(ctx, tx, verdict)
	default:
		return kafka.Parkf("dial event %T is newer than this build", fact.Event)
	}
	return c.note(ctx, tx, verdict)
}

func ended(verdict hold.Verdict, call *eventv1.Call) (hold.Verdict, error) {
	if call == nil {
		return verdict, kafka.Parkf("ended carries no call")
	}
	if call.BillableSeconds < 0 {
		return verdict, kafka.Parkf("billable_seconds is %d", call.BillableSeconds)
	}
	callID, err := uuid.Parse(call.CallId)
	if err != nil {
		return verdict, kafka.Parkf("call_id %q is no UUID", call.CallId)
	}
	verdict.Reason, verdict.BillableSeconds, verdict.CallID = hold.Ended, call.BillableSeconds, &callID
	return verdict, nil
}
