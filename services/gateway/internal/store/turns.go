package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/gateway/internal/quota"
)

// One statement decides, under the row's lock, so any number of replicas count as one. The clock is the database's, read once the row
// is ours: who waited for it is judged by the time of its turn, not of its coming, and is never behind who went before.
const takeTurn = `INSERT INTO rate_limits AS held (key, tat, allowed)
VALUES (@key, clock_timestamp() + @step::interval, true)
ON CONFLICT (key) DO UPDATE SET (tat, allowed) = (
	SELECT CASE WHEN fits THEN next ELSE held.tat END, fits
	FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
	CROSS JOIN LATERAL (SELECT greatest(held.tat, clock.now) + @step::interval AS next) AS counted
	CROSS JOIN LATERAL (SELECT counted.next <= clock.now + @span::interval AS fits) AS judged)
RETURNING allowed, tat - clock_timestamp() AS ahead`

type turn struct {
	Allowed bool
	Ahead   time.Duration
}

// TakeTurn counts one request of key and says where it stands.
func (s *Store) TakeTurn(ctx context.Context, key string, policy quota.Policy) (quota.Standing, error) {
	taken, err := one[turn](ctx, s.pool, takeTurn, pgx.NamedArgs{"key": key, "step": policy.Step(), "span": policy.Span()})
	if err != nil {
		return policy.Unknown(), fmt.Errorf("count a request: %w", err)
	}
	return policy.Standing(taken.Allowed, taken.Ahead), nil
}

const forgetTurns = `DELETE FROM rate_limits WHERE tat < now() - interval '1 minute'`

// ForgetTurns deletes the counts of those who have their whole limit again, and says how many.
func (s *Store) ForgetTurns(ctx context.Context) (int64, error) {
	tag, err := s.pool.Exec(ctx, forgetTurns)
	if err != nil {
		return 0, fmt.Errorf("forget counts: %w", err)
	}
	return tag.RowsAffected(), nil
}

const ping = `SELECT 1`

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, ping); err != nil {
		return fmt.Errorf("ping the database: %w", err)
	}
	return nil
}
