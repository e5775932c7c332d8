package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

const countChannels = `
SELECT trunk_id, count(*) AS calls FROM sip_legs WHERE ended_at IS NULL AND ` + isCounted + ` GROUP BY trunk_id`

// Channels returns the number of live calls of each trunk, over all processes.
func (j *Legs) Channels(ctx context.Context) (map[uuid.UUID]int, error) {
	return Channels(ctx, j.pool)
}

// Channels returns the number of live calls of each trunk, over all processes.
func Channels(ctx context.Context, pool *pgxpool.Pool) (map[uuid.UUID]int, error) {
	rows, err := pool.Query(ctx, countChannels)
	if err != nil {
		return nil, fmt.Errorf("count channels: %w", err)
	}
	live, id, calls := map[uuid.UUID]int{}, uuid.Nil, 0
	if _, err := pgx.ForEachRow(rows, []any{&id, &calls}, func() error { live[id] = calls; return nil }); err != nil {
		return nil, fmt.Errorf("count channels: %w", err)
	}
	return live, nil
}

const (
	requestHangup = `
WITH s AS (
	UPDATE sip_legs SET hangup_at = coalesce(hangup_at, now()) WHERE call_id = @call_id RETURNING *
)` + changedLegs
	requestAnswer = `
WITH s AS (
	UPDATE sip_legs SET pickup_at = coalesce(pickup_at, now()) WHERE call_id = @call_id RETURNING *
)` + changedLegs
	changedLegs = `
SELECT ` + legColumns + ` FROM s LEFT JOIN calls c ON c.call_id = s.call_id`
)

// RequestHangup stores a request to end the call, for the owner of its leg, and returns the leg. It
// returns pg.ErrNotFound if the call has no leg.
func (j *Legs) RequestHangup(ctx context.Context, callID uuid.UUID) (Leg, error) {
	return j.queryLeg(ctx, requestHangup, callID)
}

// RequestAnswer stores a request to answer the call, for the owner of its leg, and returns the leg.
// It returns pg.ErrNotFound if the call has no leg.
func (j *Legs) RequestAnswer(ctx context.Context, callID uuid.UUID) (Leg, error) {
	return j.queryLeg(ctx, requestAnswer, callID)
}

const legHeartbeat = `
WITH alive AS (
	INSERT INTO sip_leg_owners (owner) VALUES (@owner) ON CONFLICT (owner) DO UPDATE SET seen_at = now()
)
SELECT ` + legColumns + ` FROM sip_legs s LEFT JOIN calls c ON c.call_id = s.call_id
WHERE s.owner = @owner AND s.ended_at IS NULL
	AND (s.hangup_at IS NOT NULL OR s.pickup_at IS NOT NULL AND s.answered_at IS NULL)`

// Heartbeat stores the heartbeat of this owner. It returns those legs of this owner that other
// processes requested to end or to answer.
func (j *Legs) Heartbeat(ctx context.Context) ([]Leg, error) {
	start := time.Now()
	asked, err := queryLegs(ctx, j.heartbeats, legHeartbeat, pg.Args{"owner": j.owner})
	j.monitor.Observe(start, err)
	return asked, err
}

// adoptLegs takes over legs only if this process has sent a heartbeat within half a lease. After an
// outage of the database, the heartbeats of all processes are old, although the processes are
// alive.
const adoptLegs = `
WITH s AS (
UPDATE sip_legs SET owner = @owner WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM sip_legs c
	WHERE c.ended_at IS NULL AND c.owner <> @owner
		AND NOT EXISTS (SELECT 1 FROM sip_leg_owners o WHERE o.owner = c.owner AND o.seen_at > now() - @lease::interval)
		AND EXISTS (SELECT 1 FROM sip_leg_owners o WHERE o.owner = @owner AND o.seen_at > now() - @lease::interval / 2)
	LIMIT 100 FOR UPDATE OF c SKIP LOCKED))
RETURNING *
)` + changedLegs

// Adopt makes this owner the owner of up to 100 live legs of dead owners, and returns these legs.
// It returns none while this owner's heartbeats are late, and for one lease after a late heartbeat.
func (j *Legs) Adopt(ctx context.Context) ([]Leg, error) {
	if !j.monitor.Healthy() {
		return nil, nil
	}
	return queryLegs(ctx, j.pool, adoptLegs, pg.Args{"owner": j.owner, "lease": j.lease})
}

const liveOwners = `SELECT count(*) FROM sip_leg_owners WHERE seen_at > now() - @lease::interval`

// LiveOwners returns the number of owners that have sent a heartbeat within the lease.
func (j *Legs) LiveOwners(ctx context.Context) (n int, err error) {
	if err := j.pool.QueryRow(ctx, liveOwners, pg.Args{"lease": j.lease}).Scan(&n); err != nil {
		return 0, fmt.Errorf("count live owners: %w", err)
	}
	return n, nil
}

const lostLegs = `
SELECT call_id FROM sip_legs WHERE call_id = ANY (@calls) AND (owner <> @owner OR ended_at IS NOT NULL)`

// LostLegs returns the given calls whose leg belongs to another owner or has ended.
func (j *Legs) LostLegs(ctx context.Context, calls []uuid.UUID) ([]uuid.UUID, error) {
	found, err := pg.Values[uuid.UUID](ctx, j.pool, lostLegs, pg.Args{"calls": calls, "owner": j.owner})
	if err != nil {
		return nil, fmt.Errorf("find lost legs: %w", err)
	}
	return found, nil
}

func queryLegs(ctx context.Context, pool *pgxpool.Pool, sql string, args pg.Args) ([]Leg, error) {
	found, err := pg.Many[Leg](ctx, pool, sql, args)
	if err != nil {
		return nil, fmt.Errorf("read legs: %w", err)
	}
	return found, nil
}

const (
	// The analysis of a call reads callback_at from the leg. So the leg is kept until the analysis
	// has ended.
	pruneCalls = `
DELETE FROM sip_legs WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM sip_legs c
	WHERE c.ended_at < now() - @older::interval
		AND NOT EXISTS (SELECT 1 FROM calls
			WHERE calls.call_id = c.call_id AND (calls.analyse_at IS NOT NULL OR calls.ended_at IS NULL))
	LIMIT 1000))`
	pruneOwners = `
DELETE FROM sip_leg_owners o
WHERE o.seen_at < now() - interval '1 day'
	AND NOT EXISTS (SELECT 1 FROM sip_legs c WHERE c.owner = o.owner AND c.ended_at IS NULL)`
	pruneAttempts = `
DELETE FROM sip_attempts WHERE attempt_id = ANY (ARRAY(
	SELECT a.attempt_id FROM sip_attempts a
	WHERE a.started_at < now() - @attempts::interval
	ORDER BY a.started_at LIMIT 1000))`

	// keepAttempts is how long the attempts of a call are kept for operators.
	keepAttempts = 30 * 24 * time.Hour
)

// Prune deletes legs that ended longer ago than minAge, attempts that started more than 30 days
// ago, and owners without heartbeats. It deletes at most 1000 legs and 1000 attempts, and returns
// the number of deleted rows.
func (j *Legs) Prune(ctx context.Context, minAge time.Duration) (deleted int64, err error) {
	for _, sql := range []string{pruneCalls, pruneOwners, pruneAttempts} {
		done, err := j.pool.Exec(ctx, sql, pg.Args{"older": minAge, "attempts": keepAttempts})
		if err != nil {
			return deleted, fmt.Errorf("delete old legs and attempts: %w", err)
		}
		deleted += done.RowsAffected()
	}
	return deleted, nil
}
