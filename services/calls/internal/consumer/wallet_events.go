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
	"ringfence.dev/libs/outbox"
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
	events, ids := make([]*eventv1.WalletEvent, len(batch)), make([]walletEventID, len(batch))
	wanted := store.Wanted{CallsOfRequests: true}
	for i, rec := range batch {
		events[i], ids[i], err = readWalletEvent(rec.Record)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil {
			return outcome, err
		}
		wanted.Partitions = append(wanted.Partitions, rec.Partition)
		if id := ids[i].request; id != uuid.Nil {
			rec.Span.SetAttributes(telemetry.CallRequestID(id.String()))
			wanted.Requests = append(wanted.Requests, id)
		}
		if id := ids[i].inboundCall; id != uuid.Nil {
			rec.Span.SetAttributes(telemetry.CallID(id.String()))
			wanted.Calls = append(wanted.Calls, id)
		}
		if workspaceID, err := uuid.Parse(events[i].GetWorkspaceId()); err == nil && ids[i] != (walletEventID{}) {
			wanted.Workspaces = append(wanted.Workspaces, workspaceID)
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
		err := c.foldWalletEvent(batch[i].Context(ctx), tx, f, ids[i], ev)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
	}
	return c.writeFold(ctx, tx, f, outcome)
}

func (c *Consumer) foldWalletEvent(
	ctx context.Context, tx pgx.Tx, f *countedFold, id walletEventID, ev *eventv1.WalletEvent,
) error {
	settle := func(amount *money.Micro) error { return c.settleCharge(ctx, f, id.request, amount) }
	if id.inboundCall != uuid.Nil {
		settle = func(amount *money.Micro) error {
			return c.settleInboundCharge(ctx, f, id.inboundCall, ev.GetWorkspaceId(), amount)
		}
	}
	switch e := ev.GetEvent().(type) {
	case *eventv1.WalletEvent_Captured:
		amount := money.Micro(e.Captured.GetAmountMicro())
		return settle(&amount)
	case *eventv1.WalletEvent_Released:
		return settle(nil)
	case *eventv1.WalletEvent_Unconfirmed:
		f.wakeRelay = true
		if id.inboundCall != uuid.Nil {
			return c.forwardUnconfirmed(ctx, tx, id.inboundCall, ev.GetWorkspaceId())
		}
		return c.confirmHold(ctx, tx, id.request, ev.GetWorkspaceId())
	case *eventv1.WalletEvent_LowBalance:
		return saveLowBalance(ctx, f, ev, e.LowBalance)
	}
	return kafka.Parkf("the wallet event is newer than this build")
}

// walletEventID identifies the call request or the inbound call of a wallet event. At most one id
// is set.
type walletEventID struct{ request, inboundCall uuid.UUID }

// readWalletEvent decodes the event. For the event `low_balance` it returns no id.
func readWalletEvent(rec kafka.Record) (event *eventv1.WalletEvent, id walletEventID, err error) {
	event = &eventv1.WalletEvent{}
	if err := rec.Decode(event); err != nil {
		return nil, id, err
	}
	if event.GetLowBalance() != nil {
		return event, id, nil
	}
	if callID := inboundCallID(event); callID != "" {
		if id.inboundCall, err = uuid.Parse(callID); err != nil {
			return nil, id, kafka.Parkf("read call id: %w", err)
		}
		return event, id, nil
	}
	if id.request, err = uuid.Parse(event.GetCallRequestId()); err != nil {
		return nil, id, kafka.Parkf("read call request id: %w", err)
	}
	return event, id, nil
}

// inboundCallID returns the id of the inbound call of the event, or "" if the event belongs to a
// call request.
func inboundCallID(event *eventv1.WalletEvent) string {
	switch e := event.GetEvent().(type) {
	case *eventv1.WalletEvent_Captured:
		if event.GetCallRequestId() == "" {
			return e.Captured.GetCallId()
		}
	case *eventv1.WalletEvent_Released:
		if event.GetCallRequestId() == "" {
			return e.Released.GetCallId()
		}
	case *eventv1.WalletEvent_Unconfirmed:
		return e.Unconfirmed.GetCallId()
	}
	return ""
}

// forwardUnconfirmed publishes inbound_unconfirmed for a hold of an inbound call. The dialer then
// publishes the end of the call again.
func (c *Consumer) forwardUnconfirmed(ctx context.Context, tx pgx.Tx, callID uuid.UUID, workspace string) error {
	workspaceID, err := uuid.Parse(workspace)
	if err != nil {
		return kafka.Parkf("read workspace id: %w", err)
	}
	return outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.CallRequests, Key: callID.String(), WorkspaceID: workspaceID,
		Message: callstate.InboundUnconfirmedEvent(callID, workspaceID, time.Now()),
	})
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
	return c.settleCall(ctx, f, known, amount)
}

// settleInboundCharge stores the charge in the call. If the call is not known yet, the charge is
// stored until the first event of the call arrives.
func (c *Consumer) settleInboundCharge(
	ctx context.Context, f *countedFold, callID uuid.UUID, workspace string, amount *money.Micro,
) error {
	workspaceID, err := uuid.Parse(workspace)
	if err != nil {
		return kafka.Parkf("read workspace id: %w", err)
	}
	known := f.Call(callID)
	switch {
	case known != nil && known.WorkspaceID != workspaceID:
		return kafka.Parkf("call %s belongs to another workspace", callID)
	case known == nil && amount == nil:
		return kafka.Skipf("inbound call %s is not known and was not charged", callID)
	case known == nil:
		f.KeepInboundCharge(callID, workspaceID, *amount)
		return nil
	}
	return c.settleCall(ctx, f, known, amount)
}

func (c *Consumer) settleCall(ctx context.Context, f *countedFold, known *callstate.Call, amount *money.Micro) error {
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
