// Package consumer listens: call requests go into the dial queue, and what gateway and calls tell of workspaces and agents is copied. One file
// a topic.
package consumer

import (
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/store"
)

// Consumer is the dialer's handlers.
type Consumer struct {
	store *store.Store
	due   func()
}

// New listens for the store; due is told when something may have come into the queue, a moment before it is committed.
func New(st *store.Store, due func()) *Consumer { return &Consumer{store: st, due: due} }

// Handlers is every topic the dialer reads.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequest,
		kafka.Agents.Name:       c.onAgent,
		kafka.Workspaces.Name:   c.onWorkspace,
	}
}
