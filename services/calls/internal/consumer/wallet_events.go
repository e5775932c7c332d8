package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

// onWalletEvents stores the charges of requests and handles unconfirmed holds.
func (c *Consumer) onWalletEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	events, ids, wanted := make([]*eventv1.WalletEvent, len(batch)), make([]uuid.UUID,
		len(batch)), store.Wanted{CallsOfRequests: true}
	for i, rec := range batch {
		events[i], ids[i], err = readWalletEvent(rec.Record)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil {
			return outcome, err
		}
		wanted.Partitions = append(wanted.Partitions, rec.Partition)
		if ids[i] != uuid.Nil {
			rec.Span.SetAttributes(telemetry.CallRequestID(ids[i].String()))
			wanted.Requests = append(wanted.Requests, ids[i])
			if workspaceID, err := uuid.Parse(events[i].GetWorkspaceId()); err == nil {
				wanted.Workspaces = append(wanted.Workspaces, workspaceID)
			}
		}
	}
	if slices.ContainsFunc(outcome.Results, inbox.Result.IsParked) {
		return outcome, nil
	}
	f, err := c.lock(ctx, tx, wanted)
	if err != nil {
		return outcome, err
	}
	for i, ev := range events {
		traced := batch[i].Context(ctx)
		var err error
		switch e := ev.GetEvent().(type) {
		case *eventv1.WalletEvent_Captured:
			amount := money.Micro(e.Captured.GetAmountMicro())
			err = c.settleCharge(traced, f, ids[i], &amount)
		case *eventv1.WalletEvent_Released:
			err = c.settleCharge(traced, f, ids[i], nil)
		case *eventv1.WalletEvent_Unconfirmed:
			f.wakeRelay = true
			err = c.confirmHold(traced, tx, ids[i], ev.GetWorkspaceId())
		case *eventv1.WalletEvent_LowBalance:
			err = saveLowBalance(traced, f, ev, e.LowBalance)
		default:
			err = kafka.Parkf("the wallet event is newer than this build")
		}
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
	}
	return c.writeFold(ctx, tx, f, outcome)
}

// readWalletEvent decodes a record. requestID is uuid.Nil if the event belongs to no call request.
func readWalletEvent(rec kafka.Record) (event *eventv1.WalletEvent, requestID uuid.UUID, err error) {
	event = &eventv1.WalletEvent{}
	if err := rec.Decode(event); err != nil {
		return nil, requestID, err
	}
	if event.GetLowBalance() != nil {
		return event, uuid.Nil, nil
	}
	if requestID, err = uuid.Parse(event.GetCallRequestId()); err != nil {
		return nil, requestID, kafka.Parkf("read call request id: %w", err)
	}
	return event, requestID, nil
}

// confirmHold handles a hold that billing-wallet cannot confirm. It publishes the request of the
// hold again. If no such request exists, confirmHold abandons the request id, so that no request
// with this id can be created.
func (c *Consumer) confirmHold(ctx context.Context, tx pgx.Tx, requestID uuid.UUID, workspace string) error {
	workspaceID, err := uuid.Parse(workspace)
	if err != nil {
		return kafka.Parkf("read workspace id: %w", err)
	}
	exists, err := c.store.Unconfirmed(ctx, tx, requestID, workspaceID, time.Now())
	if err == nil && !exists {
		failpoint.Inject("calls: after abandon")
	}
	return err
}

// saveLowBalance publishes wallet.low_balance. billing-wallet has decided that the event is due.
func saveLowBalance(ctx context.Context, f *countedFold, ev *eventv1.WalletEvent, low *eventv1.LowBalance) error {
	id, idErr := uuid.Parse(low.GetEventId())
	workspaceID, workspaceErr := uuid.Parse(ev.GetWorkspaceId())
	if err := errors.Join(idErr, workspaceErr, ev.GetOccurredAt().CheckValid()); err != nil {
		return kafka.Parkf("read low-balance event: %w", err)
	}
	return f.SaveLowBalance(ctx, callstate.LowBalance{
		EventID: id, WorkspaceID: workspaceID, Sequence: low.GetSequence(), At: ev.GetOccurredAt().AsTime(),
		Balance: money.Micro(low.GetBalanceMicro()), Threshold: money.Micro(low.GetThresholdMicro()),
		Currency: low.GetCurrency(),
	})
}

// settleCharge stores the charge in the request, because the charge can arrive before the call. If
// the call is known, it also stores the charge in the call.
func (c *Consumer) settleCharge(ctx context.Context, f *countedFold, requestID uuid.UUID, amount *money.Micro) error {
	req := f.Request(requestID)
	if req == nil {
		// billing-wallet can release the hold of a request that was never created
		return kafka.Skipf("call request %s does not exist in this database", requestID)
	}
	if !req.Settle(amount) {
		return nil
	}
	f.SaveCharge(req)
	known := f.CallOfRequest(requestID)
	if known == nil {
		return nil
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(known.ID.String()))
	changed, late := known.Settle(amount)
	if late {
		f.count(c.late.WithLabelValues("charge"))
	}
	if !changed {
		return nil
	}
	return c.saveCall(ctx, f, known, known.Status)
}
