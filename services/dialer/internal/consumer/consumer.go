// Package consumer listens: call requests go into the dial queue, what gateway and calls tell of workspaces and agents is copied, and who is erased
// is forgotten. One file a topic.
package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store"
)

// Consumer is the dialer's handlers.
type Consumer struct {
	store   *store.Store
	overdue *prometheus.CounterVec
}

// New listens for the store.
func New(st *store.Store, metrics prometheus.Registerer) *Consumer {
	c := &Consumer{store: st, overdue: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_overdue_orders_total", Help: "Orders that calls told again because they were overdue, by how they were found: waiting, lost (never heard of before), or over (ended, and calls did not hear of it).",
	}, []string{"found"})}
	metrics.MustRegister(c.overdue)
	for _, found := range request.Founds() {
		c.overdue.WithLabelValues(string(found))
	}
	return c
}

// Handlers is every topic the dialer reads.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequest,
		kafka.Agents.Name:       c.onAgent,
		kafka.Contacts.Name:     c.onContact,
		kafka.Workspaces.Name:   c.onWorkspace,
	}
}
