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

const pendingColumns = `id, operator, actor_type, actor_id, actor_name, action, object_type, object_id, workspace_id,
	request_id, method, route, path, before`

const pendingValues = `@id, @operator, @actor_type, @actor_id, @actor_name, @action, @object_type, @object_id,
    @workspace,
	@request, @method, @route, @path, @before`

const insertPending = `INSERT INTO audit_intents (` + pendingColumns + `) VALUES (` + pendingValues + `)`

// AddPending stores a pending audit entry. Call AddPending before the change.
func (s *Store) AddPending(ctx context.Context, pending audit.PendingEntry) error {
	_, err := s.pool.Exec(ctx, insertPending, pendingArgs(pending))
	if err != nil {
		return fmt.Errorf("record pending audit entry %s: %w", pending.ID, err)
	}
	return nil
}

func pendingArgs(pending audit.PendingEntry) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": pending.ID, "operator": pending.Operator, "actor_type": pending.Actor.Type, "actor_id": pending.Actor.ID,
		"actor_name": pending.Actor.Name, "action": pending.Action, "object_type": pending.Object.Type,
		"object_id": pending.Object.ID, "workspace": pending.WorkspaceID, "request": pending.RequestID,
		"method": pending.Method, "route": pending.Route, "path": pending.Path, "before": jsonOrNull(pending.Before),
	}
}

// unflushed is an SQL condition that is always true. A statement that contains it commits without
// waiting until the WAL is on disk. If Postgres is killed within a second after this commit, the
// commit can be lost.
const unflushed = `(SELECT set_config('synchronous_commit', 'off', true) = 'off')`

const (
	deletePending = `DELETE FROM audit_intents WHERE id = @id`
	// If a crash loses the DELETE, auth.ExpiryJob writes an audit entry with the outcome unknown.
	dropPending = deletePending + ` AND ` + unflushed
)

// DropPending deletes the pending entry of a change that was refused or repeated.
func (s *Store) DropPending(ctx context.Context, pending audit.PendingEntry) error {
	if _, err := s.pool.Exec(ctx, dropPending, pgx.NamedArgs{"id": pending.ID}); err != nil {
		return fmt.Errorf("drop pending audit entry %s: %w", pending.ID, err)
	}
	return nil
}

// ON CONFLICT keeps an entry that auth.ExpiryJob has already written for a very slow change.
const (
	entryHead = `INSERT INTO audit_entries (` + pendingColumns + `, status, outcome, after, occurred_at)
VALUES (` + pendingValues + `, @status, @outcome, @after, `
	entryTail   = `) ON CONFLICT (id) DO NOTHING`
	insertAudit = entryHead + `now()` + entryTail
	// The pending entry is on disk. If this commit is lost, auth.ExpiryJob writes the audit entry.
	concludePending = `WITH concluded AS (` + deletePending + `) ` + entryHead + `CASE WHEN ` + unflushed + `
    THEN now() END` + entryTail
)

// Conclude replaces a pending entry by the audit entry.
func (s *Store) Conclude(ctx context.Context, entry audit.Entry) error {
	if _, err := s.pool.Exec(ctx, concludePending, entryArgs(entry)); err != nil {
		return fmt.Errorf("conclude pending audit entry %s: %w", entry.ID, err)
	}
	return nil
}

// Record stores an audit entry that has no pending entry. When it returns, the entry is on disk.
func (s *Store) Record(ctx context.Context, entry audit.Entry) error {
	if _, err := s.pool.Exec(ctx, insertAudit, entryArgs(entry)); err != nil {
		return fmt.Errorf("record audit entry %s: %w", entry.ID, err)
	}
	return nil
}

func insertEntry(ctx context.Context, tx pgx.Tx, entry audit.Entry) error {
	if _, err := tx.Exec(ctx, insertAudit, entryArgs(entry)); err != nil {
		return fmt.Errorf("insert audit row: %w", err)
	}
	return nil
}

func entryArgs(entry audit.Entry) pgx.NamedArgs {
	entry = entry.Complete()
	args := pendingArgs(entry.PendingEntry)
	args["status"], args["outcome"], args["after"] = entry.Status, entry.Outcome, jsonOrNull(entry.After)
	return args
}

const concludeOldPending = `WITH old AS (
	DELETE FROM audit_intents WHERE created_at < now() - @age::interval RETURNING ` + pendingColumns + `, created_at)
INSERT INTO audit_entries (` + pendingColumns + `, outcome, occurred_at)
SELECT ` + pendingColumns + `, 'unknown', created_at FROM old
ON CONFLICT (id) DO NOTHING`

// ConcludeOldPending replaces every pending entry that is older than minAge by an audit entry with
// the outcome unknown. It returns the number of these entries.
func (s *Store) ConcludeOldPending(ctx context.Context, minAge time.Duration) (int64, error) {
	tag, err := s.pool.Exec(ctx, concludeOldPending, pgx.NamedArgs{"age": minAge})
	if err != nil {
		return 0, fmt.Errorf("conclude old pending audit entries: %w", err)
	}
	return tag.RowsAffected(), nil
}

// auditColumns contains default values for entries that an earlier version stored without an actor
// and an object.
const auditColumns = `id, operator, coalesce(actor_type, 'operator') AS actor_type, coalesce(actor_id,
    operator) AS actor_id,
	coalesce(actor_name, operator) AS actor_name, coalesce(action, '') AS action,
	coalesce(object_type, '') AS object_type, coalesce(object_id, '') AS object_id,
	workspace_id, request_id, method, route, path, status, outcome, before, after, occurred_at`

const auditByID = `SELECT ` + auditColumns + ` FROM audit_entries WHERE id = @id AND operator <> ''`

// Entry reads one audit entry of an operator or a person. It returns pg.ErrNotFound if the entry
// does not exist.
func (s *Store) Entry(ctx context.Context, id uuid.UUID) (audit.Entry, error) {
	found, err := pg.One[audit.Entry](ctx, s.pool, auditByID, pgx.NamedArgs{"id": id})
	if err != nil {
		return found, fmt.Errorf("audit row %s: %w", id, err)
	}
	return found, nil
}

const (
	listAudit = `SELECT ` + auditColumns + ` FROM audit_entries
	WHERE operator <> '' AND uuid_send(id) < uuid_send(@below::uuid) ORDER BY uuid_send(id) DESC LIMIT @rows`
	listAuditOfWorkspace = `SELECT ` + auditColumns + ` FROM audit_entries
	WHERE operator <> '' AND workspace_id = @workspace AND uuid_send(id) < uuid_send(@below::uuid)
	    ORDER BY uuid_send(id) DESC LIMIT @rows`
)

// Entries lists the audit entries of operators and people, newest first. If workspaceID is nil, it
// lists the entries of all workspaces.
func (s *Store) Entries(ctx context.Context, workspaceID *uuid.UUID, request page.Request) ([]audit.Entry, error) {
	if request.After != uuid.Nil {
		if _, err := s.Entry(ctx, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	statement := listAudit
	if workspaceID != nil {
		statement = listAuditOfWorkspace
	}
	found, err := pg.Many[audit.Entry](ctx, s.pool, statement,
		pgx.NamedArgs{"workspace": workspaceID, "below": request.Below(), "rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list audit: %w", err)
	}
	return found, nil
}

const workspaceEntry = `SELECT true FROM audit_entries
	WHERE workspace_id = @workspace AND id = @below AND outcome <> 'unchanged'`

// WorkspaceEntries lists the audit entries of a workspace that match the filter, newest first.
// Entries of requests that changed nothing are not in the list.
func (s *Store) WorkspaceEntries(
	ctx context.Context, workspaceID uuid.UUID, filter audit.Filter, request page.Request,
) ([]audit.Entry, error) {
	args := pgx.NamedArgs{"workspace": workspaceID, "below": request.Below(), "rows": request.Rows()}
	if request.After != uuid.Nil {
		if _, err := pg.Value[bool](ctx, s.pool, workspaceEntry, args); err != nil {
			return nil, cursorError(err)
		}
	}
	// The statement contains only the conditions of the filters that are set, so that Postgres can use
	// the index of such a filter.
	statement := `SELECT ` + auditColumns + ` FROM audit_entries
	WHERE workspace_id = @workspace AND uuid_send(id) < uuid_send(@below::uuid) AND outcome <> 'unchanged'`
	for _, condition := range []struct {
		sql, name string
		value     any
		given     bool
	}{
		{` AND actor_id = @actor`, "actor", filter.ActorID, filter.ActorID != nil},
		{` AND object_type = @type`, "type", filter.ObjectType, filter.ObjectType != nil},
		{` AND object_id = @object`, "object", filter.ObjectID, filter.ObjectID != nil},
		{` AND uuid_send(id) >= uuid_send(@from::uuid)`, "from", filter.From, filter.From != nil},
		{` AND uuid_send(id) < uuid_send(@until::uuid)`, "until", filter.Until, filter.Until != nil},
	} {
		if condition.given {
			statement += condition.sql
			args[condition.name] = condition.value
		}
	}
	found, err := pg.Many[audit.Entry](ctx, s.pool, statement+` ORDER BY uuid_send(id) DESC LIMIT @rows`, args)
	if err != nil {
		return nil, fmt.Errorf("list audit of workspace %s: %w", workspaceID, err)
	}
	return found, nil
}
