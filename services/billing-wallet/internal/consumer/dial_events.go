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

// onDialEvents enqueues the ends of calls for settlement. Every event of a call contains the
// current state of the call. So if the event `ended` is lost, the next event of the ended call
// settles the hold. Only a call that has ended can be charged.
func (c *Consumer) onDialEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	var requestEnds, repeated []holds.Outcome
	var recordOf []int // recordOf[i] is the index of the Kafka record of repeated[i]
	for i, rec := range batch {
		requestEnd, repeats, err := readDialEvent(ctx, rec)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
		switch {
		case outcome.Results[i].Reason() != nil: // the record was skipped
		case repeats:
			repeated, recordOf = append(repeated, requestEnd), append(recordOf, i)
		default:
			requestEnds = append(requestEnds, requestEnd)
		}
	}
	settle := len(requestEnds) > 0
	if settle {
		if err := c.store.EnqueueOutcome(ctx, tx, requestEnds...); err != nil {
			return outcome, err
		}
	}
	if len(repeated) > 0 {
		stored, err := c.store.EnqueueIfHeld(ctx, tx, repeated...)
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
		outcome.OnCommit = c.wakeSettler
	}
	return outcome, nil
}

// readDialEvent decodes a record. repeats is true if the event was published after the event
// `ended` of its call. In that case the hold is almost always settled already.
func readDialEvent(ctx context.Context, rec inbox.Record) (requestEnd holds.Outcome, repeats bool, err error) {
	var event eventv1.DialEvent
	if err := rec.Decode(&event); err != nil {
		return requestEnd, false, err
	}
	if event.CallRequestId == "" {
		return requestEnd, false, kafka.Skipf("an inbound call is not charged")
	}
	if requestEnd, err = newOutcome(rec.Context(ctx), event.CallRequestId, event.WorkspaceId); err != nil {
		return requestEnd, false, err
	}
	switch event.Event.(type) {
	case *eventv1.DialEvent_Ended:
		requestEnd, err = endedOutcome(requestEnd, event.Call)
	case *eventv1.DialEvent_Withdrawn:
		requestEnd.Reason = holds.Withdrawn
	case *eventv1.DialEvent_Blocked:
		requestEnd.Reason = holds.Blocked
	case *eventv1.DialEvent_Failed:
		requestEnd.Reason = holds.Failed
	case *eventv1.DialEvent_Rescheduled, *eventv1.DialEvent_Dialing, *eventv1.DialEvent_Ringing,
		*eventv1.DialEvent_Answered, *eventv1.DialEvent_Analysed, *eventv1.DialEvent_Recorded, *eventv1.DialEvent_Erased:
		if event.Call.GetEndedAt() == nil {
			return requestEnd, false, kafka.Skipf("%T of a call that has not ended", event.Event)
		}
		requestEnd, err = endedOutcome(requestEnd, event.Call)
		return requestEnd, true, err
	default:
		err = kafka.Parkf("dial event %T is newer than this build", event.Event)
	}
	return requestEnd, false, err
}

func endedOutcome(requestEnd holds.Outcome, call *eventv1.Call) (holds.Outcome, error) {
	if call == nil {
		return requestEnd, kafka.Parkf("ended carries no call")
	}
	if call.BillableSeconds < 0 {
		return requestEnd, kafka.Parkf("billable_seconds is %d", call.BillableSeconds)
	}
	callID, err := uuid.Parse(call.CallId)
	if err != nil {
		return requestEnd, kafka.Parkf("call_id %q is no UUID", call.CallId)
	}
	requestEnd.Reason, requestEnd.BillableSeconds, requestEnd.CallID = holds.Ended, call.BillableSeconds, &callID
	return requestEnd, nil
}
