package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// Principal is the holder of an API key: the key and its workspace.
type Principal struct {
	KeyID              uuid.UUID
	KeyName            string
	WorkspaceID        uuid.UUID
	Access             serviceauth.Access
	Plan               workspaces.Plan
	Status             workspaces.Status
	Features           workspaces.Features
	RateLimitPerMinute *int32
}

// Workspace returns the workspace. It contains only the fields that authentication needs.
func (h Principal) Workspace() workspaces.Workspace {
	return workspaces.Workspace{ID: h.WorkspaceID, Plan: h.Plan, Status: h.Status, Features: h.Features, RateLimitPerMinute: h.RateLimitPerMinute}
}

// Policy returns the rate limit of each key of the workspace.
func (h Principal) Policy() ratelimit.Policy { return ratelimit.Policy(h.Workspace().RatePerMinute()) }

const holderByHash = `SELECT k.id AS key_id, k.name AS key_name, k.workspace_id, k.access, w.plan, w.status,
    w.features, w.rate_limit_per_minute
FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
WHERE k.hash = @hash AND k.revoked_at IS NULL`

// PrincipalOf returns the holder of a key. It returns pg.ErrNotFound if the key is unknown or
// revoked.
func (s *Store) PrincipalOf(ctx context.Context, hash secrets.Hash) (Principal, error) {
	found, err := pg.One[Principal](ctx, s.pool, holderByHash, pgx.NamedArgs{"hash": hash[:]})
	if err != nil {
		return found, fmt.Errorf("holder of a key: %w", err)
	}
	return found, nil
}

const keyColumns = `id, workspace_id, name, access, prefix, created_at, revoked_at`

const keyByID = `SELECT ` + keyColumns + ` FROM api_keys WHERE workspace_id = @workspace AND id = @id`

// Key reads one key of a workspace, even if the key is revoked. It returns pg.ErrNotFound if the
// key does not exist.
func (s *Store) Key(ctx context.Context, workspaceID, id uuid.UUID) (secrets.APIKey, error) {
	found, err := pg.One[secrets.APIKey](ctx, s.pool, keyByID, pgx.NamedArgs{"workspace": workspaceID, "id": id})
	if err != nil {
		return found, fmt.Errorf("key %s: %w", id, err)
	}
	return found, nil
}

const listKeys = `SELECT ` + keyColumns + ` FROM api_keys
	WHERE workspace_id = @workspace AND (@after = '00000000-0000-0000-0000-000000000000'::uuid OR id < @after)
	ORDER BY id DESC LIMIT @rows`

// Keys lists all keys of a workspace, including the revoked ones, newest first.
func (s *Store) Keys(ctx context.Context, workspaceID uuid.UUID, request page.Request) ([]secrets.APIKey, error) {
	if request.After != uuid.Nil {
		if _, err := s.Key(ctx, workspaceID, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[secrets.APIKey](ctx, s.pool, listKeys,
		pgx.NamedArgs{"workspace": workspaceID, "after": request.After, "rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return found, nil
}

const insertKey = `INSERT INTO api_keys (id, workspace_id, name, access, prefix, hash)
VALUES (@id, @workspace, @name, @access, @prefix, @hash)
RETURNING ` + keyColumns

// AddKey stores the hash of a key and its audit entry.
func (s *Store) AddKey(
	ctx context.Context, key secrets.APIKey, hash secrets.Hash, entry audit.Entry, state func(secrets.APIKey) []byte,
) (saved secrets.APIKey, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		saved, err = pg.One[secrets.APIKey](ctx, tx, insertKey, pgx.NamedArgs{"id": key.ID, "workspace": key.WorkspaceID,
			"name": key.Name, "access": key.Access, "prefix": key.Prefix, "hash": hash[:]})
		if err != nil {
			return err
		}
		entry.After = state(saved)
		return insertEntry(ctx, tx, entry)
	})
	if err != nil {
		return saved, fmt.Errorf("add key %s: %w", key.ID, err)
	}
	return saved, nil
}

const revokeKey = `UPDATE api_keys SET revoked_at = now()
WHERE workspace_id = @workspace AND id = @id AND revoked_at IS NULL
RETURNING ` + keyColumns

// RevokeKey revokes a key and writes the audit entry. If the key is already revoked, nothing is
// changed or written.
func (s *Store) RevokeKey(
	ctx context.Context, workspaceID, id uuid.UUID, entry audit.Entry, state func(secrets.APIKey) []byte,
) (saved secrets.APIKey, err error) {
	args := pgx.NamedArgs{"workspace": workspaceID, "id": id}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		saved, err = pg.One[secrets.APIKey](ctx, tx, revokeKey, args)
		if errors.Is(err, pg.ErrNotFound) {
			saved, err = pg.One[secrets.APIKey](ctx, tx, keyByID, args)
			return err
		}
		if err != nil {
			return err
		}
		before := saved
		before.RevokedAt = nil
		entry.Before, entry.After = state(before), state(saved)
		return insertEntry(ctx, tx, entry)
	})
	if err != nil {
		return saved, fmt.Errorf("revoke key %s: %w", id, err)
	}
	return saved, nil
}

// Operator is an operator and the hash of the operator's token.
type Operator struct {
	Name string
	Hash []byte
}

const listOperators = `SELECT name, hash FROM operator_tokens WHERE revoked_at IS NULL`

// Operators returns the operators whose tokens are not revoked.
func (s *Store) Operators(ctx context.Context) ([]Operator, error) {
	found, err := pg.Many[Operator](ctx, s.pool, listOperators, nil)
	if err != nil {
		return nil, fmt.Errorf("list operators: %w", err)
	}
	return found, nil
}

const saveOperator = `INSERT INTO operator_tokens (name, hash) VALUES (@name, @hash)
ON CONFLICT (name) DO UPDATE SET hash = @hash, revoked_at = NULL
WHERE operator_tokens.hash <> @hash OR operator_tokens.revoked_at IS NOT NULL`

const revokeOtherOperators = `
UPDATE operator_tokens SET revoked_at = now()
WHERE revoked_at IS NULL AND NOT name = ANY(@names)`

// SeedOperators makes the given operators the only valid operators. A new token replaces the old
// token of the same name. The tokens of all other operators are revoked. A repeated call with the
// same operators changes nothing.
func (s *Store) SeedOperators(ctx context.Context, operators []Operator) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		names := make([]string, 0, len(operators))
		for _, operator := range operators {
			names = append(names, operator.Name)
			if _, err := tx.Exec(ctx, saveOperator, pgx.NamedArgs{"name": operator.Name, "hash": operator.Hash}); err != nil {
				return fmt.Errorf("operator %s: %w", operator.Name, err)
			}
		}
		_, err := tx.Exec(ctx, revokeOtherOperators, pgx.NamedArgs{"names": names})
		return err
	})
	if err != nil {
		return fmt.Errorf("seed operators: %w", err)
	}
	return nil
}
