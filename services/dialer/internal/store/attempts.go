package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
)

// Attempt is one use of a SIP trunk: an outbound call that was offered to the trunk, or an inbound
// call.
type Attempt struct {
	AttemptID     uuid.UUID  `db:"attempt_id"`
	CallID        uuid.UUID  `db:"call_id"`
	CallRequestID *uuid.UUID `db:"call_request_id"`
	Direction     string     `db:"direction"`
	// Fence is the number of the attempt's fence among the fences of the call request, starting at 1.
	// It is nil for an inbound call.
	Fence     *int32     `db:"attempt"`
	TrunkID   uuid.UUID  `db:"trunk_id"`
	Trunk     string     `db:"trunk"`
	SIPCallID string     `db:"sip_call_id"`
	StartedAt time.Time  `db:"started_at"`
	EndedAt   *time.Time `db:"ended_at"`
	// SIPStatus is the final response to the INVITE. It is nil if there was no final response.
	SIPStatus *int32 `db:"sip_status"`
	SIPReason string `db:"sip_reason"`
	Cause     string `db:"cause"`
	ByUs      bool   `db:"by_us"`
	// Error is the reason why there was no final response.
	Error string `db:"error"`
}

const listAttempts = `
SELECT a.attempt_id, a.call_id, c.call_request_id, c.direction, f.attempt, a.trunk_id, a.trunk, a.sip_call_id,
	a.started_at, a.ended_at, a.sip_status, a.sip_reason, a.cause, a.by_us, a.error
FROM calls c JOIN sip_attempts a ON a.call_id = c.call_id LEFT JOIN fences f ON f.call_id = c.call_id
WHERE c.workspace_id = @workspace_id AND (c.call_id = @id OR c.call_request_id = @id) AND a.attempt_id < @below
ORDER BY a.attempt_id DESC LIMIT @rows`

// Attempts returns the attempts of a call or of a call request, newest first.
func (s *Store) Attempts(ctx context.Context, workspaceID, id uuid.UUID, asked page.Request) ([]Attempt, error) {
	found, err := pg.Many[Attempt](ctx, s.pool, listAttempts, pgx.NamedArgs{
		"workspace_id": workspaceID, "id": id, "below": asked.Below(), "rows": asked.Rows(),
	})
	if err != nil {
		return nil, fmt.Errorf("list attempts of %s: %w", id, err)
	}
	return found, nil
}
