package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
)

// CallCount is the number of ended calls of an interval that share a status and an outcome.
type CallCount struct {
	// Interval is the index of the interval.
	Interval int
	Status   string
	Outcome  *string
	Calls    int64
	// Answered is the number of calls that a person or a machine answered.
	Answered     int64
	TalkSeconds  int64
	CreditsMicro int64
}

// StatisticsFilter selects the calls of a statistic. A zero value does not filter.
type StatisticsFilter struct {
	Direction string
	AgentID   *uuid.UUID
}

// countCalls reads one range of the index calls_statistics for each interval.
const countCalls = `
SELECT ordinality::int - 1 AS interval, status, outcome, calls, answered, talk_seconds, credits_micro
FROM unnest(@firsts::uuid[], @ends::uuid[]) WITH ORDINALITY AS i (first, "end", ordinality)
CROSS JOIN LATERAL (
    SELECT status, outcome, count(*) AS calls, count(*) FILTER (WHERE answered_at IS NOT NULL) AS answered,
        coalesce(sum(talk_seconds), 0)::bigint AS talk_seconds, coalesce(sum(credits_micro), 0)::bigint AS credits_micro
    FROM calls
    WHERE workspace_id = @workspace_id AND closed AND uuid_send(id) >= uuid_send(i.first)
        AND uuid_send(id) < uuid_send(i."end")
        AND (@direction = '' OR direction = @direction) AND (@agent_id::uuid IS NULL OR agent_id = @agent_id)
    GROUP BY status, outcome) AS counted
ORDER BY interval, calls DESC, status, outcome`

// CountCalls counts the ended calls of a workspace. Interval n contains the calls whose ids are at
// least bounds[n] and less than bounds[n+1].
func (s *Store) CountCalls(
	ctx context.Context,
	workspaceID uuid.UUID,
	bounds []uuid.UUID,
	f StatisticsFilter,
) ([]CallCount, error) {
	found, err := pg.Many[CallCount](ctx, s.pool, countCalls, pg.Args{
		"workspace_id": workspaceID, "firsts": bounds[:len(bounds)-1], "ends": bounds[1:],
		"direction": f.Direction, "agent_id": f.AgentID,
	})
	if err != nil {
		return nil, fmt.Errorf("count calls: %w", err)
	}
	return found, nil
}
