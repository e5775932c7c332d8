package consumer

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/request"
)

// ahead is how far off a request is that nobody needs to be woken for: dialing looks at the queue every second by itself, and rests no
// longer than until the next request is due.
const ahead = 2 * time.Second

// onCallRequest queues what is requested and withdraws what is canceled. A request that is known by its id is left alone, however often it comes.
func (c *Consumer) onCallRequest(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.CallRequestEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	id, err := uuid.Parse(event.GetCallRequestId())
	if err != nil {
		return kafka.Parkf("call_request_id: %v", err)
	}
	workspaceID, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("workspace_id: %v", err)
	}
	switch e := event.GetEvent().(type) {
	case *eventv1.CallRequestEvent_Requested:
		r, err := ordered(e.Requested)
		if err != nil {
			return err
		}
		r.CallRequestID, r.WorkspaceID, r.Traceparent = id, workspaceID, telemetry.Carrier(ctx)
		if time.Until(r.DueAt) > ahead {
			inbox.Quiet(tx)
		}
		known := kafka.Skipf("call request %s is known", id)
		if e.Requested.GetOverdue() {
			return c.overdueOrder(ctx, tx, r, event.GetOccurredAt().AsTime(), known)
		}
		return c.store.Enqueue(ctx, tx, r, known)
	case *eventv1.CallRequestEvent_Canceled:
		_, err := c.store.Withdraw(ctx, tx, id, workspaceID)
		return err
	case *eventv1.CallRequestEvent_Abandoned:
		return kafka.Skipf("call request %s never was", id)
	case *eventv1.CallRequestEvent_Erased:
		of, err := erasure(e.Erased.GetErasureId(), event.GetWorkspaceId())
		if err != nil {
			return err
		}
		return c.store.EraseRequest(ctx, tx, id, of)
	}
	return kafka.Parkf("call request event %T is newer than this build", event.GetEvent())
}

// overdueOrder counts, once it is known for good, how an order was found that came again.
func (c *Consumer) overdueOrder(ctx context.Context, tx pgx.Tx, r request.Request, at time.Time, known error) error {
	found, err := c.store.EnqueueOverdue(ctx, tx, r, at)
	if err != nil {
		return err
	}
	inbox.Ended(tx, func(committed bool) {
		if committed {
			c.overdue.WithLabelValues(string(found)).Inc()
		}
	})
	if found != request.Waiting {
		slog.WarnContext(ctx, "an overdue order was not waiting", "call_request_id", r.CallRequestID, "found", found)
	}
	if found != request.Lost {
		return known
	}
	return nil
}

func ordered(e *eventv1.Requested) (r request.Request, err error) {
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
	r = request.Request{
		To: number, AgentID: agentID, ScheduleIfOutsideHours: e.GetScheduleIfOutsideHours(),
		MaxCallSeconds: e.GetMaxCallSeconds(), DueAt: e.GetScheduledFor().AsTime(),
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
