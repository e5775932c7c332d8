package consumer

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// onCallEvents stores one delivery for each event and each subscription that lists its type, and
// erases the event bodies of calls whose person was erased. An erasure follows the events of its call
// and can arrive in the same batch.
func (c *Consumer) onCallEvents(ctx context.Context, tx pgx.Tx, recs []inbox.Fresh) (verdicts []error, err error) {
	var events []delivery.Event
	var erasures []store.Erasure
	place := make([]int, 0, len(recs)) // the index of each event's record
	for i, rec := range recs {
		event, erasure, err := read(ctx, rec)
		if err != nil {
			return nil, err
		}
		if erasure != nil {
			erasures = append(erasures, *erasure)
			continue
		}
		events, place = append(events, event), append(place, i)
	}
	var done store.Ingested
	if len(events) > 0 {
		if done, err = c.store.Ingest(ctx, tx, events...); err != nil {
			return nil, err
		}
	}
	for _, erasure := range erasures {
		if err := c.store.EraseCall(ctx, tx, erasure); err != nil {
			return nil, err
		}
	}
	if done.Queued == 0 && len(erasures) == 0 {
		inbox.Quiet(tx)
	}
	verdicts = make([]error, len(recs))
	for i, matched := range done.Matched {
		if matched == 0 {
			verdicts[place[i]] = kafka.Skipf("no subscription lists %s", events[i].Type)
		}
	}
	return verdicts, nil
}

// read is a record as an event or as an erasure.
func read(ctx context.Context, rec inbox.Fresh) (ev delivery.Event, erased *store.Erasure, err error) {
	var fact eventv1.CallEvent
	if err := rec.Decode(&fact); err != nil {
		return ev, nil, err
	}
	rec.Span.SetAttributes(telemetry.CallID(fact.GetCallId()))
	callID, err := uuid.Parse(fact.GetCallId())
	if err != nil {
		return ev, nil, kafka.Parkf("call_id %q: %w", fact.GetCallId(), err)
	}
	workspaceID, err := uuid.Parse(fact.GetWorkspaceId())
	if err != nil {
		return ev, nil, kafka.Parkf("workspace_id %q: %w", fact.GetWorkspaceId(), err)
	}
	switch e := fact.GetEvent().(type) {
	case *eventv1.CallEvent_Public:
		ev, err = event(&fact, e.Public)
		ev.CallID, ev.WorkspaceID, ev.Traceparent = &callID, workspaceID, telemetry.Carrier(trace.ContextWithSpan(ctx, rec.Span))
		return ev, nil, err
	case *eventv1.CallEvent_Erased:
		erased, err = erasure(e.Erased)
		if err != nil {
			return ev, nil, err
		}
		erased.CallID, erased.WorkspaceID = callID, workspaceID
		return ev, erased, nil
	}
	return ev, nil, kafka.Parkf("call event %T is newer than this build", fact.GetEvent())
}

func event(fact *eventv1.CallEvent, public *eventv1.PublicEvent) (delivery.Event, error) {
	eventID, err := uuid.Parse(public.GetEventId())
	if err != nil {
		return delivery.Event{}, kafka.Parkf("event_id %q: %w", public.GetEventId(), err)
	}
	if public.GetType() == "" || !json.Valid(public.GetBody()) || !fact.GetOccurredAt().IsValid() {
		return delivery.Event{}, kafka.Parkf("event %s has no type, no time or a body that is not JSON", eventID)
	}
	return delivery.Event{
		ID: eventID, Type: public.GetType(), Sequence: public.GetSequence(), Body: public.GetBody(), Erased: public.GetErased(),
		CreatedAt: fact.GetOccurredAt().AsTime(),
	}, nil
}

func erasure(told *eventv1.BodiesErased) (*store.Erasure, error) {
	id, err := uuid.Parse(told.GetErasureId())
	if err != nil {
		return nil, kafka.Parkf("erasure_id %q: %w", told.GetErasureId(), err)
	}
	erased := &store.Erasure{ID: id}
	for _, text := range told.GetEventIds() {
		event, err := uuid.Parse(text)
		if err != nil {
			return nil, kafka.Parkf("event_ids %q: %w", text, err)
		}
		erased.EventIDs = append(erased.EventIDs, event)
	}
	return erased, nil
}
