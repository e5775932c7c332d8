package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
)

// page is how many news are read at once.
const page = 500

const news = `
SELECT f.feed, n.seq, n.at, n.kind, n.call_id, n.role, n.text, n.spoken_until,
	c.inbound, c.from_number, c.to_number, c.dialed_at, c.cause, c.by_us, c.outcome, c.reached, c.disclosure
FROM sip_feed f
LEFT JOIN LATERAL (
	SELECT seq, at, kind, call_id, role, text, spoken_until FROM sip_news WHERE seq > @after ORDER BY seq LIMIT @rows
) n ON true
LEFT JOIN sip_calls c ON c.call_id = n.call_id
ORDER BY n.seq`

type line struct {
	Feed     uuid.UUID  `db:"feed"`
	Seq      *int64     `db:"seq"`
	At       *time.Time `db:"at"`
	Kind     *string    `db:"kind"`
	CallID   *uuid.UUID `db:"call_id"`
	Role     *string    `db:"role"`
	Text     *string    `db:"text"`
	Inbound  *bool      `db:"inbound"`
	From     *string    `db:"from_number"`
	To       *string    `db:"to_number"`
	DialedAt *time.Time `db:"dialed_at"`
	Cause    *string    `db:"cause"`
	ByUs     *bool      `db:"by_us"`
	Outcome  *string    `db:"outcome"`
	Reached  *string    `db:"reached"`

	SpokenUntil *time.Time              `db:"spoken_until"`
	Disclosure  *agent.DisclosureRecord `db:"disclosure"`
}

// News is one thing that happened to a call, as it was by then; the call itself is as it is now.
type News struct {
	Seq  int64
	At   time.Time
	Kind Kind
	// Role and Text are of what was said.
	Role, Text string
	// SpokenUntil is when the last of an agent's Text was played; zero: that is not known.
	SpokenUntil time.Time
	Call        Call
}

// News are those after a place, at most 500, and the feed's name.
func (j *Journal) News(ctx context.Context, after int64) (feed string, told []News, err error) {
	rows, err := j.pool.Query(ctx, news, pg.Args{"after": after, "rows": page})
	if err != nil {
		return "", nil, fmt.Errorf("read news after %d: %w", after, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByName[line])
	if err != nil {
		return "", nil, fmt.Errorf("read news after %d: %w", after, err)
	}
	for _, l := range lines {
		feed = l.Feed.String()
		if l.Seq == nil {
			continue
		}
		one := News{Seq: *l.Seq, At: *l.At, Kind: Kind(*l.Kind), Role: *l.Role, Text: *l.Text, Call: Call{
			CallID: *l.CallID, Inbound: *l.Inbound, From: *l.From, To: *l.To, DialedAt: l.DialedAt, Cause: call.Cause(*l.Cause), ByUs: *l.ByUs,
			Outcome: *l.Outcome, Reached: *l.Reached, Disclosure: l.Disclosure,
		}}
		if l.SpokenUntil != nil {
			one.SpokenUntil = *l.SpokenUntil
		}
		told = append(told, one)
	}
	return feed, told, nil
}

const channels = `SELECT trunk_id, count(*) AS calls FROM sip_calls WHERE ended_at IS NULL GROUP BY trunk_id`

// Channels counts the live calls of every trunk, over all processes.
func (j *Journal) Channels(ctx context.Context) (map[uuid.UUID]int, error) {
	return Channels(ctx, j.pool)
}

// Channels counts the live calls of every trunk, over all processes.
func Channels(ctx context.Context, pool *pgxpool.Pool) (map[uuid.UUID]int, error) {
	rows, err := pool.Query(ctx, channels)
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
	askHangup = `
UPDATE sip_calls SET hangup_at = coalesce(hangup_at, now()) WHERE call_id = @call_id RETURNING ` + columns
	askPickup = `
UPDATE sip_calls SET pickup_at = coalesce(pickup_at, now()) WHERE call_id = @call_id RETURNING ` + columns
)

// AskHangup asks the owner to end the call, AskPickup to answer it; what is answered is what is known now. ErrNone when there is no such call.
func (j *Journal) AskHangup(ctx context.Context, callID uuid.UUID) (Call, error) {
	return j.one(ctx, askHangup, callID)
}

// AskPickup is AskHangup's sister.
func (j *Journal) AskPickup(ctx context.Context, callID uuid.UUID) (Call, error) {
	return j.one(ctx, askPickup, callID)
}

const beat = `
WITH alive AS (
	INSERT INTO sip_owners (owner) VALUES (@owner) ON CONFLICT (owner) DO UPDATE SET seen_at = now()
)
SELECT ` + columns + ` FROM sip_calls
WHERE owner = @owner AND ended_at IS NULL AND (hangup_at IS NOT NULL OR pickup_at IS NOT NULL AND answered_at IS NULL)`

// Beat stores the owner's heartbeat. It returns the owner's calls that are to be ended or answered.
func (j *Journal) Beat(ctx context.Context) ([]Call, error) {
	start := time.Now()
	asked, err := many(ctx, j.beats, beat, pg.Args{"owner": j.owner})
	j.monitor.Observe(start, err)
	return asked, err
}

// Only a process that has itself been seen lately judges others: after an outage of the database everybody looks dead.
const adopt = `
UPDATE sip_calls SET owner = @owner WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM sip_calls c
	WHERE c.ended_at IS NULL AND c.owner <> @owner
		AND NOT EXISTS (SELECT 1 FROM sip_owners o WHERE o.owner = c.owner AND o.seen_at > now() - @lease::interval)
		AND EXISTS (SELECT 1 FROM sip_owners o WHERE o.owner = @owner AND o.seen_at > now() - @lease::interval / 2)
	LIMIT 100 FOR UPDATE OF c SKIP LOCKED))
RETURNING ` + columns

// Adopt makes this owner the owner of the live calls of dead owners, and returns them. It adopts
// nothing while this owner's own heartbeats are slow.
func (j *Journal) Adopt(ctx context.Context) ([]Call, error) {
	if !j.monitor.Healthy() {
		return nil, nil
	}
	return many(ctx, j.pool, adopt, pg.Args{"owner": j.owner, "lease": j.lease})
}

const living = `SELECT count(*) FROM sip_owners WHERE seen_at > now() - @lease::interval`

// Living is how many owners live.
func (j *Journal) Living(ctx context.Context) (n int, err error) {
	if err := j.pool.QueryRow(ctx, living, pg.Args{"lease": j.lease}).Scan(&n); err != nil {
		return 0, fmt.Errorf("count who lives: %w", err)
	}
	return n, nil
}

const lost = `SELECT call_id FROM sip_calls WHERE call_id = ANY (@calls) AND (owner <> @owner OR ended_at IS NOT NULL)`

// Lost are those of the calls that are not ours any more: another process has taken them over, thinking us dead, or they have ended.
func (j *Journal) Lost(ctx context.Context, calls []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := j.pool.Query(ctx, lost, pg.Args{"calls": calls, "owner": j.owner})
	if err != nil {
		return nil, fmt.Errorf("look for lost calls: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for lost calls: %w", err)
	}
	return gone, nil
}

func many(ctx context.Context, pool *pgxpool.Pool, sql string, args pg.Args) ([]Call, error) {
	rows, err := pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Call])
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return found, nil
}

const (
	pruneNews = `
DELETE FROM sip_news WHERE seq = ANY (ARRAY(
	SELECT n.seq FROM sip_news n
	WHERE n.at < now() - @older::interval AND n.seq <= (SELECT min(cursor) FROM feeds WHERE trunk = @trunk)
	ORDER BY n.seq LIMIT 1000))`
	// The analysis of a call reads callback_at here, and it can be late.
	pruneCalls = `
DELETE FROM sip_calls WHERE call_id = ANY (ARRAY(
	SELECT c.call_id FROM sip_calls c
	WHERE c.ended_at < now() - @older::interval AND NOT EXISTS (SELECT 1 FROM sip_news n WHERE n.call_id = c.call_id)
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.call_id = c.call_id AND calls.analyse_at IS NOT NULL)
	LIMIT 1000))`
	pruneOwners = `
DELETE FROM sip_owners o
WHERE o.seen_at < now() - interval '1 day'
	AND NOT EXISTS (SELECT 1 FROM sip_calls c WHERE c.owner = o.owner AND c.ended_at IS NULL)`
	pruneAttempts = `
DELETE FROM sip_attempts WHERE attempt_id = ANY (ARRAY(
	SELECT a.attempt_id FROM sip_attempts a
	WHERE a.started_at < now() - @attempts::interval
	ORDER BY a.started_at LIMIT 1000))`

	// keepAttempts is how long operators can read the attempts of a call.
	keepAttempts = 30 * 24 * time.Hour
)

// Prune forgets, a thousand at a time, what was told and read of calls that long ago, and answers how many rows went.
// It deletes attempts that started more than 30 days ago, also a thousand at a time.
func (j *Journal) Prune(ctx context.Context, trunk string, older time.Duration) (gone int64, err error) {
	for _, sql := range []string{pruneNews, pruneCalls, pruneOwners, pruneAttempts} {
		done, err := j.pool.Exec(ctx, sql, pg.Args{"trunk": trunk, "older": older, "attempts": keepAttempts})
		if err != nil {
			return gone, fmt.Errorf("prune the journal: %w", err)
		}
		gone += done.RowsAffected()
	}
	return gone, nil
}
