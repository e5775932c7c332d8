package store

import (
	"context"
	"errors"
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

const workspaceByID = `SELECT id, version, currency, destinations FROM workspaces WHERE id = @workspace_id`

// Destinations are the only prefixes a workspace calls; empty means no restriction, also while its fact has not arrived
// (the dialer looks again before it dials).
func (s *Store) Destinations(ctx context.Context, workspaceID uuid.UUID) ([]string, error) {
	w, err := one[Workspace](ctx, s.pool, workspaceByID, pgx.NamedArgs{"workspace_id": workspaceID})
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read workspace %s: %w", workspaceID, err)
	}
	return w.Destinations, nil
}
