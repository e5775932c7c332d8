package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/workspaces"
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

// The holder is read by the same statement that counts, so each request obeys the workspace and the
// revocation that were committed before it arrived. The limit is the holder's. There is no row if the
// key is revoked or unknown; nothing is counted then.
const takeKeyTurn = `WITH holder AS (
	SELECT k.id AS key_id, k.workspace_id, k.access, w.plan, w.status, w.features, w.rate_limit_per_minute
	FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
	WHERE k.id = @key_id AND k.revoked_at IS NULL
), policy AS (
	SELECT key_id, requests, (60000000 / requests) * interval '1 microsecond' AS step
	FROM (SELECT key_id, coalesce(rate_limit_per_minute, CASE plan WHEN 'scale' THEN @scale_rate::int
		ELSE @standard_rate::int END) AS requests
		FROM holder) AS limited
), counted AS (
	INSERT INTO rate_limits AS held (key, tat, allowed)
	SELECT 'key ' || key_id, clock_timestamp() + step, true FROM policy
	ON CONFLICT (key) DO UPDATE SET (tat, allowed) = (
		SELECT CASE WHEN fits THEN next ELSE held.tat END, fits
		FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
		CROSS JOIN (SELECT step, step * requests AS span FROM policy) AS cost
		CROSS JOIN LATERAL (SELECT greatest(held.tat, clock.now) + cost.step AS next) AS counted
		CROSS JOIN LATERAL (SELECT counted.next <= clock.now + cost.span AS fits) AS judged)
	RETURNING allowed, tat - clock_timestamp() AS ahead
)
SELECT key_id, workspace_id, access, plan, status, features, rate_limit_per_minute, allowed, ahead FROM holder, counted`

type keyTurn struct {
	Principal
	turn
}

// TakeKeyTurn counts one request of an API key. It returns the key's holder as it is now, and
// pg.ErrNotFound if the key is revoked.
func (s *Store) TakeKeyTurn(ctx context.Context, keyID uuid.UUID) (Principal, ratelimit.Status, error) {
	taken, err := pg.One[keyTurn](ctx, s.pool, takeKeyTurn, pgx.NamedArgs{
		"key_id": keyID, "standard_rate": workspaces.StandardRate, "scale_rate": workspaces.ScaleRate,
	})
	if err != nil {
		return Principal{}, ratelimit.Anonymous.Unknown(), fmt.Errorf("count a request of key %s: %w", keyID, err)
	}
	return taken.Principal, taken.Policy().Status(taken.Allowed, taken.Ahead), nil
}

type turn struct {
	Allowed bool
	Ahead   time.Duration
}

// Allow counts one request of key and says where it stands.
func (s *Store) Allow(ctx context.Context, key string, policy ratelimit.Policy) (ratelimit.Status, error) {
	taken, err := pg.One[turn](ctx, s.pool, takeTurn, pgx.NamedArgs{"key": key, "step": policy.Step(),
		"span": policy.Span()})
	if err != nil {
		return policy.Unknown(), fmt.Errorf("count a request: %w", err)
	}
	return policy.Status(taken.Allowed, taken.Ahead), nil
}

const forgetTurns = `DELETE FROM rate_limits WHERE tat < now() - interval '1 minute'`

// DeleteExpiredLimits deletes the counts of those who have their whole limit again, and says how many.
func (s *Store) DeleteExpiredLimits(ctx context.Context) (int64, error) {
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
