package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

// suspended is the workspace status that holds deliveries (contract.md §7).
const suspended = "suspended"

// onWorkspace keeps whether a workspace is suspended and how long it wants its history kept; the newest version wins.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var fact eventv1.WorkspaceEvent
	if err := rec.Decode(&fact); err != nil {
		return err
	}
	workspace := fact.GetWorkspace()
	if workspace == nil {
		return kafka.Parkf("workspace event %T is newer than this build", fact.GetEvent())
	}
	id, err := uuid.Parse(fact.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("workspace_id %q: %w", fact.GetWorkspaceId(), err)
	}
	changed, err := c.store.SetWorkspace(ctx, tx, id, fact.GetVersion(), workspace.GetStatus() == suspended)
	if err != nil {
		return err
	}
	if !changed {
		return kafka.Skipf("version %d of workspace %s is old news", fact.GetVersion(), id)
	}
	return c.store.KeepFor(ctx, tx, id, fact.GetVersion(), workspace.GetKeepWebhooksDays())
}
