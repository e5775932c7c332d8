package consumer

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/call"
)

// onDialEvent folds one report of the dialer into its request and its call.
func (c *Consumer) onDialEvent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.DialEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	if ev.GetEvent() == nil {
		return kafka.Parkf("the dial event is newer than this build")
	}
	if ev.GetCallRequestId() != "" {
		if err := c.foldRequest(ctx, tx, &ev); err != nil {
			return err
		}
	}
	if ev.GetCall() == nil {
		return nil
	}
	return c.foldCall(ctx, tx, &ev)
}

// foldRequest moves the request. It locks the row first, as every transaction does that touches request and call.
func (c *Consumer) foldRequest(ctx context.Context, tx pgx.Tx, ev *eventv1.DialEvent) error {
	id, err := uuid.Parse(ev.GetCallRequestId())
	if err != nil {
		return kafka.Parkf("read call request id: %w", err)
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(id.String()))
	req, err := c.store.LockRequest(ctx, tx, id)
	if err != nil {
		return err
	}
	if req == nil {
		if ev.GetCall() == nil {
			return kafka.Skipf("call request %s is not ours", id)
		}
		return nil // the call is kept all the same
	}
	at := ev.GetOccurredAt().AsTime()
	var changed bool
	switch e := ev.GetEvent().(type) {
	case *eventv1.DialEvent_Withdrawn:
		if req.Cancel(at) { // our own commit was lost
			return c.store.SaveCanceled(ctx, tx, req, at)
		}
		return nil
	case *eventv1.DialEvent_Blocked:
		changed = req.Block(call.Ending{Code: e.Blocked.GetErrorCode(), Detail: e.Blocked.GetErrorDetail()}, at)
	case *eventv1.DialEvent_Failed:
		changed = req.Fail(call.Ending{Code: e.Failed.GetErrorCode(), Detail: e.Failed.GetErrorDetail()}, at)
	case *eventv1.DialEvent_Rescheduled:
		changed = req.Move(e.Rescheduled.GetScheduledFor().AsTime())
	case *eventv1.DialEvent_Dialing:
		changed = req.Dial()
	}
	if ev.GetCall() != nil {
		followed, err := follow(req, ev, at)
		if err != nil {
			return err
		}
		changed = changed || followed
	}
	if !changed {
		return nil
	}
	return c.store.SaveRequest(ctx, tx, req)
}

func follow(req *call.Request, ev *eventv1.DialEvent, at time.Time) (bool, error) {
	news, err := call.FromDialer(ev)
	if err != nil {
		return false, kafka.Parkf("%w", err)
	}
	why := call.Ending{Code: ev.GetCall().GetErrorCode(), Detail: ev.GetCall().GetErrorDetail()}
	return req.Follow(&news, why, at), nil
}

// foldCall moves the call, or creates it: intermediate facts may be missing, an inbound call has no request.
func (c *Consumer) foldCall(ctx context.Context, tx pgx.Tx, ev *eventv1.DialEvent) error {
	news, err := call.FromDialer(ev)
	if err != nil {
		return kafka.Parkf("%w", err)
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(news.ID.String()))
	known, err := c.store.LockCall(ctx, tx, news.ID)
	if err != nil {
		return err
	}
	var before call.Status
	var changed bool
	if known != nil {
		if known.WorkspaceID != news.WorkspaceID {
			return kafka.Parkf("call %s belongs to another workspace", news.ID)
		}
		before = known.Status
		changed = known.Take(news)
	} else {
		if known, err = c.begin(ctx, tx, news); err != nil {
			return err
		}
		changed = true
	}
	if analysed := ev.GetAnalysed(); analysed != nil {
		analysis, err := call.AnalysisFrom(analysed)
		if err != nil {
			return kafka.Parkf("read analysis of call %s: %w", news.ID, err)
		}
		added, late := known.Analyse(analysis)
		changed = changed || added
		if late {
			c.late.WithLabelValues("analysis").Inc()
		}
	}
	if !changed {
		return nil
	}
	return c.save(ctx, tx, known, before)
}

// begin makes a call of the dialer's first news, with what its request knows: the reference, and a charge that was faster.
func (c *Consumer) begin(ctx context.Context, tx pgx.Tx, news call.Call) (*call.Call, error) {
	if news.CallRequestID == nil {
		return &news, nil
	}
	req, err := c.store.LockRequest(ctx, tx, *news.CallRequestID)
	if err != nil || req == nil {
		return &news, err
	}
	if req.WorkspaceID != news.WorkspaceID {
		return nil, kafka.Parkf("call request %s belongs to another workspace", req.ID)
	}
	news.ExternalRef = req.ExternalRef
	news.ChargeSettled, news.Credits = req.ChargeSettled, req.Credits
	return &news, nil
}

func (c *Consumer) save(ctx context.Context, tx pgx.Tx, known *call.Call, before call.Status) error {
	now, err := c.store.Now(ctx, tx)
	if err != nil {
		return err
	}
	known.Traceparent = telemetry.Carrier(ctx)
	event := known.Announce(before, now, c.waits)
	return c.store.SaveCall(ctx, tx, known, event, now)
}
