package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
)

// ErrAgentOfKey is returned if the workspace has no agent with the given id in this database.
var ErrAgentOfKey = errors.New("no such agent")

// AgentKeys stores the keys of agents: the credentials of an agent's own model or media endpoint.
// The keys are stored encrypted.
type AgentKeys struct {
	pool *pgxpool.Pool
	box  *seal.Box
}

// NewAgentKeys returns a store that encrypts the keys with sealBox.
func NewAgentKeys(pool *pgxpool.Pool, sealBox *seal.Box) *AgentKeys {
	return &AgentKeys{pool: pool, box: sealBox}
}

const agentKnown = `SELECT EXISTS (SELECT 1 FROM agents WHERE workspace_id = @workspace_id AND agent_id = @agent_id AND NOT deleted)`

// Known returns nil if the workspace has the agent. Otherwise it returns ErrAgentOfKey.
func (s *AgentKeys) Known(ctx context.Context, workspaceID, agentID uuid.UUID) error {
	var found bool
	if err := s.pool.QueryRow(ctx, agentKnown, pg.Args{"workspace_id": workspaceID, "agent_id": agentID}).Scan(&found); err != nil {
		return fmt.Errorf("find agent %s: %w", agentID, err)
	}
	if !found {
		return ErrAgentOfKey
	}
	return nil
}

const putAgentKey = `
INSERT INTO agent_keys (workspace_id, agent_id, sealed)
SELECT a.workspace_id, a.agent_id, @sealed FROM agents a WHERE a.workspace_id = @workspace_id AND a.agent_id = @agent_id AND NOT a.deleted
ON CONFLICT (workspace_id, agent_id) DO UPDATE SET sealed = EXCLUDED.sealed, updated_at = now()
RETURNING updated_at`

// Put stores the key of an agent and returns the time of the change. It returns ErrAgentOfKey if
// the workspace has no such agent.
func (s *AgentKeys) Put(ctx context.Context, workspaceID, agentID uuid.UUID, key string) (at time.Time, err error) {
	sealed, err := s.box.Seal([]byte(key), agentID.String())
	if err != nil {
		return at, fmt.Errorf("seal key of agent %s: %w", agentID, err)
	}
	args := pg.Args{"workspace_id": workspaceID, "agent_id": agentID, "sealed": sealed}
	at, err = pg.Value[time.Time](ctx, s.pool, putAgentKey, args)
	if errors.Is(err, pg.ErrNotFound) {
		return at, ErrAgentOfKey
	}
	if err != nil {
		return at, fmt.Errorf("store key of agent %s: %w", agentID, err)
	}
	return at, nil
}

const keyOfAgent = `
SELECT sealed, updated_at FROM agent_keys WHERE workspace_id = @workspace_id AND agent_id = @agent_id`

// Since returns the time of the last change of an agent's key. It returns pg.ErrNotFound if the
// agent has no key.
func (s *AgentKeys) Since(ctx context.Context, workspaceID, agentID uuid.UUID) (time.Time, error) {
	_, at, err := s.queryKey(ctx, workspaceID, agentID)
	return at, err
}

// Key returns the key of an agent. It returns pg.ErrNotFound if the agent has no key.
func (s *AgentKeys) Key(ctx context.Context, workspaceID, agentID uuid.UUID) (string, error) {
	sealed, _, err := s.queryKey(ctx, workspaceID, agentID)
	if err != nil {
		return "", err
	}
	plain, err := s.box.Open(sealed, agentID.String())
	if err != nil {
		return "", fmt.Errorf("open key of agent %s: %w", agentID, err)
	}
	return string(plain), nil
}

func (s *AgentKeys) queryKey(
	ctx context.Context, workspaceID, agentID uuid.UUID,
) (sealed []byte, at time.Time, err error) {
	type row struct {
		Sealed    []byte    `db:"sealed"`
		UpdatedAt time.Time `db:"updated_at"`
	}
	args := pgx.NamedArgs{"workspace_id": workspaceID, "agent_id": agentID}
	found, err := pg.One[row](ctx, s.pool, keyOfAgent, args)
	if err != nil {
		return nil, at, fmt.Errorf("read key of agent %s: %w", agentID, err)
	}
	return found.Sealed, found.UpdatedAt, nil
}

const removeAgentKey = `DELETE FROM agent_keys WHERE workspace_id = @workspace_id AND agent_id = @agent_id`

// Remove deletes the key of an agent. It returns pg.ErrNotFound if the agent has no key.
func (s *AgentKeys) Remove(ctx context.Context, workspaceID, agentID uuid.UUID) error {
	deleted, err := s.pool.Exec(ctx, removeAgentKey, pg.Args{"workspace_id": workspaceID, "agent_id": agentID})
	switch {
	case err != nil:
		return fmt.Errorf("remove key of agent %s: %w", agentID, err)
	case deleted.RowsAffected() == 0:
		return pg.ErrNotFound
	}
	return nil
}

const (
	allAgentKeys   = `SELECT workspace_id, agent_id, sealed FROM agent_keys`
	resealAgentKey = `UPDATE agent_keys SET sealed = @again WHERE workspace_id = @workspace_id AND agent_id = @agent_id AND sealed = @was`
)

// Reseal encrypts every key again with the first sealing key of the configuration, and returns the
// number of changed keys. Reseal skips keys that cannot be decrypted, and then returns an error
// that names their agents.
func (s *AgentKeys) Reseal(ctx context.Context) (moved int, err error) {
	type secret struct {
		WorkspaceID uuid.UUID `db:"workspace_id"`
		AgentID     uuid.UUID `db:"agent_id"`
		Sealed      []byte    `db:"sealed"`
	}
	secrets, err := pg.Many[secret](ctx, s.pool, allAgentKeys, nil)
	if err != nil {
		return 0, fmt.Errorf("read sealed keys: %w", err)
	}
	var faults []error
	for _, one := range secrets {
		again, current, err := s.box.Reseal(one.Sealed, one.AgentID.String())
		if err == nil && !current {
			_, err = s.pool.Exec(ctx, resealAgentKey, pg.Args{"workspace_id": one.WorkspaceID, "agent_id": one.AgentID, "was": one.Sealed, "again": again})
			moved++
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("reseal key of agent %s: %w", one.AgentID, err))
		}
	}
	return moved, errors.Join(faults...)
}
