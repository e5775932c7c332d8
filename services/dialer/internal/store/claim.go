package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/tenant"
)

// Room is what a claim may take.
type Room struct {
	// Slots are the caller's free hands.
	Slots int
	// Channels and CallsPerSecond bound the trunk, over all workspaces.
	Channels, CallsPerSecond int
}

// claimLock makes claims of all replicas take turns, so that limits hold over all of them.
const claimLock = `SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' claim'))`

// Workspaces that have due work, found by skipping from one to the next: what is scheduled ahead costs nothing.
const dueWorkspaces = `
WITH RECURSIVE hop AS (
	(SELECT workspace_id FROM dial_queue WHERE state = 'queued' ORDER BY workspace_id LIMIT 1)
	UNION ALL
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND q.workspace_id > hop.workspace_id ORDER BY q.workspace_id LIMIT 1)
	FROM hop WHERE hop.workspace_id IS NOT NULL
)
SELECT hop.workspace_id,
	CASE WHEN w.status <> 'active' OR NOT w.api_enabled THEN 10000 -- only to be blocked
		ELSE coalesce(w.calls_per_second, @calls_per_second) END::float8 AS rate,
	CASE WHEN w.status <> 'active' OR NOT w.api_enabled THEN 10000 ELSE coalesce(w.max_live_calls, @max_live) END
		- (SELECT count(*) FROM calls c WHERE c.workspace_id = hop.workspace_id AND c.ended_at IS NULL AND c.direction = 'outbound')
		- (SELECT count(*) FROM dial_queue q WHERE q.workspace_id = hop.workspace_id AND q.state = 'queued' AND q.claimed_by IS NOT NULL) AS room,
	extract(epoch FROM now() - p.paced_until)::float8 AS rested
FROM hop
LEFT JOIN workspaces w ON w.workspace_id = hop.workspace_id
LEFT JOIN paces p ON p.workspace_id = hop.workspace_id
WHERE hop.workspace_id IS NOT NULL
	AND EXISTS (SELECT 1 FROM dial_queue q WHERE q.workspace_id = hop.workspace_id AND q.state = 'queued' AND q.look_at <= now())
ORDER BY random()`

const trunkRoom = `
SELECT @trunk::uuid AS workspace_id, @rate::float8 AS rate,
	@channels::bigint - (SELECT count(*) FROM calls c WHERE c.ended_at IS NULL AND c.direction = 'outbound') AS room,
	extract(epoch FROM now() - (SELECT p.paced_until FROM paces p WHERE p.workspace_id = @trunk))::float8 AS rested`

// allowance is what one workspace, or the trunk, may begin now.
type allowance struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Rate        float64   `db:"rate"`
	Room        int64     `db:"room"`
	Rested      *float64  `db:"rested"`
}

// window is how long unused pace is kept, in seconds; at a low rate as long as one call takes.
func (a allowance) window() float64 { return max(0.2, 1/a.Rate) }

// granted is how many dials room and pace allow now.
func (a allowance) granted() int {
	if a.Rate <= 0 {
		return 0
	}
	rested := a.window()
	if a.Rested != nil {
		rested = min(*a.Rested, rested)
	}
	return int(max(0, min(float64(a.Room), math.Floor(rested*a.Rate+1e-6))))
}

// behind is how far before now, in seconds, the pace stands once n dials were taken.
func (a allowance) behind(n int) float64 {
	rested := a.window()
	if a.Rested != nil {
		rested = min(*a.Rested, rested)
	}
	return rested - float64(n)/a.Rate
}

const claim = `
UPDATE dial_queue SET claimed_by = @instance, look_at = now() + @lease::interval
WHERE call_request_id = ANY (ARRAY(
	SELECT q.call_request_id FROM dial_queue q
	WHERE q.workspace_id = @workspace_id AND q.state = 'queued' AND q.look_at <= now() AND q.due_at >= now() - @queue_limit::interval
		AND NOT EXISTS (SELECT 1 FROM calls c
			WHERE c.workspace_id = q.workspace_id AND c.to_e164 = q.to_e164 AND c.ended_at IS NULL AND c.direction = 'outbound')
	ORDER BY q.look_at LIMIT @most FOR UPDATE OF q SKIP LOCKED))
RETURNING call_request_id, workspace_id, to_e164, agent_id, contact_id, variables, schedule_if_outside_hours,
	max_call_seconds, queued_at, due_at, looks, traceparent`

const pace = `
INSERT INTO paces (workspace_id, paced_until) VALUES (@workspace_id, now() - make_interval(secs => @behind))
ON CONFLICT (workspace_id) DO UPDATE SET paced_until = EXCLUDED.paced_until`

// Claim takes due requests for this process, workspaces sharing what room there is, within every limit. They are ours for the claim lease; what has not left
// the queue by then is anybody's again.
func (s *Store) Claim(ctx context.Context, room Room) (claimed []request.Request, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		claimed = nil
		if _, err := tx.Exec(ctx, claimLock); err != nil {
			return fmt.Errorf("lock claims: %w", err)
		}
		due, err := allowances(ctx, tx, dueWorkspaces, pgx.NamedArgs{
			"calls_per_second": tenant.DefaultCallsPerSecond, "max_live": tenant.DefaultMaxLiveCalls,
		})
		if err != nil || len(due) == 0 {
			return err
		}
		trunk, err := allowances(ctx, tx, trunkRoom, pgx.NamedArgs{
			"trunk": uuid.Nil, "rate": float64(room.CallsPerSecond), "channels": room.Channels,
		})
		if err != nil {
			return err
		}
		left := min(room.Slots, trunk[0].granted())
		for i, workspace := range due {
			share := min(workspace.granted(), max(1, left/(len(due)-i)))
			if left <= 0 || share <= 0 {
				continue
			}
			taken, err := s.claimOf(ctx, tx, workspace, share)
			if err != nil {
				return err
			}
			claimed, left = append(claimed, taken...), left-len(taken)
		}
		return paced(ctx, tx, trunk[0], len(claimed))
	})
	return claimed, err
}

func (s *Store) claimOf(ctx context.Context, tx pgx.Tx, workspace allowance, most int) ([]request.Request, error) {
	rows, err := tx.Query(ctx, claim, pgx.NamedArgs{
		"instance": s.instance, "lease": s.timing.ClaimLease, "queue_limit": s.timing.QueueLimit,
		"workspace_id": workspace.WorkspaceID, "most": most,
	})
	if err != nil {
		return nil, fmt.Errorf("claim due requests: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByName[request.Request])
	if err != nil {
		return nil, fmt.Errorf("claim due requests: %w", err)
	}
	return taken, paced(ctx, tx, workspace, len(taken))
}

func paced(ctx context.Context, tx pgx.Tx, a allowance, n int) error {
	if n == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, pace, pgx.NamedArgs{"workspace_id": a.WorkspaceID, "behind": a.behind(n)}); err != nil {
		return fmt.Errorf("pace %s: %w", a.WorkspaceID, err)
	}
	return nil
}

func allowances(ctx context.Context, tx pgx.Tx, query string, args pgx.NamedArgs) ([]allowance, error) {
	rows, err := tx.Query(ctx, query, args)
	if err != nil {
		return nil, fmt.Errorf("read room: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[allowance])
	if err != nil {
		return nil, fmt.Errorf("read room: %w", err)
	}
	return found, nil
}

const nextLook = `
SELECT extract(epoch FROM look_at - now())::float8 FROM dial_queue WHERE state = 'queued' ORDER BY look_at LIMIT 1`

// NextLook is how long until the next request is due; negative when one is due now, ok false when none waits.
func (s *Store) NextLook(ctx context.Context) (wait time.Duration, ok bool, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, nextLook).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read next due request: %w", err)
	}
	return time.Duration(min(seconds, 3600) * float64(time.Second)), true, nil
}
