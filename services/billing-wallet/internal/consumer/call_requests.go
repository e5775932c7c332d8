package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// onCallRequests applies events of call requests. The event `requested` confirms the hold of the
// request. If a request was canceled or abandoned, onCallRequests enqueues its end for settlement.
func (c *Consumer) onCallRequests(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	var requests []store.Request
	var requestEnds []holds.Outcome
	var recordOf []int // the index of the Kafka record of each request
	for i, rec := range batch {
		requestEnd, err := readCallRequest(ctx, rec)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
		switch {
		case outcome.Results[i].Reason() != nil: // the record was skipped
		case requestEnd.Reason == "":
			requests = append(requests, store.Request{WorkspaceID: requestEnd.WorkspaceID, RequestID: requestEnd.RequestID})
			recordOf = append(recordOf, i)
		default:
			requestEnds = append(requestEnds, requestEnd)
		}
	}
	if len(requests) > 0 {
		confirmed, err := c.store.Confirm(ctx, tx, requests...)
		if err != nil {
			return outcome, err
		}
		for i := range requests {
			if !confirmed[i] {
				outcome.Results[recordOf[i]] = inbox.Skip(errNothingToConfirm)
			}
		}
	}
	if len(requestEnds) > 0 {
		outcome.OnCommit = c.wakeSettler
		err = c.store.EnqueueOutcome(ctx, tx, requestEnds...)
	}
	return outcome, err
}

// readCallRequest decodes a record. For the event `requested`, requestEnd.Reason is empty: the
// request exists, and its hold must be confirmed. For other events, requestEnd is the end of the
// request.
func readCallRequest(ctx context.Context, rec inbox.Record) (requestEnd holds.Outcome, err error) {
	var event eventv1.CallRequestEvent
	if err := rec.Decode(&event); err != nil {
		return requestEnd, err
	}
	if event.GetCallOverdue() != nil || event.GetInboundUnconfirmed() != nil {
		return requestEnd, kafka.Skipf("only the dialer uses this event")
	}
	if requestEnd, err = newOutcome(rec.Context(ctx), event.CallRequestId, event.WorkspaceId); err != nil {
		return requestEnd, err
	}
	switch event.Event.(type) {
	case *eventv1.CallRequestEvent_Requested:
	case *eventv1.CallRequestEvent_Canceled:
		requestEnd.Reason = holds.Canceled
	case *eventv1.CallRequestEvent_Abandoned:
		requestEnd.Reason = holds.Abandoned
	case *eventv1.CallRequestEvent_Erased:
		return requestEnd, kafka.Skipf("no person's data is kept with a hold")
	default:
		return requestEnd, kafka.Parkf("call request event %T is newer than this build", event.Event)
	}
	return requestEnd, nil
}
