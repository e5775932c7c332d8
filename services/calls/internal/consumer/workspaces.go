package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/store"
)

// onWorkspace keeps the newest state of a tenant.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.WorkspaceEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	id, err := uuid.Parse(ev.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("read workspace id: %w", err)
	}
	state := ev.GetWorkspace()
	if state == nil {
		return kafka.Parkf("the workspace event is newer than this build")
	}
	return c.store.KeepWorkspace(ctx, tx, store.Workspace{
		ID: id, Version: ev.GetVersion(), Currency: state.GetCurrency(), Destinations: state.GetDestinations(),
		KeepCallsDays: state.GetKeepCallsDays(), KeepTranscriptsDays: state.GetKeepTranscriptsDays(),
		Transcripts: state.GetTranscriptsEnabled(), Recordings: state.GetRecordingsEnabled(),
	})
}
