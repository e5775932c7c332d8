package consumer

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/tenant"
)

// onWorkspace keeps the newest version of a workspace. Limits that are not told are the defaults.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.WorkspaceEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	id, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("workspace_id: %v", err)
	}
	workspace := event.GetWorkspace()
	if workspace == nil {
		return kafka.Parkf("workspace event %T is newer than this build", event.GetEvent())
	}
	saved := tenant.Workspace{
		WorkspaceID: id, Version: event.GetVersion(), Status: workspace.GetStatus(), APIEnabled: workspace.GetApiEnabled(),
		MaxLiveCalls: workspace.GetMaxLiveCalls(), CallsPerSecond: workspace.GetCallsPerSecond(), Destinations: workspace.GetDestinations(),
		Recordings: workspace.GetRecordingsEnabled(), KeepRecordingsDays: workspace.GetKeepRecordingsDays(),
	}
	if saved.MaxLiveCalls <= 0 {
		saved.MaxLiveCalls = tenant.DefaultMaxLiveCalls
	}
	if saved.CallsPerSecond <= 0 {
		saved.CallsPerSecond = tenant.DefaultCallsPerSecond
	}
	return c.store.SaveWorkspace(ctx, tx, saved)
}
