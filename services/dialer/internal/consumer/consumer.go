// Package consumer listens: call requests go into the dial queue, what gateway and calls tell of workspaces and agents is copied, and who is erased
// is forgotten. One file a topic.
package consumer

import (
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/store"
)

// Consumer is the dialer's handlers.
type Consumer struct{ store *store.Store }

// New listens for the store.
func New(st *store.Store) *Consumer { return &Consumer{store: st} }

// Handlers is every topic the dialer reads.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequest,
		kafka.Agents.Name:       c.onAgent,
		kafka.Contacts.Name:     c.onContact,
		kafka.Workspaces.Name:   c.onWorkspace,
	}
}
