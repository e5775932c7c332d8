package eventstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
)

// TurnType is the type of the events for the turns of calls in progress. These events are not
// stored, so they have no position in the stream, and webhooks do not deliver them.
const TurnType = "call.turn"

const (
	// maxTurns is the maximum number of turns that wait for one stream. Further turns are
	// discarded.
	maxTurns = 64
	// topicTimeout limits one attempt to create the topic. topicInterval is the time between two
	// attempts.
	topicTimeout  = 10 * time.Second
	topicInterval = 5 * time.Second
)

// TurnReader reads call-turns.v1 and passes the turns to the streams of this replica. It starts at
// the end of the topic and stores nothing.
type TurnReader struct {
	cfg kafka.Config
	hub *Hub
}

// NewTurnReader returns a reader. Run must be called.
func NewTurnReader(cfg kafka.Config, hub *Hub) *TurnReader { return &TurnReader{cfg: cfg, hub: hub} }

// Run reads turns until ctx ends.
func (r *TurnReader) Run(ctx context.Context) error {
	client, err := kafka.NewClient(r.cfg, "webhook-dispatcher-turns", nil, kgo.ConsumeTopics(kafka.CallTurns.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	if err != nil {
		return err
	}
	defer client.Close()
	if !ensureTopic(ctx, client) {
		return nil
	}
	for {
		fetched := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for all := fetched.RecordIter(); !all.Done(); {
			rec, err := kafka.Read(all.Next())
			if err == nil {
				err = r.send(rec)
			}
			if err != nil {
				slog.WarnContext(ctx, "turn of a call not read", "partition", rec.Partition, "offset", rec.Offset, "error", err)
			}
		}
	}
}

// ensureTopic creates the topic if it is missing. It returns false when ctx ends.
func ensureTopic(ctx context.Context, client *kafka.Client) bool {
	for {
		trying, cancel := context.WithTimeout(ctx, topicTimeout)
		err := kafka.EnsureTopics(trying, client, []kafka.Topic{kafka.CallTurns})
		cancel()
		switch {
		case err == nil:
			return true
		case ctx.Err() == nil:
			slog.WarnContext(ctx, "topic check or creation failed", "topic", kafka.CallTurns.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(topicInterval):
		}
	}
}

func (r *TurnReader) send(rec kafka.Record) error {
	var turn eventv1.CallTurn
	if err := rec.Decode(&turn); err != nil {
		return err
	}
	workspaceID, err := uuid.Parse(turn.GetWorkspaceId())
	if err != nil {
		return fmt.Errorf("read workspace_id: %w", err)
	}
	if !r.hub.wantsTurns(workspaceID) {
		return nil
	}
	event, err := newTurnEvent(rec.EventID, workspaceID, &turn)
	if err != nil {
		return err
	}
	body, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode turn of call %s: %w", turn.GetCallId(), err)
	}
	r.hub.sendTurn(workspaceID, fmt.Appendf(nil, "event: %s\ndata: %s\n\n", TurnType, body))
	return nil
}

// turnEvent is the data of the message (docs/reference/api/console-api.md#turns-of-calls).
type turnEvent struct {
	ID          uuid.UUID         `json:"id"`
	Type        string            `json:"type"`
	APIVersion  string            `json:"api_version"`
	CreatedAt   openapi.Timestamp `json:"created_at"`
	WorkspaceID uuid.UUID         `json:"workspace_id"`
	Sequence    int32             `json:"sequence"`
	Data        turnData          `json:"data"`
}

type turnData struct {
	CallID        uuid.UUID         `json:"call_id"`
	CallRequestID *uuid.UUID        `json:"call_request_id"`
	AgentID       uuid.UUID         `json:"agent_id"`
	Role          string            `json:"role"`
	Text          string            `json:"text"`
	At            openapi.Timestamp `json:"at"`
}

func newTurnEvent(id, workspaceID uuid.UUID, turn *eventv1.CallTurn) (event turnEvent, err error) {
	at := openapi.TimestampOf(turn.GetSpokenAt().AsTime())
	event = turnEvent{
		ID: id, Type: TurnType, APIVersion: string(openapi.TestEventAPIVersionN20260604), CreatedAt: at,
		WorkspaceID: workspaceID, Sequence: turn.GetNumber(),
		Data: turnData{Role: turn.GetRole(), Text: turn.GetText(), At: at},
	}
	if event.Data.CallID, err = uuid.Parse(turn.GetCallId()); err != nil {
		return event, fmt.Errorf("read call_id: %w", err)
	}
	if event.Data.AgentID, err = uuid.Parse(turn.GetAgentId()); err != nil {
		return event, fmt.Errorf("read agent_id: %w", err)
	}
	if turn.GetCallRequestId() != "" {
		requestID, err := uuid.Parse(turn.GetCallRequestId())
		if err != nil {
			return event, fmt.Errorf("read call_request_id: %w", err)
		}
		event.Data.CallRequestID = &requestID
	}
	return event, nil
}

// wantsTurns reports whether a stream of the workspace sends turns.
func (h *Hub) wantsTurns(workspaceID uuid.UUID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams[workspaceID] {
		if s.turns != nil {
			return true
		}
	}
	return false
}

// sendTurn passes a message to the streams of the workspace that send turns. It does not block. If
// a client reads too slowly, its stream discards the message.
func (h *Hub) sendTurn(workspaceID uuid.UUID, message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams[workspaceID] {
		select {
		case s.turns <- message: // this case is never selected if turns is nil
		default:
		}
	}
}
