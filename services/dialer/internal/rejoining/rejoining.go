// Package rejoining keeps law 1 over a restore: a dialer whose database is older than what it has told the world dials nothing until it has read its own topic.
package rejoining

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

const (
	// glance is how many of the newest facts of each partition a start looks at. More than one: a deposed relay may have told an old one again.
	glance = 20
	// batch is how many requests one transaction settles.
	batch = 500
	again = time.Second
)

// Await returns when the database knows every fact on dial-events.v1 that the start looked at, at once as a rule. If it does not, it was restored to an earlier time: the whole topic
// is read and settled first. While Kafka or the database is away it tries again: who cannot tell does not dial.
func Await(ctx context.Context, cfg kafka.Config, st *past.Store) error {
	for {
		err := settle(ctx, cfg, st)
		if err == nil || ctx.Err() != nil {
			return err
		}
		slog.WarnContext(ctx, "nothing is dialled until the newest facts are known", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
}

func settle(ctx context.Context, cfg kafka.Config, st *past.Store) error {
	newest, err := read(ctx, cfg, glance)
	if err != nil {
		return err
	}
	unknown, err := st.Unknown(ctx, newest)
	if err != nil || unknown == 0 {
		return err
	}
	slog.ErrorContext(ctx, "the database is older than what was told: it is on hold until dial-events.v1 is reconciled", "unknown", unknown)
	all, err := read(ctx, cfg, 0)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(all, batch) {
		if err := st.Settle(ctx, some); err != nil {
			return err
		}
	}
	slog.WarnContext(ctx, "the database knows what was told; the hold is over", "requests", len(all))
	return nil
}

// read is the newest fact of each outbound request, out of the last few of each partition or of all.
func read(ctx context.Context, cfg kafka.Config, last int64) ([]past.Told, error) {
	newest := map[uuid.UUID]past.Told{}
	err := kafka.Scan(ctx, cfg, "dialer-rejoining", kafka.DialEvents, last, func(rec kafka.Record) {
		var event eventv1.DialEvent
		if proto.Unmarshal(rec.Value, &event) != nil {
			return
		}
		t, ok := told(&event)
		before, known := newest[t.RequestID]
		switch {
		case !ok: // not of a request, or newer than this build
		case known && before.Call != nil && t.Call == nil, known && before.Call != nil && t.Call.ID == before.Call.ID && t.Call.Version < before.Call.Version:
			// told again behind what followed
		default:
			newest[t.RequestID] = t
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read what was told: %w", err)
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(newest)), func(t past.Told) bool { return t.State == request.Queued }), nil
}

func told(event *eventv1.DialEvent) (t past.Told, ok bool) {
	var err error
	if t.RequestID, err = uuid.Parse(event.GetCallRequestId()); err != nil {
		return t, false
	}
	if t.WorkspaceID, err = uuid.Parse(event.GetWorkspaceId()); err != nil {
		return t, false
	}
	if c := event.GetCall(); c != nil {
		if t.Call, err = call(c); err != nil {
			return t, false
		}
		t.State = request.Dialing
		if t.Call.EndedAt != nil {
			t.State = request.Ended
		}
		return t, true
	}
	switch event.GetEvent().(type) {
	case *eventv1.DialEvent_Withdrawn:
		t.State = request.Withdrawn
	case *eventv1.DialEvent_Blocked:
		t.State = request.Blocked
	case *eventv1.DialEvent_Failed:
		t.State = request.Failed
	case *eventv1.DialEvent_Dialing:
		t.State = request.Dialing
	case *eventv1.DialEvent_Rescheduled:
		t.State = request.Queued
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
