package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/call"
)

// Place is how far a carrier's feed was read.
type Place struct {
	Feed   string `db:"feed"`
	Cursor int64  `db:"cursor"`
}

// Arrived is an inbound call as the carrier tells of it.
type Arrived struct {
	CallID    uuid.UUID
	From, To  string
	RingingAt time.Time
}

const openFeed = `INSERT INTO feeds (trunk) VALUES (@trunk) ON CONFLICT (trunk) DO NOTHING`

const readFeed = `
UPDATE feeds SET reader = @instance, reader_until = now() + @lease::interval
WHERE trunk = @trunk AND (reader = @instance OR reader_until <= now()) AND ` + onServer + `
RETURNING feed, cursor`

// ReadFeed makes this process the reader of a trunk's news for one instance lease, or longer with the next call, and answers the place to read on
// from. mine is false while another process reads.
func (s *Store) ReadFeed(ctx context.Context, trunk string) (place Place, mine bool, err error) {
	args := pg.Args{
		"trunk": trunk, "instance": s.instance, "lease": s.timing.InstanceLease, "server": s.server(),
	}
	for range 2 {
		rows, err := s.pool.Query(ctx, readFeed, args)
		if err != nil {
			return Place{}, false, fmt.Errorf("read place in feed %s: %w", trunk, err)
		}
		place, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Place])
		if err == nil {
			return place, true, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return Place{}, false, fmt.Errorf("read place in feed %s: %w", trunk, err)
		}
		if _, err := s.pool.Exec(ctx, openFeed, args); err != nil {
			return Place{}, false, fmt.Errorf("open feed %s: %w", trunk, err)
		}
	}
	return Place{}, false, nil
}

const moveOn = `
UPDATE feeds SET feed = @feed, cursor = @cursor, reader_until = now() + @lease::interval
WHERE trunk = @trunk AND reader = @instance AND feed = @was_feed AND cursor = @was_cursor
	AND ` + onServer

// Nobody answers for a workspace that is suspended: the call is an orphan, and turned away.
const insertArrival = `
INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at, max_call_seconds,
	end_by, deadline_at, answer_at)
SELECT @call_id, n.workspace_id, 'inbound', @from, n.phone_e164, n.agent_id, 'ringing', @ringing_at, coalesce(nullif(a.max_call_seconds, 0), 600),
	now() + @ring_limit::interval, now() + @ring_limit::interval + @grace::interval, now()
FROM numbers n LEFT JOIN agents a ON a.agent_id = n.agent_id
WHERE n.phone_e164 = @to AND NOT coalesce(a.deleted, false)
	AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.workspace_id = n.workspace_id AND w.status = 'suspended')
ON CONFLICT (call_id) DO NOTHING`

const serves = `
SELECT EXISTS (
	SELECT 1 FROM numbers n LEFT JOIN agents a ON a.agent_id = n.agent_id
	WHERE n.phone_e164 = @to AND NOT coalesce(a.deleted, false)
		AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.workspace_id = n.workspace_id AND w.status = 'suspended'))`

// Serves reports whether inbound calls to a number are answered: it is assigned to an agent, and its workspace
// is not suspended.
func (s *Store) Serves(ctx context.Context, to string) (served bool, err error) {
	if err = s.pool.QueryRow(ctx, serves, pg.Args{"to": to}).Scan(&served); err != nil {
		return false, fmt.Errorf("look up an inbound number: %w", err)
	}
	return served, nil
}

const insertOrphans = `
INSERT INTO orphans (call_id) SELECT unnest(@call_ids::uuid[])
ON CONFLICT (call_id) DO NOTHING`

// Folded is what a batch of news tells besides what became of our calls.
type Folded struct {
	// Orphans live at the carrier and not here: DueHangups lists them until they are forgotten.
	Orphans []uuid.UUID
}

// News is what one batch of a feed does.
type News struct {
	Trunk    string
	From, To Place
	Arrived  []Arrived
	// Calls are the ids of all calls in the batch; Fold changes them and tells what else there is. With an error of its, nothing is.
	Calls []uuid.UUID
	Fold  func(map[uuid.UUID]*call.Call) (Folded, error)
}

// FoldNews takes one batch of news: the calls change, their facts go out, and the place moves, all or nothing; it makes this process the reader as
// ReadFeed does. ErrLost: somebody else reads now.
func (s *Store) FoldNews(ctx context.Context, news News) error {
	return pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var batch pgx.Batch
		batch.Queue(moveOn, pg.Args{
			"trunk": news.Trunk, "instance": s.instance, "feed": news.To.Feed, "cursor": news.To.Cursor,
			"was_feed": news.From.Feed, "was_cursor": news.From.Cursor, "lease": s.timing.InstanceLease,
			"server": s.server(),
		}).Exec(func(moved pgconn.CommandTag) error {
			if moved.RowsAffected() == 0 {
				return ErrLost
			}
			return nil
		})
		for _, a := range news.Arrived {
			batch.Queue(insertArrival, pg.Args{
				"call_id": a.CallID, "from": a.From, "to": a.To, "ringing_at": a.RingingAt,
				"ring_limit": s.timing.RingLimit, "grace": s.timing.WatchdogGrace,
			})
		}
		var locked []*call.Call
		queueLock(&batch, news.Calls, &locked)
		if err := tx.Ask(ctx, &batch); err != nil {
			return fmt.Errorf("move on in feed %s: %w", news.Trunk, err)
		}
		var told Folded
		var fault error
		err := s.changeLocked(ctx, tx, locked, func(calls map[uuid.UUID]*call.Call) { told, fault = news.Fold(calls) })
		if err = errors.Join(err, fault); err != nil {
			return err
		}
		if len(told.Orphans) > 0 {
			tx.Later(insertOrphans, pg.Args{"call_ids": told.Orphans}, nil)
		}
		return nil
	})
}

const liveCalls = `SELECT call_id FROM calls WHERE ended_at IS NULL AND status <> 'fenced'`

// LiveCalls are the calls that the carrier has, as far as we know.
func (s *Store) LiveCalls(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, liveCalls)
	if err != nil {
		return nil, fmt.Errorf("list live calls: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list live calls: %w", err)
	}
	return ids, nil
}
