// Package consumer listens to Kafka: public events become deliveries, workspaces become a copy of who is suspended.
package consumer

import (
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Consumer applies the topics to the store.
type Consumer struct{ store *store.Store }

// New makes a consumer.
func New(st *store.Store) *Consumer { return &Consumer{store: st} }

// Handlers maps each topic to its function.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{kafka.CallEvents.Name: c.onCallEvent, kafka.Workspaces.Name: c.onWorkspace}
}
