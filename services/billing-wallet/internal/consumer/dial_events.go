package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

// onDialEvents stores the ends of requests as verdicts. Every event carries the call so far, so each event
// whose call has ended is a verdict: if ended is lost, the next event of the call settles the hold. Only a
// call that has ended can be charged.
func (c *Consumer) onDialEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	var verdicts, repeated []holds.Outcome
	var recordOf []int // the index of each repeated verdict's record
	for i, rec := range batch {
		verdict, repeats, err := readDialEvent(ctx, rec)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
		switch {
		case outcome.Results[i].Reason() != nil: // skipped
		case repeats:
			repeated, recordOf = append(repeated, verdict), append(recordOf, i)
		default:
			verdicts = append(verdicts, verdict)
		}
	}
	settle := len(verdicts) > 0
	if settle {
		if err := c.store.EnqueueOutcome(ctx, tx, verdicts...); err != nil {
			return outcome, err
		}
	}
	if len(repeated) > 0 {
		stored, err := c.store.NoteIfHeld(ctx, tx, repeated...)
		if err != nil {
			return outcome, err
		}
		for i := range repeated {
			settle = settle || stored[i]
			if !stored[i] {
				outcome.Results[recordOf[i]] = inbox.Skip(errNotHeld)
			}
		}
	}
	if settle {
		outcome.OnCommit = c.settle
	}
	return outcome, nil
}

// readDialEvent returns the verdict of an event. repeats is true for an event that follows the end of its
// call, which has almost always settled the hold.
func readDialEvent(ctx context.Context, rec inbox.Record) (verdict holds.Outcome, repeats bool, err error) {
	var event eventv1.DialEvent
	if err := rec.Decode(&event); err != nil {
		return verdict, false, err
	}
	if event.CallRequestId == "" {
		return verdict, false, kafka.Skipf("an inbound call is not charged")
	}
	if verdict, err = verdictOn(rec.Context(ctx), event.CallRequestId, event.WorkspaceId); err != nil {
		return verdict, false, err
	}
	switch event.Event.(type) {
	case *eventv1.DialEvent_Ended:
		verdict, err = ended(verdict, event.Call)
	case *eventv1.DialEvent_Withdrawn:
		verdict.Reason = holds.Withdrawn
	case *eventv1.DialEvent_Blocked:
		verdict.Reason = holds.Blocked
	case *eventv1.DialEvent_Failed:
		verdict.Reason = holds.Failed
	case *eventv1.DialEvent_Rescheduled, *eventv1.DialEvent_Dialing, *eventv1.DialEvent_Ringing,
		*eventv1.DialEvent_Answered, *eventv1.DialEvent_Analysed, *eventv1.DialEvent_Recorded, *eventv1.DialEvent_Erased:
		if event.Call.GetEndedAt() == nil {
			return verdict, false, kafka.Skipf("%T of a call that has not ended", event.Event)
		}
		verdict, err = ended(verdict, event.Call)
		return verdict, true, err
	default:
		err = kafka.Parkf("dial event %T is newer than this build", event.Event)
	}
	return verdict, false, err
}

func ended(verdict holds.Outcome, call *eventv1.Call) (holds.Outcome, error) {
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
	verdict.Reason, verdict.BillableSeconds, verdict.CallID = holds.Ended, call.BillableSeconds, &callID
	return verdict, nil
}
