// Package consumer applies events of other services: it queues call requests, stores workspaces and
// agents, and creates erasures. Each topic has one file.
package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// Wakes are functions that are called after a commit. They must not block.
type Wakes struct {
	// Dialing is called after due requests were queued, and Relay after events were written to the
	// outbox.
	Dialing, Relay func()
}

// Consumer applies events to the store.
type Consumer struct {
	store   *store.Store
	wakes   Wakes
	overdue *prometheus.CounterVec
}

// New returns a consumer and registers its metric.
func New(st *store.Store, wakes Wakes, metrics prometheus.Registerer) *Consumer {
	c := &Consumer{store: st, wakes: wakes, overdue: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_overdue_requests_total",
		Help: "Orders that calls published again because they were overdue, by where they were found: " +
			"waiting, lost (not in the queue), or over (ended, and calls has not received the end).",
	}, []string{"found"})}
	metrics.MustRegister(c.overdue)
	for _, found := range dialqueue.Founds() {
		c.overdue.WithLabelValues(string(found))
	}
	return c
}

// Handlers returns the handler of each topic.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequests,
		kafka.Agents.Name:       inbox.Each(c.onAgent, nil),
		kafka.Contacts.Name:     inbox.Each(c.onContact, c.wakes.Relay),
		// A workspace that may dial again can have due requests.
		kafka.Workspaces.Name: inbox.Each(c.onWorkspace, c.wakes.Dialing),
	}
}
