package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Workspace is what calls keeps of a tenant.
type Workspace struct {
	ID           uuid.UUID `db:"id"`
	Version      int64     `db:"version"`
	Currency     string    `db:"currency"`
	Destinations []string  `db:"destinations"`
}

const keepWorkspace = `
INSERT INTO workspaces AS w (id, version, currency, destinations)
VALUES (@id, @version, @currency, @destinations)
ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, currency = EXCLUDED.currency, destinations = EXCLUDED.destinations
WHERE w.version < EXCLUDED.version`

// KeepWorkspace keeps the newest version of a workspace; an older one changes nothing.
func (s *Store) KeepWorkspace(ctx context.Context, tx pgx.Tx, w Workspace) error {
	if w.Destinations == nil {
		w.Destinations = []string{}
	}
	_, err := tx.Exec(ctx, keepWorkspace, pgx.NamedArgs{
		"id": w.ID, "version": w.Version, "currency": w.Currency, "destinations": w.Destinations,
	})
	if err != nil {
		return fmt.Errorf("keep workspace %s: %w", w.ID, err)
	}
	return nil
}

// Admission is what calls knows by itself about an order.
type Admission struct {
	// Destinations are the only prefixes the workspace calls; empty means no restriction, also while its fact has not arrived (the
	// dialer looks again before it dials).
	Destinations []string `db:"destinations"`
	// MaxCallSeconds is the agent's longest call; nil: the workspace has no such agent.
	MaxCallSeconds *int32 `db:"max_call_seconds"`
}

// Once a POST, so one round trip.
const admission = `
SELECT coalesce((SELECT destinations FROM workspaces WHERE id = @workspace_id), '{}') AS destinations,
    (SELECT max_call_seconds FROM agents WHERE workspace_id = @workspace_id AND id = @agent_id AND deleted_at IS NULL) AS max_call_seconds`

// Admission reads what an order of the workspace with the agent may be.
func (s *Store) Admission(ctx context.Context, workspaceID, agentID uuid.UUID) (Admission, error) {
	found, err := one[Admission](ctx, s.pool, admission, pgx.NamedArgs{"workspace_id": workspaceID, "agent_id": agentID})
	if err != nil {
		return Admission{}, fmt.Errorf("read what workspace %s may order: %w", workspaceID, err)
	}
	return found, nil
}
