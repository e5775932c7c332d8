// Package depth owns the statement that counts what waits in the dial queue and what is under way, for the metrics alone.
package depth

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Each count is bounded, and goes by a partial index: a queue of a million costs what one of ten thousand does.
const count = `
SELECT (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at <= now() LIMIT 10000) AS bounded) AS due,
       (SELECT count(*) FROM (SELECT FROM dial_queue WHERE state = 'queued' AND due_at > now() LIMIT 10000) AS bounded) AS ahead,
       coalesce((SELECT extract(epoch FROM now() - due_at) FROM dial_queue
                 WHERE state = 'queued' AND due_at <= now() ORDER BY due_at LIMIT 1), 0)::double precision AS oldest_due_seconds,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'outbound') AS outbound,
       (SELECT count(*) FROM calls WHERE ended_at IS NULL AND direction = 'inbound') AS inbound,
       (SELECT count(*) FROM opt_outs WHERE acknowledged_at IS NULL) AS untold_opt_outs`

const slots = `SELECT trunk, count(*) AS taken FROM slots GROUP BY trunk`

// Depth is how much there is at one instant. Due and Ahead are counted up to 10 000.
type Depth struct {
	Due              int64
	Ahead            int64
	OldestDueSeconds float64
	Outbound         int64
	Inbound          int64
	UntoldOptOuts    int64
	// Slots taken, by trunk.
	Slots map[string]int64 `db:"-"`
}

// Read counts over all workspaces.
func Read(ctx context.Context, pool *pgxpool.Pool) (Depth, error) {
	rows, err := pool.Query(ctx, count)
	if err != nil {
		return Depth{}, fmt.Errorf("count what waits: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Depth])
	if err != nil {
		return Depth{}, fmt.Errorf("count what waits: %w", err)
	}
	if rows, err = pool.Query(ctx, slots); err != nil {
		return Depth{}, fmt.Errorf("count slots: %w", err)
	}
	type slot struct {
		Trunk string
		Taken int64
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByName[slot])
	if err != nil {
		return Depth{}, fmt.Errorf("count slots: %w", err)
	}
	found.Slots = make(map[string]int64, len(taken))
	for _, of := range taken {
		found.Slots[of.Trunk] = of.Taken
	}
	return found, nil
}
