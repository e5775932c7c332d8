package callstate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
)

// EventID returns the id of an event of a call or a call request. The same object and type always
// give the same id.
func EventID(objectID uuid.UUID, event openapi.EventType) uuid.UUID {
	return uuid.NewSHA1(objectID, []byte(event))
}

// Event returns the message for call-events.v1. The message contains the public event, which shows
// the current state of the call.
func (c *Call) Event(event openapi.EventType, at time.Time) (*eventv1.CallEvent, error) {
	id := EventID(c.ID, event)
	body, err := json.Marshal(openapi.CallEvent{
		ID: id, Type: event, APIVersion: openapi.CallEventAPIVersionN20260604, CreatedAt: openapi.TimestampOf(at),
		WorkspaceID: c.WorkspaceID, Sequence: c.Sequence, Data: c.Full(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s of call %s: %w", event, c.ID, err)
	}
	return &eventv1.CallEvent{
		CallId: c.ID.String(), WorkspaceId: c.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
		Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{
			EventId: id.String(), Type: string(event), Sequence: c.Sequence, Body: body, Erased: c.ErasedAt != nil,
		}},
	}, nil
}

func eventTypes() []openapi.EventType {
	return []openapi.EventType{
		openapi.EventTypeCallRinging, openapi.EventTypeCallAnswered, openapi.EventTypeCallCompleted, openapi.EventTypeCallFailed,
		openapi.EventTypeCallNoAnswer, openapi.EventTypeCallBusy, openapi.EventTypeCallAnalyzed,
		openapi.EventTypeCallRecordingReady,
	}
}

func requestEventTypes() []openapi.EventType {
	return []openapi.EventType{
		openapi.EventTypeCallRequestBlocked, openapi.EventTypeCallRequestFailed, openapi.EventTypeCallRequestCanceled,
	}
}

// ErasedEvent returns the message that reports the erasure of the person of the call. The message
// contains the ids of all events that the call can have.
func (c *Call) ErasedEvent(erasure uuid.UUID, at time.Time) *eventv1.CallEvent {
	erased := &eventv1.BodiesErased{ErasureId: erasure.String()}
	for _, event := range eventTypes() {
		erased.EventIds = append(erased.EventIds, EventID(c.ID, event).String())
	}
	return &eventv1.CallEvent{
		CallId: c.ID.String(), WorkspaceId: c.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
		Event: &eventv1.CallEvent_Erased{Erased: erased},
	}
}

// EndEvent returns the type of the opt-in event of a request that ended without a call. For any
// other request it returns "". So a request has at most one event.
func (r *Request) EndEvent() openapi.EventType {
	switch {
	case r.Status == RequestBlocked:
		return openapi.EventTypeCallRequestBlocked
	case r.Status == RequestFailed && r.CallID == nil:
		return openapi.EventTypeCallRequestFailed
	case r.Status == RequestCanceled:
		return openapi.EventTypeCallRequestCanceled
	default:
		return ""
	}
}

// PublicEvent returns the message for call-events.v1 for a request that ended without a call. The
// message contains the public event, which shows the current state of the request.
func (r *Request) PublicEvent(at time.Time) (*eventv1.CallEvent, error) {
	event := r.EndEvent()
	id := EventID(r.ID, event)
	body, err := json.Marshal(openapi.CallRequestEvent{
		ID: id, Type: openapi.CallRequestEventType(event), APIVersion: openapi.CallRequestEventAPIVersionN20260604,
		CreatedAt: openapi.TimestampOf(at), WorkspaceID: r.WorkspaceID, Sequence: 1, Data: r.View(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s of call request %s: %w", event, r.ID, err)
	}
	message := r.callEvent(at)
	message.Event = &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{
		EventId: id.String(), Type: string(event), Sequence: 1, Body: body, Erased: r.ErasedAt != nil,
	}}
	return message, nil
}

// BodiesErasedEvent returns the message that orders the erasure of the bodies of the request's
// events. The message contains the ids of all events that the request can have.
func (r *Request) BodiesErasedEvent(erasure uuid.UUID, at time.Time) *eventv1.CallEvent {
	erased := &eventv1.BodiesErased{ErasureId: erasure.String()}
	for _, event := range requestEventTypes() {
		erased.EventIds = append(erased.EventIds, EventID(r.ID, event).String())
	}
	message := r.callEvent(at)
	message.Event = &eventv1.CallEvent_Erased{Erased: erased}
	return message
}

// callEvent returns a message for call-events.v1 without its event. CallId is the id of the
// request, because older versions of webhook-dispatcher require an id.
func (r *Request) callEvent(at time.Time) *eventv1.CallEvent {
	return &eventv1.CallEvent{
		CallId:        r.ID.String(),
		CallRequestId: r.ID.String(),
		WorkspaceId:   r.WorkspaceID.String(),
		OccurredAt:    timestamppb.New(at),
	}
}

// ErasedEvent returns the message that reports the erasure of the person of the request.
func (r *Request) ErasedEvent(erasure uuid.UUID, at time.Time) *eventv1.CallRequestEvent {
	ev := r.event(at)
	ev.Event = &eventv1.CallRequestEvent_Erased{Erased: &eventv1.RequestErased{ErasureId: erasure.String()}}
	return ev
}

func (r *Request) event(at time.Time) *eventv1.CallRequestEvent {
	return &eventv1.CallRequestEvent{
		CallRequestId: r.ID.String(), WorkspaceId: r.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
	}
}

// RequestedEvent returns the message that orders the dialer to call. The content of the message is
// the same each time it is published.
func (r *Request) RequestedEvent(at time.Time) *eventv1.CallRequestEvent {
	ev := r.event(at)
	order := &eventv1.Requested{
		ToE164: r.To, AgentId: r.AgentID.String(), ContactId: r.ContactID.String(), VariablesJson: r.Variables,
		ScheduledFor: timestamppb.New(r.ScheduledFor), ScheduleIfOutsideHours: r.ScheduleIfOutsideHours,
		MaxCallSeconds: r.MaxCallSeconds, QueuedAt: timestamppb.New(r.QueuedAt), ByPerson: r.ByPerson,
	}
	if r.ExternalRef != nil {
		order.ExternalRef = *r.ExternalRef
	}
	ev.Event = &eventv1.CallRequestEvent_Requested{Requested: order}
	return ev
}

// OverdueEvent returns the message that publishes an overdue request again. If the request is not
// queued, the dialer must not dial: it only publishes the end of the request again.
func (r *Request) OverdueEvent(at time.Time) *eventv1.CallRequestEvent {
	ev := r.RequestedEvent(at)
	ev.GetRequested().Overdue, ev.GetRequested().EndOnly = true, r.Status != RequestQueued
	return ev
}

// OverdueEvent returns the message that reports to the dialer that the end of the call is overdue.
func (c *Call) OverdueEvent(at time.Time) *eventv1.CallRequestEvent {
	call := &eventv1.Call{
		CallId: c.ID.String(), Direction: c.Direction, From: c.From, ToE164: c.To, AgentId: c.AgentID.String(),
		Status: string(c.Status), QueuedAt: newTimestamp(c.QueuedAt), DialedAt: newTimestamp(c.DialedAt),
		RingingAt: newTimestamp(c.RingingAt), AnsweredAt: newTimestamp(c.AnsweredAt), Version: c.Version,
		// This service does not store which inbound calls have a price, so Priced is true for every
		// inbound call. If a call has no price, billing-wallet finds no hold for it.
		Priced: c.CallRequestID == nil,
	}
	if c.ContactID != nil {
		call.ContactId = c.ContactID.String()
	}
	ev := &eventv1.CallRequestEvent{
		WorkspaceId: c.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
		Event: &eventv1.CallRequestEvent_CallOverdue{CallOverdue: &eventv1.CallOverdue{Call: call}},
	}
	if c.CallRequestID != nil {
		ev.CallRequestId = c.CallRequestID.String()
	}
	return ev
}

func newTimestamp(at *time.Time) *timestamppb.Timestamp {
	if at == nil {
		return nil
	}
	return timestamppb.New(*at)
}

// WithdrawnEvent returns the message that reports that a client canceled the request before it was
// dialed.
func (r *Request) WithdrawnEvent(at time.Time) *eventv1.CallRequestEvent {
	ev := r.event(at)
	ev.Event = &eventv1.CallRequestEvent_Canceled{Canceled: &eventv1.Canceled{}}
	return ev
}

// AbandonedEvent returns the message that reports that no request with this id exists or will
// exist.
func AbandonedEvent(requestID, workspaceID uuid.UUID, at time.Time) *eventv1.CallRequestEvent {
	ev := (&Request{ID: requestID, WorkspaceID: workspaceID}).event(at)
	ev.Event = &eventv1.CallRequestEvent_Abandoned{Abandoned: &eventv1.Abandoned{}}
	return ev
}

// InboundUnconfirmedEvent returns the message that asks the dialer for the end of an inbound call.
func InboundUnconfirmedEvent(callID, workspaceID uuid.UUID, at time.Time) *eventv1.CallRequestEvent {
	return &eventv1.CallRequestEvent{
		WorkspaceId: workspaceID.String(), OccurredAt: timestamppb.New(at),
		Event: &eventv1.CallRequestEvent_InboundUnconfirmed{
			InboundUnconfirmed: &eventv1.InboundUnconfirmed{CallId: callID.String()},
		},
	}
}

// LowBalance describes that the balance of a wallet fell below its threshold.
type LowBalance struct {
	EventID, WorkspaceID uuid.UUID
	Sequence             int32
	At                   time.Time
	Balance, Threshold   money.Micro
	Currency             string
}

// PublicEvent returns the message for call-events.v1 with the event wallet.low_balance. CallId is
// the id of the workspace, because webhook-dispatcher delivers the events of one CallId in order.
func (l LowBalance) PublicEvent() (*eventv1.CallEvent, error) {
	body, err := json.Marshal(openapi.WalletEvent{
		ID: l.EventID, Type: openapi.WalletEventTypeWalletLowBalance, APIVersion: openapi.WalletEventAPIVersionN20260604,
		CreatedAt: openapi.TimestampOf(l.At), WorkspaceID: l.WorkspaceID, Sequence: l.Sequence,
		Data: openapi.WalletLowBalance{
			Balance: json.Number(l.Balance.String()), Threshold: json.Number(l.Threshold.String()), Currency: l.Currency,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode wallet.low_balance of workspace %s: %w", l.WorkspaceID, err)
	}
	return &eventv1.CallEvent{
		CallId: l.WorkspaceID.String(), WorkspaceId: l.WorkspaceID.String(), OccurredAt: timestamppb.New(l.At),
		Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{
			EventId: l.EventID.String(), Type: string(openapi.WalletEventTypeWalletLowBalance), Sequence: l.Sequence, Body: body,
		}},
	}, nil
}
