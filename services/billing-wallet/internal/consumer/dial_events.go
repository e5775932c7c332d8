package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// effect is what a dial event does to its hold.
type effect int

const (
	// settles means that the event is the end of its request or call.
	settles effect = iota
	// settlesIfHeld means that the event settles the hold only if the hold is still open.
	settlesIfHeld
	// confirms means that the inbound call of the hold exists and has not ended.
	confirms
)

// dialEffects contains the effects of a batch of events.
type dialEffects struct {
	ends, repeated                    []holds.Outcome
	confirmed                         []store.Request
	repeatedRecords, confirmedRecords []int // indexes of the Kafka records in the batch
}

func (d *dialEffects) add(record int, kind effect, requestEnd holds.Outcome) {
	switch kind {
	case confirms:
		d.confirmed = append(d.confirmed, store.Request{
			WorkspaceID: requestEnd.WorkspaceID, RequestID: requestEnd.RequestID, Inbound: true,
		})
		d.confirmedRecords = append(d.confirmedRecords, record)
	case settlesIfHeld:
		d.repeated, d.repeatedRecords = append(d.repeated, requestEnd), append(d.repeatedRecords, record)
	case settles:
		d.ends = append(d.ends, requestEnd)
	}
}

// Every event of a call contains the current state of the call. So if the event `ended` is lost,
// the next event of the ended call settles the hold. Only a call that has ended can be charged.
func (c *Consumer) onDialEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	var effects dialEffects
	for i, rec := range batch {
		requestEnd, kind, err := readDialEvent(ctx, rec)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
		if outcome.Results[i].Reason() == nil { // the record was not skipped
			effects.add(i, kind, requestEnd)
		}
	}
	settle, err := c.applyDialEffects(ctx, tx, effects, outcome.Results)
	if settle && err == nil {
		outcome.OnCommit = c.wakeSettler
	}
	return outcome, err
}

// applyDialEffects returns true if it stored an outcome. If a record changed nothing,
// applyDialEffects sets the result of the record to a skip.
func (c *Consumer) applyDialEffects(
	ctx context.Context, tx pgx.Tx, effects dialEffects, results []inbox.Result,
) (settle bool, err error) {
	if settle = len(effects.ends) > 0; settle {
		if err := c.store.EnqueueOutcome(ctx, tx, effects.ends...); err != nil {
			return settle, err
		}
	}
	if len(effects.repeated) > 0 {
		stored, err := c.store.EnqueueIfHeld(ctx, tx, effects.repeated...)
		if err != nil {
			return settle, err
		}
		for i, record := range effects.repeatedRecords {
			settle = settle || stored[i]
			if !stored[i] {
				results[record] = inbox.Skip(errNotHeld)
			}
		}
	}
	if len(effects.confirmed) > 0 {
		confirmed, err := c.store.Confirm(ctx, tx, effects.confirmed...)
		if err != nil {
			return settle, err
		}
		for i, record := range effects.confirmedRecords {
			if !confirmed[i] {
				results[record] = inbox.Skip(errNothingToConfirm)
			}
		}
	}
	return settle, nil
}

func readDialEvent(ctx context.Context, rec inbox.Record) (requestEnd holds.Outcome, kind effect, err error) {
	var event eventv1.DialEvent
	if err := rec.Decode(&event); err != nil {
		return requestEnd, settles, err
	}
	if event.CallRequestId == "" {
		return readInboundEvent(rec.Context(ctx), &event)
	}
	if requestEnd, err = newOutcome(rec.Context(ctx), event.CallRequestId, event.WorkspaceId); err != nil {
		return requestEnd, settles, err
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
			return requestEnd, settles, kafka.Skipf("%T of a call that has not ended", event.Event)
		}
		requestEnd, err = endedOutcome(requestEnd, event.Call)
		return requestEnd, settlesIfHeld, err
	default:
		err = kafka.Parkf("dial event %T is newer than this build", event.Event)
	}
	return requestEnd, settles, err
}

// readInboundEvent reads an event of an inbound call. The id of the call identifies its hold. Only
// a call with a price can have a hold, and a call without talk time often has none, because it was
// refused.
func readInboundEvent(
	ctx context.Context, event *eventv1.DialEvent,
) (callEnd holds.Outcome, kind effect, err error) {
	if unknown := event.GetCallUnknown(); unknown != nil {
		callEnd, err = newOutcome(ctx, unknown.CallId, event.WorkspaceId)
		callEnd.Reason = holds.CallUnknown
		return callEnd, settlesIfHeld, err
	}
	if !event.GetCall().GetPriced() {
		return callEnd, settles, kafka.Skipf("an inbound call without a price is not charged")
	}
	if callEnd, err = newOutcome(ctx, event.Call.CallId, event.WorkspaceId); err != nil {
		return callEnd, settles, err
	}
	if event.Call.GetEndedAt() == nil {
		return callEnd, confirms, nil
	}
	kind = settlesIfHeld
	if event.GetEnded() != nil && event.Call.BillableSeconds > 0 {
		kind = settles
	}
	callEnd, err = endedOutcome(callEnd, event.Call)
	return callEnd, kind, err
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
