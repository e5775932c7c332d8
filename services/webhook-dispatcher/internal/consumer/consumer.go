// Package consumer handles Kafka records. It turns public events into deliveries, and keeps a copy of
// the workspace settings that decide about deliveries.
package consumer

import (
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Consumer applies the topics to the store.
type Consumer struct{ store *store.Store }

// New returns a consumer.
func New(st *store.Store) *Consumer { return &Consumer{store: st} }

// Handlers maps each topic to its function.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{kafka.CallEvents.Name: inbox.Together(c.onCallEvents), kafka.Workspaces.Name: c.onWorkspace}
}
