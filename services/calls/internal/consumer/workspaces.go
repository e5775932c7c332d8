package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/store"
)

// onWorkspace stores the workspace. If ApplySetting or an earlier record has stored this version or
// a newer one, nothing changes.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.WorkspaceEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	w, err := store.WorkspaceOf(&ev)
	if err != nil {
		return kafka.Parkf("read workspace event: %w", err)
	}
	return c.store.KeepWorkspace(ctx, tx, w)
}
