package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// SQL expressions: whether all dialing is paused now, and the ids of the workspaces and agents
// whose dialing is paused now.
const (
	allPaused        = `EXISTS (SELECT FROM dialing_pauses p WHERE p.level = 'everything' AND p.ends_at > now())`
	pausedWorkspaces = `(SELECT p.id FROM dialing_pauses p WHERE p.level = 'workspace' AND p.ends_at > now())`
	pausedAgents     = `(SELECT p.id FROM dialing_pauses p WHERE p.level = 'agent' AND p.ends_at > now())`
)

// saveDialing locks the row, so that concurrent changes of a scope run one after another. It can
// wait for another change, and now() can then be before the commit of that change. So the later
// statements use the time that saveDialing returns.
const saveDialing = `
INSERT INTO dialing_states (level, id, paused, reason, until, actor_type, actor_id, actor_name, set_at)
VALUES (@level, @id, @paused, @reason, @until, @actor_type, @actor_id, @actor_name, clock_timestamp())
ON CONFLICT (level, id) DO UPDATE SET paused = EXCLUDED.paused, reason = EXCLUDED.reason, until = EXCLUDED.until,
	actor_type = EXCLUDED.actor_type, actor_id = EXCLUDED.actor_id, actor_name = EXCLUDED.actor_name,
	set_at = clock_timestamp()
RETURNING set_at`

const (
	// A pause that begins within a minute after the previous pause extends the row of that pause.
	// Otherwise a client that pauses and resumes repeatedly would create many rows, which every claim
	// reads.
	changePause = `
UPDATE dialing_pauses SET ends_at = greatest(began_at, @ends_at::timestamptz)
WHERE level = @level AND id = @id AND began_at = (
	SELECT max(began_at) FROM dialing_pauses WHERE level = @level AND id = @id
		AND ends_at > @at::timestamptz - CASE WHEN @paused THEN interval '1 minute' ELSE '0' END)`
	beginPause = `
INSERT INTO dialing_pauses (level, id, began_at, ends_at) VALUES (@level, @id, @at, @ends_at)`
	// Requests are kept for 60 days. Pauses that ended earlier are not needed.
	deletePauses = `
DELETE FROM dialing_pauses WHERE level = @level AND id = @id AND ends_at < @at::timestamptz - interval '60 days'`
)

// The row lock makes the change of the pause run before or after the deletion of the agent. An
// agent whose record has not arrived from agents.v1 yet has no row.
const lockPausedAgent = `SELECT deleted FROM agents WHERE agent_id = @id FOR SHARE`

// SetDialing pauses or resumes dialing of a scope, and returns the new state. After SetDialing has
// returned, no new claim takes a request of a paused scope. It returns ErrNoAgent for a deleted
// agent.
func (s *Store) SetDialing(
	ctx context.Context, scope dialqueue.PauseScope, change dialqueue.DialingChange,
) (dialqueue.DialingState, error) {
	state := dialqueue.DialingState{
		PauseScope: scope, Paused: change.Paused, Reason: change.Reason, Until: change.Until, Actor: change.Actor,
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if scope.Level == dialqueue.PauseAgent {
			deleted, err := pg.Value[bool](ctx, tx, lockPausedAgent, pg.Args{"id": scope.ID})
			if deleted {
				return ErrNoAgent
			}
			if err != nil && !errors.Is(err, pg.ErrNotFound) {
				return err
			}
		}
		at, err := pg.Value[time.Time](ctx, tx, saveDialing, pg.Args{
			"level": string(scope.Level), "id": scope.ID, "paused": change.Paused, "reason": change.Reason,
			"until": change.Until, "actor_type": string(change.Actor.Type), "actor_id": change.Actor.ID,
			"actor_name": change.Actor.Name,
		})
		if err != nil {
			return err
		}
		state.SetAt = &at
		return savePause(ctx, tx, scope, change, at)
	})
	if err != nil {
		return dialqueue.DialingState{}, fmt.Errorf("set dialing of %s %s: %w", scope.Level, scope.ID, err)
	}
	return state, nil
}

func savePause(
	ctx context.Context, tx pgx.Tx, scope dialqueue.PauseScope, change dialqueue.DialingChange, at time.Time,
) error {
	args := pg.Args{"level": string(scope.Level), "id": scope.ID, "at": at, "ends_at": at, "paused": change.Paused}
	if _, err := tx.Exec(ctx, deletePauses, args); err != nil {
		return err
	}
	if change.Paused {
		args["ends_at"] = "infinity"
		if change.Until != nil {
			args["ends_at"] = change.Until.UTC().Format(time.RFC3339Nano)
		}
	} else {
		args["ends_at"] = at.UTC().Format(time.RFC3339Nano)
	}
	changed, err := tx.Exec(ctx, changePause, args)
	if err != nil || !change.Paused || changed.RowsAffected() > 0 {
		return err
	}
	_, err = tx.Exec(ctx, beginPause, args)
	return err
}

const stateColumns = `level, id, paused AND coalesce(until, 'infinity') > now() AS paused, reason, until, actor_type,
	actor_id, actor_name, set_at`

const readDialing = `SELECT ` + stateColumns + ` FROM dialing_states WHERE level = @level AND id = @id`

// Dialing returns the state of dialing of a scope.
func (s *Store) Dialing(ctx context.Context, scope dialqueue.PauseScope) (dialqueue.DialingState, error) {
	args := pg.Args{"level": string(scope.Level), "id": scope.ID}
	found, err := pg.One[dialqueue.DialingState](ctx, s.pool, readDialing, args)
	if errors.Is(err, pg.ErrNotFound) {
		return dialqueue.DialingState{PauseScope: scope}, nil
	}
	if err != nil {
		return dialqueue.DialingState{}, fmt.Errorf("read dialing of %s %s: %w", scope.Level, scope.ID, err)
	}
	return found, nil
}

const listPaused = `
SELECT ` + stateColumns + `, CASE s.level WHEN 'workspace' THEN s.id
	WHEN 'agent' THEN (SELECT a.workspace_id FROM agents a WHERE a.agent_id = s.id) END AS workspace_id
FROM dialing_states s
WHERE s.paused AND EXISTS (SELECT FROM dialing_pauses p WHERE p.level = s.level AND p.id = s.id AND p.ends_at > now())
ORDER BY s.set_at DESC LIMIT @most`

// PausedScopes returns the scopes that are paused now, the last change first. most is the maximum
// number of returned scopes.
func (s *Store) PausedScopes(ctx context.Context, most int) ([]dialqueue.PausedScope, error) {
	found, err := pg.Many[dialqueue.PausedScope](ctx, s.pool, listPaused, pg.Args{"most": most})
	if err != nil {
		return nil, fmt.Errorf("list pauses of dialing: %w", err)
	}
	return found, nil
}

// latestPauses reads only the last period of each scope, because a scope can have a thousand
// periods in a day. It returns the current time instead of an end of infinity, because time.Time
// has no such value.
const latestPauses = `
SELECT s.level, s.id, p.ends_at > now() AS open, least(p.ends_at, now()) AS ends_at
FROM dialing_states s
CROSS JOIN LATERAL (SELECT p.ends_at FROM dialing_pauses p WHERE p.level = s.level AND p.id = s.id
	ORDER BY p.began_at DESC LIMIT 1) p
WHERE (s.paused OR s.set_at > now() - interval '1 day') AND p.ends_at > now() - interval '1 day'`

// LatestPauses returns the latest pause of each scope whose pause has not ended, or has ended
// within the last day.
func (s *Store) LatestPauses(ctx context.Context) ([]dialqueue.LatestPause, error) {
	found, err := pg.Many[dialqueue.LatestPause](ctx, s.pool, latestPauses, nil)
	if err != nil {
		return nil, fmt.Errorf("read pauses of dialing: %w", err)
	}
	return found, nil
}

const hasAgent = `
SELECT EXISTS (SELECT FROM agents WHERE agent_id = @id AND workspace_id = @workspace_id AND NOT deleted)`

// HasAgent reports whether the workspace has the agent, and the agent is not deleted.
func (s *Store) HasAgent(ctx context.Context, workspaceID, agentID uuid.UUID) (bool, error) {
	found, err := pg.Value[bool](ctx, s.pool, hasAgent, pg.Args{"id": agentID, "workspace_id": workspaceID})
	if err != nil {
		return false, fmt.Errorf("look up agent %s: %w", agentID, err)
	}
	return found, nil
}

const (
	// endPausesOfAgent ends the pauses of a deleted agent, because no client can resume a deleted
	// agent.
	endPausesOfAgent = `
WITH resumed AS (
	UPDATE dialing_states SET paused = false, until = NULL WHERE level = 'agent' AND id = @id AND paused
)
UPDATE dialing_pauses SET ends_at = greatest(began_at, clock_timestamp())
WHERE level = 'agent' AND id = @id AND ends_at > clock_timestamp()`
	trunksPaused = `(EXISTS (SELECT FROM trunks t WHERE t.status = 'active') AND NOT EXISTS (
	SELECT FROM trunks t WHERE t.status = 'active' AND NOT EXISTS (
		SELECT FROM dialing_pauses p WHERE p.level = 'trunk' AND p.id = t.trunk_id AND p.ends_at > now())))`
	noTrunk = `'00000000-0000-0000-0000-000000000000'::uuid`
	// recordTrunkPause begins or ends a period in which all active trunks are paused. A period that
	// ended less than a minute ago is continued. If two processes begin a period at the same time, the
	// overlapping time counts once.
	recordTrunkPause = `
WITH current AS MATERIALIZED (SELECT ` + trunksPaused + ` AS paused), last AS MATERIALIZED (
	SELECT p.began_at, p.ends_at FROM dialing_pauses p WHERE p.level = 'trunk' AND p.id = ` + noTrunk + `
		AND p.ends_at > now() - interval '1 minute' ORDER BY p.began_at DESC LIMIT 1
), ended AS (
	UPDATE dialing_pauses p SET ends_at = greatest(p.began_at, now()) FROM current c
	WHERE NOT c.paused AND p.level = 'trunk' AND p.id = ` + noTrunk + ` AND p.ends_at > now()
), continued AS (
	UPDATE dialing_pauses p SET ends_at = 'infinity' FROM current c, last l
	WHERE c.paused AND p.level = 'trunk' AND p.id = ` + noTrunk + ` AND p.began_at = l.began_at AND p.ends_at <= now()
), deleted AS (
	DELETE FROM dialing_pauses p WHERE p.level = 'trunk' AND p.id = ` + noTrunk + `
		AND p.ends_at < now() - interval '60 days'
)
INSERT INTO dialing_pauses (level, id, began_at, ends_at)
SELECT 'trunk', ` + noTrunk + `, now(), 'infinity' FROM current c WHERE c.paused AND NOT EXISTS (SELECT FROM last)
ON CONFLICT DO NOTHING`
)

// setAsidePaused sets look_at of paused agents' requests to infinity, so that claims do not read
// them. The index on agent_id and look_at stores these rows next to each other. Requests of a
// deleted agent, or of a workspace that may not dial, are not changed, because claims must block
// them.
const (
	setAsidePaused = `
UPDATE dial_queue q SET look_at = 'infinity'
WHERE q.call_request_id = ANY (ARRAY(
	SELECT r.call_request_id FROM dialing_pauses p
	JOIN agents a ON a.agent_id = p.id AND NOT a.deleted
	JOIN workspaces w ON w.workspace_id = a.workspace_id AND w.status = 'active'
	CROSS JOIN LATERAL (SELECT r.call_request_id FROM dial_queue r
		WHERE r.agent_id = p.id AND r.state = 'queued' AND r.claimed_by IS NULL AND r.look_at <= now() AND r.due_at <= now()
			AND (w.api_enabled OR r.by_person)
		ORDER BY r.look_at LIMIT 5000 FOR UPDATE SKIP LOCKED) r
	WHERE p.level = 'agent' AND p.ends_at > now() LIMIT 5000))`
	returnPaused = `
UPDATE dial_queue q SET look_at = greatest(least(q.due_at, now()), ` + frontOf + `q.workspace_id` + newest + `)
WHERE q.call_request_id = ANY (ARRAY(
	SELECT r.call_request_id FROM dialing_states s
	LEFT JOIN agents a ON a.agent_id = s.id
	LEFT JOIN workspaces w ON w.workspace_id = a.workspace_id
	CROSS JOIN LATERAL (SELECT r.call_request_id FROM dial_queue r
		WHERE r.agent_id = s.id AND r.state = 'queued' AND r.claimed_by IS NULL AND r.look_at = 'infinity'
			AND (s.id NOT IN ` + pausedAgents + ` OR a.deleted OR w.status <> 'active'
				OR NOT w.api_enabled AND NOT r.by_person)
		LIMIT 5000 FOR UPDATE SKIP LOCKED) r
	WHERE s.level = 'agent' AND (s.id NOT IN ` + pausedAgents + ` OR a.deleted OR w.status <> 'active'
	    OR NOT w.api_enabled)
	LIMIT 5000))`
)

// MovePaused hides the due requests of paused agents from claims by setting their look_at to
// infinity. It makes these requests due again when their agent is resumed. It also does so if the
// agent is deleted or the workspace may not dial, because a claim must then block the requests.
//
// MovePaused returns how many requests it changed, at most 5,000 of each kind. Claims also set
// look_at to infinity, but they read only a few requests at a time.
func (s *Store) MovePaused(ctx context.Context) (moved int64, err error) {
	for _, statement := range []string{setAsidePaused, returnPaused} {
		tag, err := s.pool.Exec(ctx, statement)
		if err != nil {
			return moved, fmt.Errorf("move requests of paused agents: %w", err)
		}
		moved += tag.RowsAffected()
	}
	return moved, nil
}

// RecordTrunkPause stores whether all active trunks are paused. Time in which they are all paused
// does not count towards the age limit of requests.
func (s *Store) RecordTrunkPause(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, recordTrunkPause); err != nil {
		return fmt.Errorf("record pause of all trunks: %w", err)
	}
	return nil
}
