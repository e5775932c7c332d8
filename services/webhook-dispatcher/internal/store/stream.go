package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// StreamCursor is a position in the event stream of a workspace. A read returns the events after
// it.
type StreamCursor struct {
	Position int64
	// IngestedAt is the time at which the event at Position was stored. Partitions that are more
	// than a day older are not read.
	IngestedAt time.Time
}

// StreamEvent is an event of a workspace in the order of its stream.
type StreamEvent struct {
	StreamCursor
	EventID uuid.UUID
	Type    string
	// Body is empty if the type was not requested, or if the body was deleted or erased.
	Body []byte
}

// StreamHead returns the cursor after the newest event of the workspace.
func (s *Store) StreamHead(ctx context.Context, workspaceID uuid.UUID) (StreamCursor, error) {
	cursor, err := pg.One[StreamCursor](ctx, s.pool, streamHead, pgx.NamedArgs{"workspace_id": workspaceID})
	if err != nil {
		return StreamCursor{}, fmt.Errorf("read stream head of workspace %s: %w", workspaceID, err)
	}
	return cursor, nil
}

const streamHead = `
SELECT coalesce((SELECT position FROM stream_heads WHERE workspace_id = @workspace_id), 0) AS position,
    now() AS ingested_at`

// StreamCursor returns the cursor after an event. It returns pg.ErrNotFound if the workspace has no
// such event, or if the event has expired.
func (s *Store) StreamCursor(ctx context.Context, workspaceID, eventID uuid.UUID) (StreamCursor, error) {
	cursor, err := pg.One[StreamCursor](
		ctx,
		s.pool,
		streamCursor,
		pgx.NamedArgs{"workspace_id": workspaceID, "id": eventID},
	)
	if err != nil {
		return StreamCursor{}, fmt.Errorf("read stream position of event %s: %w", eventID, err)
	}
	return cursor, nil
}

const streamCursor = `
SELECT position, ingested_at FROM stream_events WHERE workspace_id = @workspace_id AND event_id = @id LIMIT 1`

// StreamEvents returns at most limit events of the workspace after the cursor, in the order of
// their positions. It reads the bodies of the given types only; if types is empty, it reads all
// bodies.
func (s *Store) StreamEvents(
	ctx context.Context, workspaceID uuid.UUID, after StreamCursor, types []string, limit int,
) ([]StreamEvent, error) {
	if types == nil {
		types = []string{}
	}
	found, err := manyGenericPlan[StreamEvent](ctx, s, streamEvents, pg.Args{
		"workspace_id": workspaceID, "after": after.Position, "since": after.IngestedAt.Add(-24 * time.Hour), "types": types,
		"limit": limit,
	})
	if err != nil {
		return nil, fmt.Errorf("read stream of workspace %s: %w", workspaceID, err)
	}
	return found, nil
}

const streamEvents = `
SELECT s.position, s.ingested_at, s.event_id, s.type,
       coalesce((SELECT e.body FROM events e
                 WHERE e.id = s.event_id AND e.created_at = s.event_created_at
                   AND (cardinality(@types::text[]) = 0 OR s.type = ANY (@types::text[]))), '') AS body
FROM stream_events s
WHERE s.workspace_id = @workspace_id AND s.position > @after AND s.ingested_at >= @since::timestamptz
ORDER BY s.position
LIMIT @limit`

// StreamPositions returns the position of the newest event of each given workspace. Workspaces
// without events are left out.
func (s *Store) StreamPositions(ctx context.Context, workspaces []uuid.UUID) (map[uuid.UUID]int64, error) {
	type row struct {
		WorkspaceID uuid.UUID
		Position    int64
	}
	found, err := manyGenericPlan[row](ctx, s, streamPositions, pg.Args{"workspaces": workspaces})
	if err != nil {
		return nil, fmt.Errorf("read stream positions: %w", err)
	}
	positions := make(map[uuid.UUID]int64, len(found))
	for _, r := range found {
		positions[r.WorkspaceID] = r.Position
	}
	return positions, nil
}

const streamPositions = `SELECT workspace_id, position FROM stream_heads WHERE workspace_id = ANY (@workspaces::uuid[])`

// OpenStream registers a stream for the lease. opened is false if limit streams of the workspace
// are open on all replicas.
func (s *Store) OpenStream(
	ctx context.Context, id, workspaceID uuid.UUID, lease time.Duration, limit int,
) (opened bool, err error) {
	args := pg.Args{"id": id, "workspace_id": workspaceID, "lease": lease.Seconds(), "limit": limit}
	var batch pgx.Batch
	batch.Queue(lockStreams, args)
	// A separate statement, so that it counts the rows that were committed while the lock waited.
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

// CloseStream deletes a stream from the open streams.
func (s *Store) CloseStream(ctx context.Context, id uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM open_streams WHERE id = @id`, pgx.NamedArgs{"id": id}); err != nil {
		return fmt.Errorf("close stream %s: %w", id, err)
	}
	return nil
}
