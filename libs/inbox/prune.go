package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

const pruneRows = 5000

// In small steps, so that no transaction is long. What is parked is on a list of its own and stays.
const pruneIDs = `
DELETE FROM inbox WHERE (consumer, topic, event_id) IN (
	SELECT consumer, topic, event_id FROM inbox
	WHERE received_at < now() - $1::float8 * interval '1 second'
	ORDER BY received_at LIMIT $2)`

// Prune forgets event ids older than Keep. Run does it hourly.
func (c *Consumer) Prune(ctx context.Context) error {
	for {
		tag, err := c.pool.Exec(ctx, pruneIDs, Keep.Seconds(), pruneRows)
		if err != nil {
			return fmt.Errorf("prune inbox: %w", err)
		}
		c.metrics.pruned.Add(float64(tag.RowsAffected()))
		if tag.RowsAffected() < pruneRows {
			return nil
		}
	}
}

func (c *Consumer) keepPruning(ctx context.Context) {
	for {
		pause(ctx, 30*time.Minute+rand.N(time.Hour)) // hourly, and not all replicas at once
		if ctx.Err() != nil {
			return
		}
		if err := c.Prune(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("inbox was not pruned", "consumer", c.name, "err", err)
		}
	}
}
