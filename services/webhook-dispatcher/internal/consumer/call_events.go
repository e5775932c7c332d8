package consumer

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// onCallEvents stores each event, and one delivery for each subscription that lists the event's
// type. It also erases the event bodies of calls and call requests whose called person was erased.
// An erasure can be in the same batch as the events of its call.
func (c *Consumer) onCallEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	var events []deliveries.Event
	var erasures []store.Erasure
	for i, rec := range batch {
		event, erasure, err := decodeRecord(ctx, rec)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil {
			return outcome, err
		}
		switch {
		case outcome.Results[i].IsParked():
		case erasure != nil:
			erasures = append(erasures, *erasure)
		default:
			events = append(events, event)
		}
	}
	if len(erasures) > 0 {
		if err := c.store.LockErased(ctx, tx, erasures...); err != nil {
			return outcome, err
		}
	}
	var done store.Ingested
	if len(events) > 0 {
		ingest := c.store.Match
		if len(erasures) > 0 {
			// EraseCall reads the events of its call, so these events must be inserted before
			// EraseCall runs
			ingest = c.store.Ingest
		}
		if done, err = ingest(ctx, tx, events...); err != nil {
			return outcome, err
		}
		outcome.Last = done.Insert
	}
	for _, erasure := range erasures {
		if err := c.store.EraseCall(ctx, tx, erasure); err != nil {
			return outcome, err
		}
	}
	workspaces := make([]uuid.UUID, len(events))
	for i, ev := range events {
		workspaces[i] = ev.WorkspaceID
	}
	outcome.OnCommit = func() {
		c.wakes.WakeStreams(workspaces)
		if len(done.Due) > 0 {
			c.wakes.Queued(done.Due)
		}
		if len(erasures) > 0 {
			c.wakes.Relay()
		}
	}
	return outcome, nil
}

// decodeRecord decodes a record, which contains either an event or an erasure. If it contains an
// event, erased is nil.
func decodeRecord(ctx context.Context, rec inbox.Record) (ev deliveries.Event, erased *store.Erasure, err error) {
	var message eventv1.CallEvent
	if err := rec.Decode(&message); err != nil {
		return ev, nil, err
	}
	if request := message.GetCallRequestId(); request != "" {
		// in an event of a call request, the field call_id contains the id of the call request
		rec.Span.SetAttributes(telemetry.CallRequestID(request))
	} else {
		rec.Span.SetAttributes(telemetry.CallID(message.GetCallId()))
	}
	callID, err := uuid.Parse(message.GetCallId())
	if err != nil {
		return ev, nil, kafka.Parkf("call_id %q: %w", message.GetCallId(), err)
	}
	workspaceID, err := uuid.Parse(message.GetWorkspaceId())
	if err != nil {
		return ev, nil, kafka.Parkf("workspace_id %q: %w", message.GetWorkspaceId(), err)
	}
	switch e := message.GetEvent().(type) {
	case *eventv1.CallEvent_Public:
		ev, err = event(&message, e.Public)
		ev.ObjectID, ev.WorkspaceID, ev.Traceparent = &callID, workspaceID, telemetry.Carrier(rec.Context(ctx))
		return ev, nil, err
	case *eventv1.CallEvent_Erased:
		erased, err = erasure(e.Erased)
		if err != nil {
			return ev, nil, err
		}
		erased.CallID, erased.WorkspaceID = callID, workspaceID
		return ev, erased, nil
	}
	return ev, nil, kafka.Parkf("call event %T is newer than this build", message.GetEvent())
}

func event(fact *eventv1.CallEvent, public *eventv1.PublicEvent) (deliveries.Event, error) {
	eventID, err := uuid.Parse(public.GetEventId())
	if err != nil {
		return deliveries.Event{}, kafka.Parkf("event_id %q: %w", public.GetEventId(), err)
	}
	if public.GetType() == "" || !json.Valid(public.GetBody()) || !fact.GetOccurredAt().IsValid() {
		return deliveries.Event{}, kafka.Parkf("event %s has no type, no time or a body that is not JSON", eventID)
	}
	return deliveries.Event{
		ID: eventID, Type: public.GetType(), Sequence: public.GetSequence(), Body: public.GetBody(), Erased: public.GetErased(),
		CreatedAt: fact.GetOccurredAt().AsTime(),
	}, nil
}

func erasure(message *eventv1.BodiesErased) (*store.Erasure, error) {
	id, err := uuid.Parse(message.GetErasureId())
	if err != nil {
		return nil, kafka.Parkf("erasure_id %q: %w", message.GetErasureId(), err)
	}
	erased := &store.Erasure{ID: id}
	for _, text := range message.GetEventIds() {
		event, err := uuid.Parse(text)
		if err != nil {
			return nil, kafka.Parkf("event_ids %q: %w", text, err)
		}
		erased.EventIDs = append(erased.EventIDs, event)
	}
	return erased, nil
}
