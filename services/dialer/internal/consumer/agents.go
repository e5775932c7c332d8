package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func (c *Consumer) onAgent(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var event eventv1.AgentEvent
	if err := rec.Decode(&event); err != nil {
		return err
	}
	agent, err := dialqueue.AgentOf(&event)
	if err != nil {
		return kafka.Parkf("read agent event: %w", err)
	}
	return c.store.SaveAgent(ctx, tx, agent)
}
