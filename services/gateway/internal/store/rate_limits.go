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

// countRequest locks the row, so that concurrent counts run one after the other and are exact for
// all replicas. It reads clock_timestamp() after the row is locked. So a request that waited for
// the lock is never counted at an earlier time than the previous request.
const countRequest = `INSERT INTO rate_limits AS held (key, tat, allowed)
VALUES (@key, clock_timestamp() + @step::interval, true)
ON CONFLICT (key) DO UPDATE SET (tat, allowed) = (
	SELECT CASE WHEN fits THEN next ELSE held.tat END, fits
	FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
	CROSS JOIN LATERAL (SELECT greatest(held.tat, clock.now) + @step::interval AS next) AS counted
	CROSS JOIN LATERAL (SELECT counted.next <= clock.now + @span::interval AS fits) AS judged)
RETURNING allowed, tat - clock_timestamp() AS ahead`

// countKeyRequest reads the holder of the key and counts the request. So each request uses the
// settings and revocations that were committed before the request arrived. If the key is revoked or
// unknown, the statement returns no row and counts nothing.
const countKeyRequest = `WITH holder AS (
	SELECT k.id AS key_id, k.name AS key_name, k.workspace_id, k.access, w.plan, w.status, w.features,
	    w.rate_limit_per_minute
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
SELECT key_id, key_name, workspace_id, access, plan, status, features, rate_limit_per_minute, allowed, ahead
    FROM holder, counted`

type keyRequestCount struct {
	Principal
	requestCount
}

// CountKeyRequest counts one request of an API key and returns the current holder of the key. It
// returns pg.ErrNotFound if the key is revoked.
func (s *Store) CountKeyRequest(ctx context.Context, keyID uuid.UUID) (Principal, ratelimit.Status, error) {
	taken, err := pg.One[keyRequestCount](ctx, s.pool, countKeyRequest, pgx.NamedArgs{
		"key_id": keyID, "standard_rate": workspaces.DefaultRate, "scale_rate": workspaces.ScaleRate,
	})
	if err != nil {
		return Principal{}, ratelimit.Anonymous.Unknown(), fmt.Errorf("count a request of key %s: %w", keyID, err)
	}
	return taken.Principal, taken.Policy().Status(taken.Allowed, taken.Ahead), nil
}

type requestCount struct {
	Allowed bool
	Ahead   time.Duration
}

// CountRequest counts one request under the counter key and returns the status of the limit.
func (s *Store) CountRequest(ctx context.Context, key string, policy ratelimit.Policy) (ratelimit.Status, error) {
	taken, err := pg.One[requestCount](ctx, s.pool, countRequest, pgx.NamedArgs{"key": key, "step": policy.Step(),
		"span": policy.Span()})
	if err != nil {
		return policy.Unknown(), fmt.Errorf("count a request: %w", err)
	}
	return policy.Status(taken.Allowed, taken.Ahead), nil
}

const deleteExpiredLimits = `DELETE FROM rate_limits WHERE tat < now() - interval '1 minute'`

// DeleteExpiredLimits deletes the counters whose whole limit is available again, and returns their
// number.
func (s *Store) DeleteExpiredLimits(ctx context.Context) (int64, error) {
	tag, err := s.pool.Exec(ctx, deleteExpiredLimits)
	if err != nil {
		return 0, fmt.Errorf("delete expired rate limits: %w", err)
	}
	return tag.RowsAffected(), nil
}

const ping = `SELECT 1`

// Ping returns an error if the database does not respond.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, ping); err != nil {
		return fmt.Errorf("ping the database: %w", err)
	}
	return nil
}
