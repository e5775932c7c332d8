package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// ErrTimelineChanged means that the database was promoted or restored after the cursor was read.
// Positions after the cursor can then belong to other events.
var ErrTimelineChanged = errors.New("the timeline of the database has changed")

// ErrEventsMissing means that an event is unknown, and that the database may lack events because of
// a recent failover. The consumer reads these events from Kafka again.
var ErrEventsMissing = errors.New("events can be missing after a failover of the database")

// refillPeriod is the time after a failover during which events can be missing. The consumer
// continues at the Kafka positions that the database contains, so it stores the lost events again.
const refillPeriod = 10 * time.Minute

// clockTolerance is the maximum difference between the clocks of the database and of the services
// that create events.
const clockTolerance = time.Minute

// StreamCursor is a position in the event stream of a workspace. A read returns the events after
// it.
type StreamCursor struct {
	Position int64
	// IngestedAt is the time at which the event at Position was stored. Partitions that end more
	// than a day before this time are not read.
	IngestedAt time.Time
	// EventID is the id with which a client resumes after Position.
	EventID uuid.UUID
	// Timeline is the timeline of the database in which the cursor is valid.
	Timeline string
}

// StreamEvent is an event of a workspace in the order of its stream.
type StreamEvent struct {
	StreamCursor
	Type string
	// Body is empty if the type was not requested, or if the body was deleted or erased.
	Body []byte
}

// streamStart returns the id of the cursor before the first event of the workspace.
func streamStart(workspaceID uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(workspaceID, []byte("start of the event stream"))
}

// StreamHead returns the cursor after the newest event of the workspace.
func (s *Store) StreamHead(ctx context.Context, workspaceID uuid.UUID) (StreamCursor, error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "start": streamStart(workspaceID)}
	cursor, err := pg.One[StreamCursor](ctx, s.pool, streamHead, args)
	if err != nil {
		return StreamCursor{}, fmt.Errorf("read stream head of workspace %s: %w", workspaceID, err)
	}
	return cursor, nil
}

// streamHead returns the id of the start of the stream if the newest event has expired. In this
// case all earlier events have expired too, so a client that resumes at this id receives the same
// events.
const streamHead = `
SELECT coalesce(h.position, 0) AS position, now() AS ingested_at, database_timeline() AS timeline,
       coalesce((SELECT s.event_id FROM stream_events s
                 WHERE s.workspace_id = h.workspace_id AND s.position = h.position LIMIT 1), @start::uuid) AS event_id
FROM (VALUES (@workspace_id::uuid)) AS w (id) LEFT JOIN stream_heads h ON h.workspace_id = w.id`

// StreamCursor returns the cursor after an event. After a failover, the event can have a later
// position than the one at which the client received it. In this case, the cursor is the newest
// position before the failover, so that the client misses no event.
//
// StreamCursor returns ErrEventsMissing if the event is unknown shortly after a failover, and
// pg.ErrNotFound if the workspace has no such event or the event has expired.
func (s *Store) StreamCursor(ctx context.Context, workspaceID, eventID uuid.UUID) (StreamCursor, error) {
	sql := streamCursor
	if eventID == streamStart(workspaceID) {
		sql = streamBegin
	}
	cursor, err := pg.One[StreamCursor](ctx, s.pool, sql, pgx.NamedArgs{
		"workspace_id": workspaceID, "id": eventID, "tolerance": clockTolerance.Seconds(),
	})
	if errors.Is(err, pg.ErrNotFound) {
		missing, err := pg.Value[bool](ctx, s.pool, eventsMissing, pgx.NamedArgs{"period": refillPeriod.Seconds()})
		switch {
		case err != nil:
			return StreamCursor{}, fmt.Errorf("read timelines of the database: %w", err)
		case missing:
			return StreamCursor{}, ErrEventsMissing
		}
	}
	if err != nil {
		return StreamCursor{}, fmt.Errorf("read stream position of event %s: %w", eventID, err)
	}
	return cursor, nil
}

const (
	streamBegin = `
SELECT 0::bigint AS position, to_timestamp(0) AS ingested_at, @id::uuid AS event_id, database_timeline() AS timeline`

	streamCursor = `
SELECT CASE WHEN moved THEN restart ELSE position END AS position,
       CASE WHEN moved THEN least(ingested_at, seen_at) ELSE ingested_at END AS ingested_at, event_id, timeline
FROM (SELECT s.position, s.ingested_at, s.event_id, database_timeline() AS timeline, h.restart, t.seen_at,
             coalesce(s.position > h.restart
                      AND s.event_created_at < t.seen_at + make_interval(secs => @tolerance), false) AS moved
      FROM stream_events s
      LEFT JOIN stream_heads h ON h.workspace_id = s.workspace_id
      CROSS JOIN LATERAL (SELECT coalesce((SELECT seen_at FROM database_timelines WHERE timeline = h.timeline), now())
                              AS seen_at) AS t
      WHERE s.workspace_id = @workspace_id AND s.event_id = @id LIMIT 1) AS found`

	eventsMissing = `
SELECT EXISTS (SELECT FROM database_timelines WHERE timeline <> database_timeline())
   AND NOT EXISTS (SELECT FROM database_timelines
                   WHERE timeline = database_timeline() AND seen_at <= now() - make_interval(secs => @period))`
)

// StreamPage limits one read of a stream.
type StreamPage struct {
	// Types contains the types whose bodies are read. If it is empty, all bodies are read.
	Types []string
	Limit int // the maximum number of events
	// MaxBytes limits the size of a page: when its bodies have this size, no further event is
	// added.
	MaxBytes int
}

// StreamEvents returns the events of the workspace after the cursor, in the order of their
// positions. more is true if the page ended at a limit. StreamEvents returns ErrTimelineChanged if
// the cursor has another timeline than the database.
func (s *Store) StreamEvents(
	ctx context.Context, workspaceID uuid.UUID, after StreamCursor, page StreamPage,
) (found []StreamEvent, more bool, err error) {
	var timeline string
	var rows []streamRow
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(selectTimeline).QueryRow(func(row pgx.Row) error { return row.Scan(&timeline) })
	batch.Queue(streamEvents, pg.Args{
		"workspace_id": workspaceID, "after": after.Position, "since": after.IngestedAt.Add(-24 * time.Hour),
		"types": append([]string{}, page.Types...), "limit": page.Limit, "max_bytes": page.MaxBytes,
	}).Query(func(selected pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(selected, pgx.RowToStructByName[streamRow])
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, false, fmt.Errorf("read stream of workspace %s: %w", workspaceID, err)
	}
	if timeline != after.Timeline {
		return nil, false, ErrTimelineChanged
	}
	found = make([]StreamEvent, len(rows))
	for i, row := range rows {
		found[i] = row.event(timeline)
	}
	return found, len(rows) > 0 && (len(rows) < rows[0].Selected || len(rows) == page.Limit), nil
}

// streamRow is an event in a result. Selected is the number of rows before MaxBytes was applied.
type streamRow struct {
	Position   int64
	IngestedAt time.Time
	EventID    uuid.UUID
	Type       string
	Body       []byte
	Selected   int
}

func (r streamRow) event(timeline string) StreamEvent {
	return StreamEvent{Type: r.Type, Body: r.Body, StreamCursor: StreamCursor{
		Position: r.Position, IngestedAt: r.IngestedAt, EventID: r.EventID, Timeline: timeline,
	}}
}

const selectTimeline = `SELECT database_timeline()`

// streamEvents computes the size of the stored bodies without reading them.
const streamEvents = `
SELECT position, ingested_at, event_id, type, body, selected
FROM (SELECT s.*, count(*) OVER () AS selected,
             coalesce(sum(octet_length(s.body))
                          OVER (ORDER BY s.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
                 AS bytes_before
      FROM (SELECT s.position, s.ingested_at, s.event_id, s.type,
                   coalesce((SELECT e.body FROM events e
                             WHERE e.id = s.event_id AND e.created_at = s.event_created_at
                               AND (cardinality(@types::text[]) = 0 OR s.type = ANY (@types::text[]))), '') AS body
            FROM stream_events s
            WHERE s.workspace_id = @workspace_id AND s.position > @after AND s.ingested_at >= @since::timestamptz
            ORDER BY s.position
            LIMIT @limit) AS s) AS s
WHERE bytes_before < @max_bytes
ORDER BY position`

// StreamPositions returns the position of the newest event of each given workspace, and the
// timeline of the database. Workspaces without events are left out.
func (s *Store) StreamPositions(
	ctx context.Context, workspaces []uuid.UUID,
) (positions map[uuid.UUID]int64, timeline string, err error) {
	type row struct {
		WorkspaceID uuid.UUID
		Position    int64
	}
	var found []row
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(selectTimeline).QueryRow(func(row pgx.Row) error { return row.Scan(&timeline) })
	batch.Queue(streamPositions, pg.Args{"workspaces": workspaces}).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[row])
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, "", fmt.Errorf("read stream positions: %w", err)
	}
	positions = make(map[uuid.UUID]int64, len(found))
	for _, r := range found {
		positions[r.WorkspaceID] = r.Position
	}
	return positions, timeline, nil
}

const streamPositions = `SELECT workspace_id, position FROM stream_heads WHERE workspace_id = ANY (@workspaces::uuid[])`

// Timeline returns the timeline of the database.
func (s *Store) Timeline(ctx context.Context) (string, error) {
	timeline, err := pg.Value[string](ctx, s.pool, selectTimeline, nil)
	if err != nil {
		return "", fmt.Errorf("read timeline of the database: %w", err)
	}
	return timeline, nil
}

// RecordTimeline stores the timeline of the database and the time, unless this timeline is already
// stored.
func (s *Store) RecordTimeline(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, recordTimeline); err != nil {
		return fmt.Errorf("store timeline of the database: %w", err)
	}
	return nil
}

const recordTimeline = `INSERT INTO database_timelines (timeline) VALUES (database_timeline()) ON CONFLICT DO NOTHING`

// OpenStream registers a stream for the lease. opened is false if limit streams of the workspace
// are open on all replicas.
func (s *Store) OpenStream(
	ctx context.Context, id, workspaceID uuid.UUID, lease time.Duration, limit int,
) (opened bool, err error) {
	args := pg.Args{"id": id, "workspace_id": workspaceID, "lease": lease.Seconds(), "limit": limit}
	var batch pgx.Batch
	batch.Queue(lockStreams, args)
	// This must be a separate statement. It then also counts the rows that other transactions
	// committed while this transaction waited for the lock.
	batch.Queue(insertStream, args).Query(func(rows pgx.Rows) error {
		opened = rows.Next()
		rows.Close()
		return rows.Err()
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return false, fmt.Errorf("open stream of workspace %s: %w", workspaceID, err)
	}
	return opened, nil
}

const lockStreams = `SELECT pg_advisory_xact_lock(hashtextextended('streams ' || @workspace_id::uuid::text, 0))`

const insertStream = `
INSERT INTO open_streams (id, workspace_id, expires_at)
SELECT @id, @workspace_id, now() + make_interval(secs => @lease)
WHERE (SELECT count(*) FROM open_streams WHERE workspace_id = @workspace_id AND expires_at > now()) < @limit
RETURNING id`

// RenewStreams renews the leases of the streams, and deletes expired streams of other replicas. ids
// and workspaces have the same length.
func (s *Store) RenewStreams(ctx context.Context, ids, workspaces []uuid.UUID, lease time.Duration) error {
	args := pg.Args{"ids": ids, "workspaces": workspaces, "lease": lease.Seconds()}
	var batch pgx.Batch
	batch.Queue(renewStreams, args)
	batch.Queue(deleteExpiredStreams)
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("renew %d streams: %w", len(ids), err)
	}
	return nil
}

const renewStreams = `
INSERT INTO open_streams (id, workspace_id, expires_at)
SELECT r.id, r.workspace_id, now() + make_interval(secs => @lease)
FROM unnest(@ids::uuid[], @workspaces::uuid[]) AS r (id, workspace_id)
ORDER BY r.id
ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at`

const deleteExpiredStreams = `
DELETE FROM open_streams WHERE id = ANY (ARRAY(
    SELECT id FROM open_streams WHERE expires_at < now() - interval '1 minute'
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED))`

// CloseStreams deletes streams from the open streams.
func (s *Store) CloseStreams(ctx context.Context, ids ...uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, closeStreams, pgx.NamedArgs{"ids": ids}); err != nil {
		return fmt.Errorf("close %d streams: %w", len(ids), err)
	}
	return nil
}

const closeStreams = `
DELETE FROM open_streams WHERE id = ANY (ARRAY(
    SELECT id FROM open_streams WHERE id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE))`
