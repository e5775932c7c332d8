package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// onWorkspace stores the workspace. It skips the record if ApplySetting or an earlier record has
// stored this version or a newer one.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.WorkspaceEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	workspace, err := store.WorkspaceOf(&event)
	if err != nil {
		return kafka.Parkf("read workspace event: %w", err)
	}
	changed, err := c.store.SetWorkspace(ctx, tx, workspace)
	if err == nil && !changed {
		return kafka.Skipf("version %d of workspace %s, or a newer one, is stored", workspace.Version, workspace.ID)
	}
	return err
}
