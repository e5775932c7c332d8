// Package consumer handles Kafka records. It turns public events into deliveries, and keeps a copy of
// the workspace settings that decide about deliveries.
package consumer

import (
	"time"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Consumer applies the topics to the store.
type Consumer struct {
	store  *store.Store
	sender Sender
	lease  time.Duration
}

// Sender sends what needs no claim.
type Sender interface {
	store.Seats
	// Start sends work that has a seat; it does not wait.
	Start(work []delivery.Work)
}

// New makes a consumer. sender sends at once what it has room for, claimed for lease; nil leaves all to the claim.
func New(st *store.Store, sender Sender, lease time.Duration) *Consumer {
	return &Consumer{store: st, sender: sender, lease: lease}
}

// Handlers maps each topic to its function.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{kafka.CallEvents.Name: inbox.Together(c.onCallEvents), kafka.Workspaces.Name: c.onWorkspace}
}
