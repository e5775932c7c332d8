package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/calls/internal/agents"
)

const agentColumns = `id, workspace_id, version, name, from_e164, max_call_seconds, settings, updated_at, deleted_at`

const insertAgent = `
INSERT INTO agents (id, workspace_id, version, name, from_e164, max_call_seconds, settings)
VALUES (@id, @workspace_id, @version, @name, @from_e164, @max_call_seconds, @settings)
RETURNING ` + agentColumns

// AddAgent stores a new agent and publishes it to agents.v1.
func (s *Store) AddAgent(ctx context.Context, a agents.Agent, at time.Time) (agents.Agent, error) {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if a, err = pg.One[agents.Agent](ctx, tx, insertAgent, agentArgs(a)); err != nil {
			return err
		}
		return putAgent(ctx, tx, a, at)
	})
	if err != nil {
		return agents.Agent{}, fmt.Errorf("insert agent: %w", err)
	}
	return a, nil
}

const lockAgent = `
SELECT ` + agentColumns + ` FROM agents
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL FOR UPDATE`

const updateAgent = `
UPDATE agents SET version = @version, name = @name, from_e164 = @from_e164, max_call_seconds = @max_call_seconds,
    settings = @settings, deleted_at = @deleted_at, updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + agentColumns

// ChangeAgent calls changeAgent with the locked agent, stores the result and publishes it. It
// returns pg.ErrNotFound if the agent does not exist or was deleted.
func (s *Store) ChangeAgent(ctx context.Context, workspaceID, id uuid.UUID, at time.Time,
	changeAgent func(*agents.Agent) error) (agents.Agent, error) {
	var a agents.Agent
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if a, err = pg.One[agents.Agent](ctx, tx, lockAgent, pgx.NamedArgs{"workspace_id": workspaceID,
			"id": id}); err != nil {
			return err
		}
		if err = changeAgent(&a); err != nil {
			return err
		}
		if a, err = pg.One[agents.Agent](ctx, tx, updateAgent, agentArgs(a)); err != nil {
			return err
		}
		return putAgent(ctx, tx, a, at)
	})
	if err != nil {
		return agents.Agent{}, fmt.Errorf("change agent %s: %w", id, err)
	}
	return a, nil
}

const agentByID = `
SELECT ` + agentColumns + ` FROM agents
WHERE workspace_id = @workspace_id AND id = @id AND deleted_at IS NULL`

// Agent reads one agent. It returns pg.ErrNotFound if the agent does not exist or was deleted.
func (s *Store) Agent(ctx context.Context, workspaceID, id uuid.UUID) (agents.Agent, error) {
	a, err := pg.One[agents.Agent](ctx, s.pool, agentByID, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if err != nil {
		return agents.Agent{}, fmt.Errorf("read agent %s: %w", id, err)
	}
	return a, nil
}

const listAgents = `
SELECT ` + agentColumns + ` FROM agents
WHERE workspace_id = @workspace_id AND deleted_at IS NULL AND (@after::uuid IS NULL OR id < @after)
ORDER BY id DESC LIMIT @rows`

const agentExists = `SELECT EXISTS (SELECT FROM agents WHERE workspace_id = @workspace_id AND id = @after)`

// Agents lists a workspace's agents, newest first. It returns one row more than the page has, so
// that the caller can compute has_more.
func (s *Store) Agents(ctx context.Context, workspaceID uuid.UUID, p page.Request) ([]agents.Agent, error) {
	args := pageArgs(workspaceID, p)
	if err := s.knownCursor(ctx, agentExists, p, args); err != nil {
		return nil, err
	}
	rows, err := pg.Many[agents.Agent](ctx, s.pool, listAgents, args)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	return rows, nil
}

func agentArgs(a agents.Agent) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": a.ID, "workspace_id": a.WorkspaceID, "version": a.Version, "name": a.Name, "from_e164": a.From,
		"max_call_seconds": a.MaxCallSeconds, "settings": a.Settings, "deleted_at": a.DeletedAt,
	}
}

func putAgent(ctx context.Context, tx pgx.Tx, a agents.Agent, at time.Time) error {
	event, err := a.Event(at)
	if err != nil {
		return err
	}
	return outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.Agents, Key: a.ID.String(), WorkspaceID: a.WorkspaceID, Message: event,
	})
}

func pageArgs(workspaceID uuid.UUID, p page.Request) pgx.NamedArgs {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "after": nil, "below": p.Below(), "rows": p.Rows()}
	if p.After != uuid.Nil {
		args["after"] = p.After
	}
	return args
}

// knownCursor returns a 422 error if starting_after is not the id of a row in the workspace.
func (s *Store) knownCursor(ctx context.Context, exists string, p page.Request, args pgx.NamedArgs) error {
	if p.After == uuid.Nil {
		return nil
	}
	var known bool
	if err := s.pool.QueryRow(ctx, exists, args).Scan(&known); err != nil {
		return fmt.Errorf("find the row of the cursor: %w", err)
	}
	if !known {
		return page.UnknownCursor()
	}
	return nil
}
