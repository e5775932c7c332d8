// Package consumer handles Kafka records. It turns public events into deliveries, and stores the
// workspace settings on which deliveries depend.
package consumer

import (
	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Wakes contains functions that the consumer calls after a commit. The functions must not block.
type Wakes struct {
	// Queued is called with the subscriptions that have new due deliveries.
	Queued func([]store.Due)
	// WakeStreams is called with the workspaces that have new events.
	WakeStreams func([]uuid.UUID)
	// Dispatcher is called after a workspace changed. Relay is called after events were written to
	// the outbox.
	Dispatcher, Relay func()
}

// Consumer stores the records of the topics. It is safe for concurrent use.
type Consumer struct {
	store *store.Store
	wakes Wakes
}

// New returns a consumer.
func New(st *store.Store, wakes Wakes) *Consumer { return &Consumer{store: st, wakes: wakes} }

// Handlers returns the handler of each topic.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallEvents.Name: c.onCallEvents,
		// When the suspension of a workspace ends, its deliveries become due again. Therefore the
		// dispatcher is woken.
		kafka.Workspaces.Name: inbox.Each(c.onWorkspace, c.wakes.Dispatcher),
	}
}
