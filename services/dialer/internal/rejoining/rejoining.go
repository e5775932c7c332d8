// Package rejoining keeps law 1 over a restore: a dialer whose database is older than what it has told the world dials nothing until it has read its own topic.
package rejoining

import (
	"context"
	"errors"
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
	if errors.Is(err, kafka.ErrNoTopic) {
		return nothingTold(ctx, st)
	}
	if err != nil {
		return err
	}
	unknown, err := st.Unknown(ctx, slices.Collect(maps.Values(newest)))
	if err != nil || unknown == 0 {
		return err
	}
	slog.ErrorContext(ctx, "the database is older than what was told: it is on hold until dial-events.v1 is reconciled", "unknown", unknown)
	all, err := read(ctx, cfg, 0)
	if err != nil {
		return err
	}
	// Whoever is killed in the middle leaves a database that a glance finds as old as before: what it sees, and every call that lives (behind all that ended:
	// a number has one), is settled last and together.
	var over, last []past.Told
	for id, t := range all {
		if _, seen := newest[id]; seen || t.Call != nil && t.Call.EndedAt == nil {
			last = append(last, t)
		} else {
			over = append(over, t)
		}
	}
	for some := range slices.Chunk(over, batch) {
		if err := st.Settle(ctx, some); err != nil {
			return err
		}
	}
	if err := st.Settle(ctx, last); err != nil {
		return err
	}
	slog.WarnContext(ctx, "the database knows what was told; the hold is over", "told", len(all))
	return nil
}

// nothingTold is a first start, unless the database has dialled: then the topic is not where it was, and who cannot tell does not dial.
func nothingTold(ctx context.Context, st *past.Store) error {
	ever, err := st.EverDialled(ctx)
	if ever {
		return errors.New("this database has dialled, and KAFKA_BROKERS know no dial-events.v1: set KAFKA_BROKERS to the cluster that has it; if it is gone for good, " +
			"look at what was dialled last (deploy/runbooks/postgres-restore.md) and start calls, which makes it")
	}
	return err
}

// read is the newest fact of each request, and of each inbound call, out of the last few of each partition or of all.
func read(ctx context.Context, cfg kafka.Config, last int64) (map[uuid.UUID]past.Told, error) {
	newest := map[uuid.UUID]past.Told{}
	err := kafka.Scan(ctx, cfg, "dialer-rejoining", kafka.DialEvents, last, func(rec kafka.Record) {
		var event eventv1.DialEvent
		if proto.Unmarshal(rec.Value, &event) != nil {
			return
		}
		t, ok := told(&event)
		if !ok { // newer than this build
			return
		}
		id := t.RequestID
		if id == uuid.Nil {
			id = t.Call.ID
		}
		if before, known := newest[id]; !known || !overtaken(t, before) {
			newest[id] = t
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read what was told: %w", err)
	}
	return newest, nil
}

// overtaken says that a fact was told again behind what followed it.
func overtaken(t, before past.Told) bool {
	switch {
	case before.Call == nil:
		return t.State == request.Queued && before.State != request.Queued
	case t.Call == nil:
		return true
	}
	return t.Call.ID == before.Call.ID && t.Call.Version < before.Call.Version
}

func told(event *eventv1.DialEvent) (t past.Told, ok bool) {
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
		t.State = request.Dialing
	case *eventv1.DialEvent_Rescheduled:
		t.State, t.Until = request.Queued, at(news.Rescheduled.GetScheduledFor())
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
