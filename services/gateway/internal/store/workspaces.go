package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/workspaces"
)

const workspaceColumns = `id, name, plan, currency, status, calling_policy, policy_operator, policy_version,
	features, rate_limit_per_minute, max_live_calls, calls_per_second, destinations, retention, version, created_at,
		updated_at, mode, inbound_per_minute_micro, inbound_increment_seconds, inbound_max_concurrent,
		inbound_max_call_seconds`

const workspaceByID = `SELECT ` + workspaceColumns + ` FROM workspaces WHERE id = @id`

// Workspace reads one workspace. It returns pg.ErrNotFound if the workspace does not exist.
func (s *Store) Workspace(ctx context.Context, id uuid.UUID) (workspaces.Workspace, error) {
	found, err := pg.One[workspaces.Workspace](ctx, s.pool, workspaceByID, pgx.NamedArgs{"id": id})
	if err != nil {
		return found, fmt.Errorf("workspace %s: %w", id, err)
	}
	return found, nil
}

const listWorkspaces = `SELECT ` + workspaceColumns + ` FROM workspaces
	WHERE @after = '00000000-0000-0000-0000-000000000000'::uuid OR id < @after
	ORDER BY id DESC LIMIT @rows`

// Workspaces lists workspaces, newest first.
func (s *Store) Workspaces(ctx context.Context, request page.Request) ([]workspaces.Workspace, error) {
	if request.After != uuid.Nil {
		if _, err := s.Workspace(ctx, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[workspaces.Workspace](ctx, s.pool, listWorkspaces, pgx.NamedArgs{"after": request.After,
		"rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return found, nil
}

// cursorError converts pg.ErrNotFound to the 422 error for a starting_after that is not the id of a
// row. It returns other errors unchanged.
func cursorError(err error) error {
	if errors.Is(err, pg.ErrNotFound) {
		return page.UnknownCursor()
	}
	return err
}

const insertWorkspace = `INSERT INTO workspaces (id, name, plan, currency, status, calling_policy, policy_operator,
	policy_version, features, rate_limit_per_minute, max_live_calls, calls_per_second, destinations, retention, version,
	inbound_per_minute_micro, inbound_increment_seconds, inbound_max_concurrent, inbound_max_call_seconds,
	mode, mode_version)
VALUES (@id, @name, @plan, @currency, @status, @calling_policy, @policy_operator, @policy_version, @features,
	@rate_limit_per_minute, @max_live_calls, @calls_per_second, @destinations, @retention, @version::bigint,
	@inbound_per_minute, @inbound_increment, @inbound_max_concurrent, @inbound_max_seconds, @mode::text,
	CASE WHEN @mode::text = 'test' THEN @version::bigint END)
RETURNING ` + workspaceColumns

// AddWorkspace commits a new workspace with its event and its audit entry.
func (s *Store) AddWorkspace(
	ctx context.Context, w workspaces.Workspace, entry audit.Entry, state State,
) (saved workspaces.Workspace, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		saved, err = saveWorkspace(ctx, tx, insertWorkspace, w, entry, state)
		return err
	})
	if err != nil {
		return saved, fmt.Errorf("add workspace %s: %w", w.ID, err)
	}
	s.wakeRelay()
	return saved, nil
}

const lockWorkspace = workspaceByID + ` FOR UPDATE`

const updateWorkspace = `UPDATE workspaces SET name = @name, plan = @plan, status = @status, calling_policy = @calling_policy,
	policy_operator = @policy_operator, policy_version = @policy_version, features = @features,
		rate_limit_per_minute = @rate_limit_per_minute, max_live_calls = @max_live_calls,
	calls_per_second = @calls_per_second, destinations = @destinations, retention = @retention,
	inbound_per_minute_micro = @inbound_per_minute, inbound_increment_seconds = @inbound_increment,
	inbound_max_concurrent = @inbound_max_concurrent, inbound_max_call_seconds = @inbound_max_seconds,
	version = @version::bigint, updated_at = now(),
	mode_version = CASE WHEN mode = 'test' THEN @version::bigint END
WHERE id = @id AND version = @version - 1
RETURNING ` + workspaceColumns

// ChangeWorkspace commits the next version of a workspace with its event and its audit entry.
// nextVersion receives the stored version and returns the next one. The stored version is locked,
// so no concurrent change is lost. If nextVersion returns an error, nothing is stored.
func (s *Store) ChangeWorkspace(
	ctx context.Context, id uuid.UUID, entry audit.Entry, state State,
	nextVersion func(workspaces.Workspace) (workspaces.Workspace, error),
) (saved workspaces.Workspace, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		before, err := pg.One[workspaces.Workspace](ctx, tx, lockWorkspace, pgx.NamedArgs{"id": id})
		if err != nil {
			return err
		}
		next, err := nextVersion(before)
		if err != nil {
			return err
		}
		entry.Before = state(before)
		saved, err = saveWorkspace(ctx, tx, updateWorkspace, next, entry, state)
		return err
	})
	if err != nil {
		return saved, fmt.Errorf("change workspace %s: %w", id, err)
	}
	s.wakeRelay()
	return saved, nil
}

// State encodes a workspace for the audit log, as the operator API shows it.
type State func(workspaces.Workspace) []byte

func saveWorkspace(
	ctx context.Context, tx pgx.Tx, statement string, w workspaces.Workspace, entry audit.Entry, state State,
) (workspaces.Workspace, error) {
	saved, err := pg.One[workspaces.Workspace](ctx, tx, statement, pgx.NamedArgs{
		"id": w.ID, "name": w.Name, "plan": w.Plan, "currency": w.Currency, "status": w.Status,
		"calling_policy": jsonOrNull(w.CallingPolicy), "policy_operator": w.PolicyOperator,
		"policy_version": w.PolicyVersion, "features": w.Features, "rate_limit_per_minute": w.RateLimitPerMinute,
		"max_live_calls": w.MaxLiveCalls, "calls_per_second": w.CallsPerSecond, "destinations": w.Destinations,
		"retention": w.Retention, "version": w.Version, "mode": w.Mode,
		"inbound_per_minute": int64(w.Inbound.PerMinute), "inbound_increment": w.Inbound.IncrementSeconds,
		"inbound_max_concurrent": w.Inbound.MaxConcurrent, "inbound_max_seconds": w.Inbound.MaxCallSeconds,
	})
	if err != nil {
		return saved, err
	}
	entry.After = state(saved)
	if err := insertEntry(ctx, tx, entry); err != nil {
		return saved, err
	}
	return saved, outbox.Put(ctx, tx, outbox.Event{
		Topic: kafka.Workspaces, Key: w.ID.String(), WorkspaceID: w.ID, Message: saved.Event(),
	})
}
