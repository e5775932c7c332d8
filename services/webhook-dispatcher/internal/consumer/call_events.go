package consumer

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// onCallEvents makes one delivery for each event and each subscription that lists its type at this moment.
func (c *Consumer) onCallEvents(ctx context.Context, tx pgx.Tx, recs []inbox.Fresh) (verdicts []error, err error) {
	events := make([]delivery.Event, len(recs))
	for i, rec := range recs {
		if events[i], err = read(ctx, rec); err != nil {
			return nil, err
		}
	}
	done, err := c.store.Ingest(ctx, tx, c.direct(tx), events...)
	if err != nil {
		return nil, err
	}
	if done.Waiting == 0 {
		inbox.Quiet(tx)
	}
	verdicts = make([]error, len(recs))
	for i, matched := range done.Matched {
		if matched == 0 {
			verdicts[i] = kafka.Skipf("no subscription lists %s", events[i].Type)
		}
	}
	return verdicts, nil
}

// direct sends what got a seat as soon as tx is committed, and gives back every other seat.
func (c *Consumer) direct(tx pgx.Tx) *store.Direct {
	if c.sender == nil {
		return nil
	}
	direct := store.NewDirect(c.sender, c.lease)
	heard := inbox.Ended(tx, func(committed bool) {
		if committed {
			crash.Point("webhook-dispatcher: after ingest")
		}
		c.sender.Start(direct.End(committed))
	})
	if !heard {
		return nil
	}
	return direct
}

func read(ctx context.Context, rec inbox.Fresh) (delivery.Event, error) {
	var fact eventv1.CallEvent
	if err := rec.Decode(&fact); err != nil {
		return delivery.Event{}, err
	}
	rec.Span.SetAttributes(telemetry.CallID(fact.GetCallId()))
	public := fact.GetPublic()
	if public == nil {
		return delivery.Event{}, kafka.Parkf("call event %T is newer than this build", fact.GetEvent())
	}
	ev, err := event(&fact, public)
	ev.Traceparent = telemetry.Carrier(trace.ContextWithSpan(ctx, rec.Span))
	return ev, err
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
