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

const intentColumns = `id, operator, actor_type, actor_id, actor_name, action, object_type, object_id, workspace_id,
	request_id, method, route, path, before`

const intentValues = `@id, @operator, @actor_type, @actor_id, @actor_name, @action, @object_type, @object_id,
    @workspace,
	@request, @method, @route, @path, @before`

const insertIntent = `INSERT INTO audit_intents (` + intentColumns + `) VALUES (` + intentValues + `)`

// Intend records in the audit log that a change is about to be made. Call Intend before the change.
func (s *Store) Intend(ctx context.Context, intent audit.Intent) error {
	_, err := s.pool.Exec(ctx, insertIntent, intentArgs(intent))
	if err != nil {
		return fmt.Errorf("record intent %s: %w", intent.ID, err)
	}
	return nil
}

func intentArgs(intent audit.Intent) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": intent.ID, "operator": intent.Operator, "actor_type": intent.Actor.Type, "actor_id": intent.Actor.ID,
		"actor_name": intent.Actor.Name, "action": intent.Action, "object_type": intent.Object.Type,
		"object_id": intent.Object.ID, "workspace": intent.WorkspaceID, "request": intent.RequestID,
		"method": intent.Method, "route": intent.Route, "path": intent.Path, "before": jsonOrNull(intent.Before),
	}
}

// unflushed is an SQL condition that is always true. A statement that contains it commits without
// waiting until the WAL is on disk. If Postgres is killed within a second after this commit, the
// commit can be lost.
const unflushed = `(SELECT set_config('synchronous_commit', 'off', true) = 'off')`

const (
	deleteIntent = `DELETE FROM audit_intents WHERE id = @id`
	// If a crash loses the DELETE, the retention job writes an audit entry with the outcome `unknown`.
	dropIntent = deleteIntent + ` AND ` + unflushed
)

// Drop deletes the intent of a change that was refused.
func (s *Store) Drop(ctx context.Context, intent audit.Intent) error {
	if _, err := s.pool.Exec(ctx, dropIntent, pgx.NamedArgs{"id": intent.ID}); err != nil {
		return fmt.Errorf("drop intent %s: %w", intent.ID, err)
	}
	return nil
}

// ON CONFLICT keeps an entry that the retention job has already written for a very slow change.
const (
	entryHead = `INSERT INTO audit_entries (` + intentColumns + `, status, outcome, after, occurred_at)
VALUES (` + intentValues + `, @status, @outcome, @after, `
	entryTail   = `) ON CONFLICT (id) DO NOTHING`
	insertAudit = entryHead + `now()` + entryTail
	// The intent is on disk. So if this commit is lost, the retention job writes an entry.
	concludeIntent = `WITH concluded AS (` + deleteIntent + `) ` + entryHead + `CASE WHEN ` + unflushed + `
    THEN now() END` + entryTail
)

// Conclude replaces the intent of a change with the audit entry.
func (s *Store) Conclude(ctx context.Context, entry audit.Entry) error {
	if _, err := s.pool.Exec(ctx, concludeIntent, entryArgs(entry)); err != nil {
		return fmt.Errorf("conclude intent %s: %w", entry.ID, err)
	}
	return nil
}

// Record stores an audit entry that has no intent. When it returns, the entry is on disk.
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
	args := intentArgs(entry.Intent)
	args["status"], args["outcome"], args["after"] = entry.Status, entry.Outcome, jsonOrNull(entry.After)
	return args
}

const concludeOldIntents = `WITH old AS (
	DELETE FROM audit_intents WHERE created_at < now() - @age::interval RETURNING ` + intentColumns + `, created_at)
INSERT INTO audit_entries (` + intentColumns + `, outcome, occurred_at)
SELECT ` + intentColumns + `, 'unknown', created_at FROM old
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
