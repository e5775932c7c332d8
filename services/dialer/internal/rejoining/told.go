package rejoining

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// glanced is the newest fact of each request, and of each inbound call, among the last few of each partition.
func glanced(ctx context.Context, cfg kafka.Config) (map[uuid.UUID]past.Told, error) {
	newest := map[uuid.UUID]past.Told{}
	err := read(ctx, cfg, kafka.Span{Last: last}, func(_ kafka.Record, t past.Told) error {
		if before, known := newest[t.Subject()]; !known || !overtaken(t, before) {
			newest[t.Subject()] = t
		}
		return nil
	})
	return newest, err
}

// read hands over what was told, but what is newer than this build.
func read(ctx context.Context, cfg kafka.Config, span kafka.Span, each func(kafka.Record, past.Told) error) error {
	err := kafka.Scan(ctx, cfg, "dialer-rejoining", kafka.DialEvents, span, func(rec kafka.Record) error {
		if t, ok := told(rec.Value); ok {
			return each(rec, t)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was told: %w", err)
	}
	return nil
}

// overtaken reports whether t is a repetition of an event that was published before the event of before.
func overtaken(t, before past.Told) bool {
	switch {
	case before.Call == nil && t.State == request.Dialing: // a new attempt, or a repetition of a released one
		return before.State == request.Queued && before.Attempt > 0 && t.Attempt <= before.Attempt
	case before.Call == nil:
		released := t.Attempt > 0 && t.Attempt >= before.Attempt
		return t.State == request.Queued && before.State != request.Queued && !released
	case t.Call == nil:
		return true
	}
	return t.Call.ID == before.Call.ID && t.Call.Version < before.Call.Version
}

func told(value []byte) (t past.Told, ok bool) {
	var event eventv1.DialEvent
	if err := proto.Unmarshal(value, &event); err != nil {
		return t, false
	}
	c := event.GetCall()
	var err error
	if t.RequestID, err = uuid.Parse(event.GetCallRequestId()); err != nil && c.GetDirection() != "inbound" {
		return t, false
	}
	if t.WorkspaceID, err = uuid.Parse(event.GetWorkspaceId()); err != nil {
		return t, false
	}
	if c != nil {
		if t.Call, err = call(c); err != nil {
			return t, false
		}
		t.State = request.Dialing
		if t.Call.EndedAt != nil {
			t.State = request.Ended
		}
		return t, true
	}
	switch news := event.GetEvent().(type) {
	case *eventv1.DialEvent_Withdrawn:
		t.State = request.Withdrawn
	case *eventv1.DialEvent_Blocked:
		t.State = request.Blocked
	case *eventv1.DialEvent_Failed:
		t.State = request.Failed
	case *eventv1.DialEvent_Dialing:
		t.State, t.Attempt = request.Dialing, news.Dialing.GetAttempt()
	case *eventv1.DialEvent_Rescheduled:
		t.State, t.Until = request.Queued, at(news.Rescheduled.GetScheduledFor())
		t.Attempt = news.Rescheduled.GetReleasedAttempt()
	default:
		return t, false
	}
	return t, true
}

func call(c *eventv1.Call) (*past.Call, error) {
	id, err := uuid.Parse(c.GetCallId())
	if err != nil {
		return nil, fmt.Errorf("call_id: %w", err)
	}
	agent, err := uuid.Parse(c.GetAgentId())
	if err != nil {
		return nil, fmt.Errorf("agent_id: %w", err)
	}
	heard := &past.Call{
		ID: id, AgentID: agent, From: c.GetFrom(), To: c.GetToE164(), Status: c.GetStatus(), Cause: c.GetHangupCause(), Disposition: c.GetDisposition(),
		Code: c.GetErrorCode(), Detail: c.GetErrorDetail(), Version: c.GetVersion(),
		QueuedAt: at(c.GetQueuedAt()), DialedAt: at(c.GetDialedAt()), RingingAt: at(c.GetRingingAt()), AnsweredAt: at(c.GetAnsweredAt()), EndedAt: at(c.GetEndedAt()),
	}
	if contact, err := uuid.Parse(c.GetContactId()); err == nil {
		heard.ContactID = &contact
	}
	return heard, nil
}

func at(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	when := t.AsTime()
	return &when
}
