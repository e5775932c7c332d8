package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
)

// Usage contains the number, the seconds and the charge of the calls of a workspace with the same
// direction, agent and number prefix.
type Usage struct {
	Direction string    `db:"direction"`
	AgentID   uuid.UUID `db:"agent_id"`
	// AgentName is empty if this database does not have the agent.
	AgentName string `db:"agent_name"`
	// Prefix contains the first four characters of the other party's number. If an inbound caller
	// withheld the number, Prefix is a part of the word "anonymous".
	Prefix string `db:"prefix"`
	Calls  int64  `db:"calls"`
	// Answered is the number of calls that were answered.
	Answered    int64       `db:"answered"`
	TalkSeconds int64       `db:"talk_seconds"`
	Credits     money.Micro `db:"credits_micro"`
}

const usage = `
SELECT u.direction, u.agent_id, coalesce(a.name, '') AS agent_name, u.prefix, u.calls, u.answered, u.talk_seconds,
	u.credits_micro
FROM (
	SELECT c.direction, c.agent_id, left(CASE c.direction WHEN 'inbound' THEN c.from_number ELSE c.to_e164 END,
	    4) AS prefix,
		count(*) AS calls, count(c.answered_at) AS answered, coalesce(sum(c.talk_seconds), 0)::bigint AS talk_seconds,
		coalesce(sum(c.credits_micro), 0)::bigint AS credits_micro
	FROM calls c
	WHERE c.workspace_id = @workspace_id AND uuid_send(c.id) >= uuid_send(@from::uuid)
		AND uuid_send(c.id) < uuid_send(@below::uuid)
	GROUP BY 1, 2, 3
) u
LEFT JOIN agents a ON a.id = u.agent_id AND a.workspace_id = @workspace_id
ORDER BY u.direction, u.agent_id, u.prefix COLLATE "C"`

// Usage sums the calls of a period and calls handleSum for each sum. The period ends before the
// time to. The sums are ordered by direction, agent and prefix.
func (s *Store) Usage(
	ctx context.Context, workspaceID uuid.UUID, from, to time.Time, handleSum func(Usage) error,
) error {
	rows, err := s.pool.Query(ctx, usage, pg.Args{
		"workspace_id": workspaceID, "from": page.FirstID(from), "below": page.FirstID(to),
	})
	if err != nil {
		return fmt.Errorf("read usage of workspace %s: %w", workspaceID, err)
	}
	defer rows.Close()
	for rows.Next() {
		one, err := pgx.RowToStructByName[Usage](rows)
		if err != nil {
			return fmt.Errorf("read usage of workspace %s: %w", workspaceID, err)
		}
		if err := handleSum(one); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read usage of workspace %s: %w", workspaceID, err)
	}
	return nil
}
