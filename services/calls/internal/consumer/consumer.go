// Package consumer applies the events of the gateway, the dialer, billing-wallet and
// contacts-compliance to call requests and calls. The handlers run in a transaction of libs/inbox.
// A job publishes call.completed for calls whose charge or analysis did not arrive in time. Package
// callstate defines the state changes.
package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

type Consumer struct {
	store     *store.Store
	waits     callstate.Waits
	wakeRelay func()
	late      *prometheus.CounterVec
	ended     *prometheus.CounterVec
}

// New returns a consumer. The consumer calls wakeRelay after events were written to the outbox.
func New(st *store.Store, waits callstate.Waits, wakeRelay func(), metrics prometheus.Registerer) *Consumer {
	c := &Consumer{store: st, waits: waits, wakeRelay: wakeRelay, late: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_calls_late_events_total",
		Help: "Charges and analyses that arrived after call.completed was published without them.",
	}, []string{"kind"}), ended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_calls_ended_total",
		Help: "Ended calls by direction, status and hangup cause (none: the phone did not ring).",
	}, []string{"direction", "status", "cause"})}
	metrics.MustRegister(c.late, c.ended)
	for _, kind := range []string{"charge", "analysis"} {
		c.late.WithLabelValues(kind)
	}
	return c
}

// Handlers returns the handler of each topic.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.DialEvents.Name:   c.onDialEvents,
		kafka.WalletEvents.Name: c.onWalletEvents,
		kafka.Workspaces.Name:   inbox.Each(c.onWorkspace, nil),
		kafka.Contacts.Name:     inbox.Each(c.onContact, c.wakeRelay),
	}
}
