package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
)

// suspendedStatus is the status of a suspended workspace in the topic workspaces.v1.
const suspendedStatus = "suspended"

// Workspace is the copy of a workspace that the dispatcher stores.
type Workspace struct {
	ID        uuid.UUID
	Version   int64
	Suspended bool
	// Webhooks reports whether the workspace has the webhooks feature.
	Webhooks bool
	// KeepDays is the retention period of deliveries in days. If it is 0, the setting WEBHOOK_KEEP
	// applies.
	KeepDays int32
}

// WorkspaceOf converts an event of the topic workspaces.v1. It returns an error if the event has no
// valid id, or was written by a newer version and cannot be read.
func WorkspaceOf(event *eventv1.WorkspaceEvent) (Workspace, error) {
	id, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return Workspace{}, fmt.Errorf("workspace_id %q: %w", event.GetWorkspaceId(), err)
	}
	state := cmp.Or(event.GetWorkspace(), event.GetTestWorkspace())
	if state == nil {
		return Workspace{}, errors.New("the workspace event is newer than this build")
	}
	return Workspace{
		ID: id, Version: event.GetVersion(), Suspended: state.GetStatus() == suspendedStatus,
		Webhooks: state.GetWebhooksEnabled(), KeepDays: state.GetKeepWebhooksDays(),
	}, nil
}

// ApplyWorkspace calls SetWorkspace in its own transaction. If it returns nil, w.Version or a newer
// version is stored.
func (s *Store) ApplyWorkspace(ctx context.Context, w Workspace) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := s.SetWorkspace(ctx, tx, w)
		return err
	})
}

// SetWorkspace stores a workspace, unless w.Version or a newer version is already stored. changed
// reports whether the workspace was stored. While a workspace is suspended or has no webhooks
// feature, its deliveries are not claimed.
func (s *Store) SetWorkspace(ctx context.Context, tx pgx.Tx, w Workspace) (changed bool, err error) {
	tag, err := tx.Exec(ctx, upsertWorkspace, pgx.NamedArgs{
		"id": w.ID, "version": w.Version, "suspended": w.Suspended, "webhooks": w.Webhooks, "keep_days": w.KeepDays,
	})
	if err != nil {
		return false, fmt.Errorf("store workspace %s: %w", w.ID, err)
	}
	return tag.RowsAffected() > 0, nil
}

// WHERE NOT EXISTS prevents a row lock until the commit of the batch. ON CONFLICT locks the row
// even if its WHERE is false.
const upsertWorkspace = `
INSERT INTO workspaces (id, version, suspended, webhooks_enabled, keep_days)
SELECT @id::uuid, @version::bigint, @suspended::boolean, @webhooks::boolean, nullif(@keep_days::int, 0)
WHERE NOT EXISTS (SELECT FROM workspaces WHERE id = @id AND version >= @version)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, suspended = excluded.suspended,
    webhooks_enabled = excluded.webhooks_enabled, keep_days = excluded.keep_days, updated_at = now()
WHERE workspaces.version < excluded.version`
