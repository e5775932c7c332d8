package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// Slot is one request's place in what the limits count.
type Slot struct {
	CallRequestID uuid.UUID `db:"call_request_id"`
	WorkspaceID   uuid.UUID `db:"workspace_id"`
	Trunk         string    `db:"trunk"`
}

// Requests whose time has come, oldest first, whatever they waited for. A claim that ran out gives its slot back.
const comeOldest = `
WITH come AS (
	UPDATE dial_queue SET ready = true, held = false, claimed_by = NULL
	WHERE call_request_id = ANY (ARRAY(
		SELECT q.call_request_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.look_at <= now()
		ORDER BY q.look_at LIMIT @most FOR UPDATE SKIP LOCKED))
	RETURNING call_request_id
), given_back AS (
	DELETE FROM slots WHERE call_request_id = ANY (ARRAY(SELECT c.call_request_id FROM come c))
)
SELECT count(*) FROM come`

// The same by workspaces in turn, a few of each.
const comeInTurn = `
WITH RECURSIVE turn AS MATERIALIZED (
	SELECT coalesce((SELECT t.workspace_id FROM turns t WHERE t.round = 'come'), '00000000-0000-0000-0000-000000000000') AS last
), hop AS (
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.claimed_by IS NULL AND q.workspace_id > turn.last
		ORDER BY q.workspace_id LIMIT 1) AS workspace_id, 1 AS step FROM turn
	UNION ALL
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND NOT q.ready AND q.claimed_by IS NULL AND q.workspace_id > hop.workspace_id
		ORDER BY q.workspace_id LIMIT 1), hop.step + 1
	FROM hop WHERE hop.workspace_id IS NOT NULL AND hop.step < @steps::integer
), come AS (
	UPDATE dial_queue SET ready = true, held = false WHERE call_request_id = ANY (ARRAY(
		SELECT due.call_request_id FROM hop, LATERAL (
			SELECT q.call_request_id FROM dial_queue q WHERE q.workspace_id = hop.workspace_id AND q.state = 'queued' AND NOT q.ready
				AND q.claimed_by IS NULL AND q.look_at <= now() ORDER BY q.look_at LIMIT @each::bigint FOR UPDATE SKIP LOCKED) due))
)
INSERT INTO turns (round, workspace_id)
SELECT 'come', coalesce((SELECT hop.workspace_id FROM hop ORDER BY hop.step DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')
ON CONFLICT (round) DO UPDATE SET workspace_id = EXCLUDED.workspace_id`

// A slot belongs to a request that is claimed or in a call. Claim and slot commit together, and so do the end of either and the slot's, so one statement
// sees both or none. The queue is read by id, a slot at a time: a join would read all that is scheduled ahead.
const giveBackLeaked = `
DELETE FROM slots s
WHERE NOT coalesce((SELECT q.state = 'dialing' OR q.state = 'queued' AND q.claimed_by IS NOT NULL
	FROM dial_queue q WHERE q.call_request_id = s.call_request_id), false)
RETURNING s.call_request_id, s.workspace_id, s.trunk`

// The lock keeps the call from ending before its slot is there to be given back.
const takeMissing = `
INSERT INTO slots (call_request_id, workspace_id, trunk)
SELECT c.call_request_id, c.workspace_id, f.trunk
FROM (SELECT l.call_id, l.call_request_id, l.workspace_id FROM calls l
	WHERE l.ended_at IS NULL AND l.direction = 'outbound' AND NOT EXISTS (SELECT 1 FROM slots s WHERE s.call_request_id = l.call_request_id)
	LIMIT 1000 FOR SHARE SKIP LOCKED) c
JOIN fences f ON f.call_id = c.call_id
ON CONFLICT (call_request_id) DO NOTHING`

// ReconcileSlots holds the slots against the truth, the claims and calls that there are. Leaked slots, which outlived both, are given back and answered;
// missing counts calls that had none and have one now, as those of a build that knew no slots.
func (s *Store) ReconcileSlots(ctx context.Context) (leaked []Slot, missing int64, err error) {
	var ready int64
	if err := s.pool.QueryRow(ctx, comeOldest, pg.Args{"most": come}).Scan(&ready); err != nil {
		return nil, 0, fmt.Errorf("give back claims that ran out: %w", err)
	}
	rows, err := s.pool.Query(ctx, giveBackLeaked)
	if err != nil {
		return nil, 0, fmt.Errorf("give back leaked slots: %w", err)
	}
	if leaked, err = pgx.CollectRows(rows, pgx.RowToStructByName[Slot]); err != nil {
		return nil, 0, fmt.Errorf("give back leaked slots: %w", err)
	}
	did, err := s.pool.Exec(ctx, takeMissing)
	if err != nil {
		return leaked, 0, fmt.Errorf("take missing slots: %w", err)
	}
	return leaked, did.RowsAffected(), nil
}
