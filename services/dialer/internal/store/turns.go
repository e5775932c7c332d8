package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
)

// TurnCall is a call in progress whose turns are published.
type TurnCall struct {
	CallID        uuid.UUID  `db:"call_id"`
	WorkspaceID   uuid.UUID  `db:"workspace_id"`
	CallRequestID *uuid.UUID `db:"call_request_id"`
	AgentID       uuid.UUID  `db:"agent_id"`
}

const turnCalls = `
SELECT call_id, workspace_id, call_request_id, agent_id FROM calls WHERE call_id = ANY (@ids::uuid[]) AND NOT erased`

// TurnCalls returns the calls with these ids. It leaves out calls whose personal data must be
// erased.
func (s *Store) TurnCalls(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]TurnCall, error) {
	found, err := pg.Many[TurnCall](ctx, s.pool, turnCalls, pg.Args{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("read the calls of %d turns: %w", len(ids), err)
	}
	calls := make(map[uuid.UUID]TurnCall, len(found))
	for _, call := range found {
		calls[call.CallID] = call
	}
	return calls, nil
}
