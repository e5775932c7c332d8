package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.WorkspaceEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	workspace, err := dialqueue.WorkspaceOf(&event)
	if err != nil {
		return kafka.Parkf("read workspace event: %w", err)
	}
	return c.store.SaveWorkspace(ctx, tx, workspace)
}
