package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
)

// Each statement reads one batch of ids in ascending order and returns the last id. Ids begin with
// their creation time. So ids from after the given time are not read.
const (
	deleteCalls = `
WITH page AS MATERIALIZED (
	SELECT call_id AS id FROM calls WHERE call_id > @after AND call_id < @before ORDER BY call_id LIMIT @most
), deleted AS (
	DELETE FROM calls c USING page p
	WHERE c.call_id = p.id AND c.ended_at < @ended AND c.analyse_at IS NULL
		AND NOT EXISTS (SELECT FROM recordings r WHERE r.call_id = c.call_id)
	RETURNING c.call_id
)
SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM deleted)`
	// A request that was canceled can end long before its due time. It is kept until both times are
	// old enough.
	deleteRequests = `
WITH page AS MATERIALIZED (
	SELECT call_request_id AS id FROM dial_queue WHERE call_request_id > @after AND call_request_id < @before
	ORDER BY call_request_id LIMIT @most
), deleted AS (
	DELETE FROM dial_queue q USING page p
	WHERE q.call_request_id = p.id AND q.ended_at < @ended AND coalesce(q.due_at, q.ended_at) < @ended
	RETURNING q.call_request_id
)
SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM deleted)`
	// A fence is kept while its request or its call exists. The fences of a request are counted to
	// number its attempts.
	deleteFences = `
WITH page AS MATERIALIZED (
	SELECT call_id AS id FROM fences WHERE call_id > @after AND call_id < @before ORDER BY call_id LIMIT @most
), deleted AS (
	DELETE FROM fences f USING page p
	WHERE f.call_id = p.id AND f.fenced_at < least(@ended::timestamptz, now() - interval '60 days') -- as the trigger does
		AND NOT EXISTS (SELECT FROM dial_queue q WHERE q.call_request_id = f.call_request_id)
		AND NOT EXISTS (SELECT FROM calls c WHERE c.call_id = f.call_id)
	RETURNING f.call_id
)
SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM deleted)`
	deleteOptOuts = `
WITH page AS MATERIALIZED (
	SELECT call_id AS id FROM opt_outs WHERE call_id > @after AND call_id < @before ORDER BY call_id LIMIT @most
), deleted AS (
	DELETE FROM opt_outs o USING page p WHERE o.call_id = p.id AND o.acknowledged_at < @ended RETURNING o.call_id
)
SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM deleted)`
)

// DeleteEnded deletes calls and requests that ended before endedBefore, the fences of deleted
// requests, and acknowledged opt-outs. It returns how many rows it deleted. Each statement reads up
// to batchSize rows in its own transaction.
//
// A call with a recording is kept, because the erasure of its request must find the recording. The
// database rejects the deletion of a fence that is younger than 60 days.
func (s *Store) DeleteEnded(ctx context.Context, endedBefore time.Time, batchSize int) (deleted int64, err error) {
	for _, statement := range []string{deleteCalls, deleteRequests, deleteFences, deleteOptOuts} {
		for after := new(uuid.UUID); after != nil; {
			var n int64
			args := pg.Args{"after": *after, "before": idAt(endedBefore), "ended": endedBefore, "most": batchSize}
			if err := s.pool.QueryRow(ctx, statement, args).Scan(&after, &n); err != nil {
				return deleted, fmt.Errorf("delete rows that ended before %s: %w", endedBefore.Format(time.DateOnly), err)
			}
			deleted += n
		}
	}
	return deleted, nil
}
