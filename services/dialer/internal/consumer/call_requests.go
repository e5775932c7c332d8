package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// The dialer is woken for a new request that is due within wakeAhead. It finds later requests
// itself, because it searches the queue every second.
const wakeAhead = 2 * time.Second

type callRequest struct {
	// id is uuid.Nil for an overdue inbound call. For an event `inbound_unconfirmed`, id is the id of
	// the call.
	id, workspaceID uuid.UUID
	event           *eventv1.CallRequestEvent
	// order is the call request of an event `requested`. It is nil for other events.
	order *dialqueue.Request
	// overdueCall is the call of an event `call_overdue`. For other events, overdueCall is nil.
	overdueCall *callstate.Call
}

// onCallRequests applies a batch of events. It queues consecutive events `requested` with one call
// of Enqueue.
func (c *Consumer) onCallRequests(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	events := make([]callRequest, len(batch))
	for i, rec := range batch {
		events[i], err = readCallRequest(rec.Context(ctx), rec.Record)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
	}
	var onCommit commitActions
	for i := 0; i < len(events); i++ {
		if orders := leadingOrders(events[i:]); len(orders) > 0 {
			added, err := c.store.Enqueue(ctx, tx, orders...)
			if err != nil {
				return outcome, err
			}
			for j, order := range orders {
				if !added[j] {
					outcome.Results[i+j] = inbox.Skip(errKnown)
				}
				onCommit.wakeDialer = onCommit.wakeDialer || time.Until(order.DueAt) <= wakeAhead
			}
			i += len(orders) - 1
			continue
		}
		err := c.applyOther(batch[i].Context(ctx), tx, events[i], &onCommit)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil {
			return outcome, err
		}
	}
	outcome.OnCommit = func() { c.runCommitActions(onCommit) }
	return outcome, nil
}

var errKnown = errors.New("the call request is known")

type commitActions struct {
	// wakeDialer is true if the dialer must be woken, because a request is due soon. wakeRelay is true
	// if the relay must be woken, because the outbox has new events.
	wakeDialer, wakeRelay bool
	// overdue contains one value for each overdue request or call in the batch.
	overdue []dialqueue.Found
}

func (c *Consumer) runCommitActions(actions commitActions) {
	if actions.wakeDialer {
		c.wakes.Dialing()
	}
	if actions.wakeRelay {
		c.wakes.Relay()
	}
	for _, found := range actions.overdue {
		c.overdue.WithLabelValues(string(found)).Inc()
	}
}

// leadingOrders returns the call requests of the events `requested` at the start of the list. It
// stops at the first event that is overdue or has another type.
func leadingOrders(events []callRequest) (orders []dialqueue.Request) {
	for _, event := range events {
		if requested := event.event.GetRequested(); requested == nil || requested.GetOverdue() ||
			requested.GetEndOnly() {
			break
		}
		orders = append(orders, *event.order)
	}
	return orders
}

// applyOther applies an event that leadingOrders does not return.
func (c *Consumer) applyOther(ctx context.Context, tx pgx.Tx, event callRequest, onCommit *commitActions) error {
	switch e := event.event.GetEvent().(type) {
	case *eventv1.CallRequestEvent_Requested:
		return c.applyOverdue(ctx, tx, event, onCommit)
	case *eventv1.CallRequestEvent_Canceled:
		onCommit.wakeRelay = true
		_, err := c.store.Withdraw(ctx, tx, event.id, event.workspaceID)
		return err
	case *eventv1.CallRequestEvent_Abandoned:
		return kafka.Skipf("call request %s was never accepted", event.id)
	case *eventv1.CallRequestEvent_Erased:
		of, err := newErasure(e.Erased.GetErasureId(), event.event.GetWorkspaceId())
		if err != nil {
			return err
		}
		onCommit.wakeRelay = true
		return c.store.EraseRequest(ctx, tx, event.id, of)
	case *eventv1.CallRequestEvent_CallOverdue:
		return c.endOverdueCall(ctx, tx, event, onCommit)
	case *eventv1.CallRequestEvent_InboundUnconfirmed:
		reported, err := c.store.ReportInbound(ctx, tx, event.workspaceID, event.id)
		onCommit.wakeRelay = onCommit.wakeRelay || reported
		if err == nil && !reported {
			return kafka.Skipf("inbound call %s is live or its row is not restored yet", event.id)
		}
		return err
	}
	return kafka.Parkf("call request event %T is newer than this build", event.event.GetEvent())
}

// applyOverdue applies an overdue order: an event `requested` that the service `calls` publishes
// again, because the request has not ended in time.
func (c *Consumer) applyOverdue(ctx context.Context, tx pgx.Tx, event callRequest, onCommit *commitActions) error {
	endOnly := event.event.GetRequested().GetEndOnly()
	found, err := c.store.EnqueueOverdue(ctx, tx, *event.order, event.event.GetOccurredAt().AsTime(), endOnly)
	if err != nil {
		return err
	}
	onCommit.overdue = append(onCommit.overdue, found)
	onCommit.wakeDialer = onCommit.wakeDialer || found == dialqueue.Lost
	onCommit.wakeRelay = onCommit.wakeRelay || found == dialqueue.Over
	if found != dialqueue.Waiting {
		slog.WarnContext(ctx, "overdue call request had ended or was missing", "call_request_id", event.id, "state", found)
	}
	if found != dialqueue.Lost {
		return kafka.Skipf("call request %s is known", event.id)
	}
	return nil
}

// endOverdueCall publishes the end of a call whose end the service `calls` has not received.
func (c *Consumer) endOverdueCall(ctx context.Context, tx pgx.Tx, event callRequest, onCommit *commitActions) error {
	found, err := c.store.EndOverdueCall(ctx, tx, *event.overdueCall, event.event.GetOccurredAt().AsTime())
	if err != nil {
		return err
	}
	onCommit.overdue = append(onCommit.overdue, found)
	if found == dialqueue.Waiting {
		return kafka.Skipf("call %s is in progress", event.overdueCall.CallID)
	}
	onCommit.wakeRelay = true
	slog.WarnContext(ctx, "overdue call had ended or was missing", "call_id", event.overdueCall.CallID, "state", found)
	return nil
}

// readCallRequest decodes a record. The call order in an event `requested` contains the trace
// context of ctx.
func readCallRequest(ctx context.Context, rec kafka.Record) (r callRequest, err error) {
	r.event = &eventv1.CallRequestEvent{}
	if err := rec.Decode(r.event); err != nil {
		return r, err
	}
	id, overdue := r.event.GetCallRequestId(), r.event.GetCallOverdue()
	if call := r.event.GetInboundUnconfirmed(); call != nil {
		id = call.GetCallId()
	}
	if id != "" || overdue == nil {
		if r.id, err = uuid.Parse(id); err != nil {
			return r, kafka.Parkf("call_request_id or call_id: %v", err)
		}
	}
	if r.workspaceID, err = uuid.Parse(r.event.GetWorkspaceId()); err != nil {
		return r, kafka.Parkf("workspace_id: %v", err)
	}
	if overdue != nil {
		call, err := callstate.FromEvent(overdue.GetCall(), r.id, r.workspaceID)
		if err != nil {
			return r, kafka.Parkf("%w", err)
		}
		r.overdueCall = call
	}
	if requested := r.event.GetRequested(); requested != nil {
		order, err := newRequest(requested)
		if err != nil {
			return r, err
		}
		order.CallRequestID, order.WorkspaceID, order.Traceparent = r.id, r.workspaceID, telemetry.Carrier(ctx)
		r.order = &order
	}
	return r, nil
}

func newRequest(e *eventv1.Requested) (r dialqueue.Request, err error) {
	number, ok := phone.Parse(e.GetToE164())
	if !ok {
		return r, kafka.Parkf("to_e164 is no number")
	}
	agentID, err := uuid.Parse(e.GetAgentId())
	if err != nil {
		return r, kafka.Parkf("agent_id: %v", err)
	}
	if e.GetScheduledFor() == nil || e.GetMaxCallSeconds() <= 0 {
		return r, kafka.Parkf("scheduled_for and max_call_seconds are needed")
	}
	r = dialqueue.Request{
		To: number, AgentID: agentID, ScheduleIfOutsideHours: e.GetScheduleIfOutsideHours(),
		MaxCallSeconds: e.GetMaxCallSeconds(), DueAt: e.GetScheduledFor().AsTime(), ByPerson: e.GetByPerson(),
	}
	if e.GetContactId() != "" {
		contact, err := uuid.Parse(e.GetContactId())
		if err != nil {
			return r, kafka.Parkf("contact_id: %v", err)
		}
		r.ContactID = &contact
	}
	if len(e.GetVariablesJson()) > 0 {
		if !json.Valid(e.GetVariablesJson()) {
			return r, kafka.Parkf("variables_json is no JSON")
		}
		r.Variables = e.GetVariablesJson()
	}
	queuedAt := time.Now()
	if e.GetQueuedAt() != nil {
		queuedAt = e.GetQueuedAt().AsTime()
	}
	r.QueuedAt = &queuedAt
	return r, nil
}
