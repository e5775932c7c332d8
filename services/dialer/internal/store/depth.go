package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

// Each count of queued requests reads a partial index and stops at 10,000. Requests in use are
// counted as in a claim, so that few dead rows are read. The other counts can read dead rows
// (docs/adr/0011-count-live-calls-in-the-claim.md).
const countDepth = `
SELECT (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at <= now() LIMIT 10000) AS bounded) AS due,
       (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at > now() LIMIT 10000) AS bounded) AS ahead,
       coalesce((SELECT extract(epoch FROM now() - due_at) FROM dial_queue
                 WHERE state = 'queued' AND due_at <= now() ORDER BY due_at LIMIT 1), 0)::double precision AS oldest_due_seconds,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'outbound') AS outbound,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'inbound' AND ` + isCounted + `) AS inbound,
       (SELECT count(*) FROM dial_queue WHERE (state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL)
		AND look_at >= coalesce((SELECT b.scan_from FROM rate_buckets b WHERE b.scope = 'total'
			ORDER BY b.version DESC LIMIT 1), '-infinity')
		AND (state = 'dialing' OR look_at > now())) AS in_use,
       (SELECT count(*) FROM opt_outs WHERE acknowledged_at IS NULL) AS unreported_opt_outs`

// Depth contains the numbers of queued requests and live calls. Due and Ahead stop at 10,000.
type Depth struct {
	Due              int64
	Ahead            int64
	OldestDueSeconds float64
	Outbound         int64
	Inbound          int64
	// InUse is the number of requests that are claimed or in a call, as the limits count them.
	InUse             int64
	UnreportedOptOuts int64
}

// ReadDepth returns the counts over all workspaces.
func ReadDepth(ctx context.Context, pool *pgxpool.Pool) (Depth, error) {
	found, err := pg.One[Depth](ctx, pool, countDepth, nil)
	if err != nil {
		return Depth{}, fmt.Errorf("count queued requests and live calls: %w", err)
	}
	return found, nil
}
