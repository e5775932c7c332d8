package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

// waitingStart, a limit per workspace, waitingEnd and a condition form an SQL expression. It
// returns the waiting requests of the workspaces for which the condition is true, without claimed
// and held requests. It does not read the requests of other workspaces.
const (
	waitingStart = `(SELECT q.due_at FROM workspaces w
	LEFT JOIN LATERAL (SELECT b.scan_from FROM rate_buckets b WHERE b.scope = w.workspace_id::text
		ORDER BY b.version DESC LIMIT 1) b ON true
	CROSS JOIN LATERAL (SELECT q.due_at FROM dial_queue q
		WHERE q.workspace_id = w.workspace_id AND q.state = 'queued' AND q.look_at >= coalesce(b.scan_from, '-infinity')
			AND q.look_at <= now() AND q.due_at <= now()
		ORDER BY q.look_at LIMIT `
	waitingEnd = `) q WHERE `
	isPaused   = `(` + allPaused + ` OR w.workspace_id IN ` + pausedWorkspaces + `)`
	somePaused = `EXISTS (SELECT FROM dialing_pauses p
		WHERE p.level = ANY ('{everything,workspace,agent}') AND p.ends_at > now())`
)

// countDepth counts each kind of queued requests through a partial index, and stops at 10,000. The
// count in_use has the condition of a claim, so that it reads few dead rows. The other counts can
// read many dead rows (docs/adr/0011-count-live-calls-in-the-claim.md). Due requests whose dialing
// is paused are counted separately, because more dialer processes would not dial them.
const countDepth = `
SELECT CASE WHEN ` + somePaused + `
		THEN (SELECT count(*) FROM ` + waitingStart + `10000` + waitingEnd + `NOT ` + isPaused + ` LIMIT 10000) AS bounded)
		ELSE (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at <= now() LIMIT 10000) AS bounded)
		END AS due,
       (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at > now() LIMIT 10000) AS bounded) AS ahead,
       CASE WHEN ` + somePaused + `
		THEN (SELECT count(*) FROM (
			(SELECT FROM ` + waitingStart + `10000` + waitingEnd + isPaused + ` LIMIT 10000) AS of_workspaces)
			UNION ALL
			(SELECT FROM dialing_states s CROSS JOIN LATERAL (SELECT FROM dial_queue q
				WHERE q.agent_id = s.id AND q.state = 'queued' AND q.claimed_by IS NULL AND q.look_at = 'infinity' LIMIT 10000) q
				WHERE s.level = 'agent' LIMIT 10000)
			LIMIT 10000) AS bounded)
		ELSE 0 END AS paused,
       CASE WHEN ` + somePaused + `
		THEN coalesce((SELECT extract(epoch FROM now() - min(due_at))
			FROM ` + waitingStart + `1` + waitingEnd + `NOT ` + isPaused + `) AS first), 0)
		ELSE coalesce((SELECT extract(epoch FROM now() - due_at) FROM dial_queue
			WHERE state = 'queued' AND due_at <= now() ORDER BY due_at LIMIT 1), 0)
		END::double precision AS oldest_due_seconds,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'outbound') AS outbound,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'inbound' AND ` + isCounted + `) AS inbound,
       (SELECT count(*) FROM dial_queue WHERE (state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL)
		AND look_at >= coalesce((SELECT b.scan_from FROM rate_buckets b WHERE b.scope = 'total'
			ORDER BY b.version DESC LIMIT 1), '-infinity')
		AND (state = 'dialing' OR look_at > now())) AS in_use,
       (SELECT count(*) FROM opt_outs WHERE acknowledged_at IS NULL) AS unreported_opt_outs`

// Depth contains the numbers of queued requests and live calls. The values Due, Ahead and Paused
// stop at 10,000.
type Depth struct {
	Due   int64
	Ahead int64
	// Paused is the number of due requests whose dialing is paused. They are not included in Due and
	// OldestDueSeconds.
	Paused           int64
	OldestDueSeconds float64
	Outbound         int64
	Inbound          int64
	// InUse is the number of requests that are claimed or in a call, as the limits count them.
	InUse             int64
	UnreportedOptOuts int64
}

// ReadDepth returns the Depth of all workspaces together.
func ReadDepth(ctx context.Context, pool *pgxpool.Pool) (Depth, error) {
	found, err := pg.One[Depth](ctx, pool, countDepth, nil)
	if err != nil {
		return Depth{}, fmt.Errorf("count queued requests and live calls: %w", err)
	}
	return found, nil
}
