package consumer

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// onWorkspace creates the wallet of a workspace, unless ApplySetting has already created it.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.WorkspaceEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	id, err := uuid.Parse(ev.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("workspace_id: %w", err)
	}
	workspace := cmp.Or(ev.GetWorkspace(), ev.GetTestWorkspace())
	if workspace == nil {
		return kafka.Parkf("workspace event %T is newer than this build", ev.GetEvent())
	}
	err = c.store.KeepCurrency(ctx, tx, id, workspace.GetCurrency())
	if errors.Is(err, store.ErrCurrencyFixed) {
		return kafka.Parkf("apply workspace event: %w", err)
	}
	return err
}
