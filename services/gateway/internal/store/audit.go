package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
)

const insertIntent = `INSERT INTO audit_intents (id, operator, workspace_id, request_id, method, route, path, before)
VALUES (@id, @operator, @workspace, @request, @method, @route, @path, @before)`

// Intend stores an intent: the record that a change is about to be made. Call Intend before the
// change is sent.
func (s *Store) Intend(ctx context.Context, intent audit.Intent) error {
	_, err := s.pool.Exec(ctx, insertIntent, intentArgs(intent))
	if err != nil {
		return fmt.Errorf("record intent %s: %w", intent.ID, err)
	}
	return nil
}

func intentArgs(intent audit.Intent) pgx.NamedArgs {
	return pgx.NamedArgs{"id": intent.ID, "operator": intent.Operator, "workspace": intent.WorkspaceID, "request": intent.RequestID,
		"method": intent.Method, "route": intent.Route, "path": intent.Path, "before": jsonOrNull(intent.Before)}
}

const deleteIntent = `DELETE FROM audit_intents WHERE id = @id`

// Drop deletes the intent of a change that was refused.
func (s *Store) Drop(ctx context.Context, intent audit.Intent) error {
	if _, err := s.pool.Exec(ctx, deleteIntent, pgx.NamedArgs{"id": intent.ID}); err != nil {
		return fmt.Errorf("drop intent %s: %w", intent.ID, err)
	}
	return nil
}

// Conclude replaces the intent of a change with the audit entry.
func (s *Store) Conclude(ctx context.Context, entry audit.Entry) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return concludeIntent(ctx, tx, entry) })
	if err != nil {
		return fmt.Errorf("conclude intent %s: %w", entry.ID, err)
	}
	return nil
}

func concludeIntent(ctx context.Context, tx pgx.Tx, entry audit.Entry) error {
	if _, err := tx.Exec(ctx, deleteIntent, pgx.NamedArgs{"id": entry.ID}); err != nil {
		return fmt.Errorf("delete intent: %w", err)
	}
	return insertEntry(ctx, tx, entry)
}

// The retention job could already have written the audit entry of a very slow change. The existing
// entry is then kept.
const insertAudit = `
INSERT INTO audit_entries (id, operator, workspace_id, request_id, method, route, path, status, outcome, before, after,
    occurred_at)
VALUES (@id, @operator, @workspace, @request, @method, @route, @path, @status, @outcome, @before, @after, now())
ON CONFLICT (id) DO NOTHING`

func insertEntry(ctx context.Context, tx pgx.Tx, entry audit.Entry) error {
	args := intentArgs(entry.Intent)
	args["status"], args["outcome"], args["after"] = entry.Status, entry.Outcome, jsonOrNull(entry.After)
	if _, err := tx.Exec(ctx, insertAudit, args); err != nil {
		return fmt.Errorf("insert audit row: %w", err)
	}
	return nil
}

const concludeOldIntents = `WITH old AS (
	DELETE FROM audit_intents WHERE created_at < now() - @age::interval
	RETURNING id, operator, workspace_id, request_id, method, route, path, before, created_at)
INSERT INTO audit_entries (id, operator, workspace_id, request_id, method, route, path, outcome, before, occurred_at)
SELECT id, operator, workspace_id, request_id, method, route, path, 'unknown', before, created_at FROM old
ON CONFLICT (id) DO NOTHING`

// ConcludeOldIntents writes an audit entry with the outcome unknown for every intent that is older
// than minAge. It returns the number of these intents.
func (s *Store) ConcludeOldIntents(ctx context.Context, minAge time.Duration) (int64, error) {
	tag, err := s.pool.Exec(ctx, concludeOldIntents, pgx.NamedArgs{"age": minAge})
	if err != nil {
		return 0, fmt.Errorf("conclude old intents: %w", err)
	}
	return tag.RowsAffected(), nil
}

const auditColumns = `id, operator, workspace_id, request_id, method, route, path, status, outcome, before, after, occurred_at`

const auditByID = `SELECT ` + auditColumns + ` FROM audit_entries WHERE id = @id`

// Entry reads one audit entry. It returns pg.ErrNotFound if the entry does not exist.
func (s *Store) Entry(ctx context.Context, id uuid.UUID) (audit.Entry, error) {
	found, err := pg.One[audit.Entry](ctx, s.pool, auditByID, pgx.NamedArgs{"id": id})
	if err != nil {
		return found, fmt.Errorf("audit row %s: %w", id, err)
	}
	return found, nil
}

const listAudit = `SELECT ` + auditColumns + ` FROM audit_entries
	WHERE (@workspace::uuid IS NULL OR workspace_id = @workspace)
	AND (@after = '00000000-0000-0000-0000-000000000000'::uuid OR id < @after)
	ORDER BY id DESC LIMIT @rows`

// Entries lists audit entries, newest first. If workspaceID is nil, it lists the entries of all
// workspaces.
func (s *Store) Entries(ctx context.Context, workspaceID *uuid.UUID, request page.Request) ([]audit.Entry, error) {
	if request.After != uuid.Nil {
		if _, err := s.Entry(ctx, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[audit.Entry](ctx, s.pool, listAudit,
		pgx.NamedArgs{"workspace": workspaceID, "after": request.After, "rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list audit: %w", err)
	}
	return found, nil
}
