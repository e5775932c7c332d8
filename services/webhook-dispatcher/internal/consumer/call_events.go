package consumer

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// onCallEvent makes one delivery for each subscription that lists the event's type at this moment.
func (c *Consumer) onCallEvent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var fact eventv1.CallEvent
	if err := rec.Decode(&fact); err != nil {
		return err
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallID(fact.GetCallId()))
	public := fact.GetPublic()
	if public == nil {
		return kafka.Parkf("call event %T is newer than this build", fact.GetEvent())
	}
	ev, err := event(&fact, public)
	if err != nil {
		return err
	}
	ev.Traceparent = telemetry.Carrier(ctx)
	matched, err := c.store.Ingest(ctx, tx, ev)
	if err != nil {
		return err
	}
	if matched == 0 {
		return kafka.Skipf("no subscription lists %s", ev.Type)
	}
	return nil
}

func event(fact *eventv1.CallEvent, public *eventv1.PublicEvent) (delivery.Event, error) {
	callID, err := uuid.Parse(fact.GetCallId())
	if err != nil {
		return delivery.Event{}, kafka.Parkf("call_id %q: %w", fact.GetCallId(), err)
	}
	workspaceID, err := uuid.Parse(fact.GetWorkspaceId())
	if err != nil {
		return delivery.Event{}, kafka.Parkf("workspace_id %q: %w", fact.GetWorkspaceId(), err)
	}
	eventID, err := uuid.Parse(public.GetEventId())
	if err != nil {
		return delivery.Event{}, kafka.Parkf("event_id %q: %w", public.GetEventId(), err)
	}
	if public.GetType() == "" || !json.Valid(public.GetBody()) || !fact.GetOccurredAt().IsValid() {
		return delivery.Event{}, kafka.Parkf("event %s has no type, no time or a body that is not JSON", eventID)
	}
	return delivery.Event{
		ID: eventID, WorkspaceID: workspaceID, CallID: &callID, Type: public.GetType(), Sequence: public.GetSequence(),
		Body: public.GetBody(), CreatedAt: fact.GetOccurredAt().AsTime(),
	}, nil
}
