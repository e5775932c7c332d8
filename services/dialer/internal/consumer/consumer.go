// Package consumer applies events of other services. It queues call requests, stores workspaces and
// agents, and starts erasures. Each topic has its own file.
package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// Wakes contains functions that the Consumer calls after a commit. They must not block.
type Wakes struct {
	// Dialing is called after requests that are due soon were queued. Relay is called after events
	// were written to the outbox.
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
		Help: "Overdue call requests and calls that the calls service published again, by where the dialer found " +
			"them: waiting, lost (unknown to the dialer), or over (ended, but calls did not receive the end).",
	}, []string{"found"})}
	metrics.MustRegister(c.overdue)
	for _, found := range dialqueue.Founds() {
		c.overdue.WithLabelValues(string(found))
	}
	return c
}

// Handlers returns the handlers of all topics, by the topic's name.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.CallRequests.Name: c.onCallRequests,
		kafka.Agents.Name:       inbox.Each(c.onAgent, nil),
		kafka.Contacts.Name:     inbox.Each(c.onContact, c.wakes.Relay),
		// A workspace that may dial again can have due requests, so the dialer is woken.
		kafka.Workspaces.Name: inbox.Each(c.onWorkspace, c.wakes.Dialing),
	}
}
