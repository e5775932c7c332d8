package consumer

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/tenant"
)

// onAgent keeps the newest version of an agent.
func (c *Consumer) onAgent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.AgentEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	id, err := uuid.Parse(event.GetAgentId())
	if err != nil {
		return kafka.Parkf("agent_id: %v", err)
	}
	workspaceID, err := uuid.Parse(event.GetWorkspaceId())
	if err != nil {
		return kafka.Parkf("workspace_id: %v", err)
	}
	agent := event.GetAgent()
	if agent == nil {
		return kafka.Parkf("agent event %T is newer than this build", event.GetEvent())
	}
	settings := agent.GetSettingsJson()
	if !json.Valid(settings) { // a build that did not tell them
		settings = []byte("{}")
	}
	return c.store.SaveAgent(ctx, tx, tenant.Agent{
		AgentID: id, WorkspaceID: workspaceID, Version: event.GetVersion(), Name: agent.GetName(), FromE164: agent.GetFromE164(),
		MaxCallSeconds: agent.GetMaxCallSeconds(), Deleted: agent.GetDeleted(), Settings: settings,
	})
}
