// Package consumer listens: it turns the facts of the gateway, the dialer, billing-wallet and contacts-compliance into what internal/call
// makes of them, in the transaction that libs/inbox opened. It decides nothing itself.
package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/calls/internal/call"
	"ringfence.dev/services/calls/internal/store"
)

// Consumer folds facts.
type Consumer struct {
	store *store.Store
	waits call.Waits
	late  *prometheus.CounterVec
	ended *prometheus.CounterVec
}

// New makes a consumer.
func New(st *store.Store, waits call.Waits, metrics prometheus.Registerer) *Consumer {
	c := &Consumer{store: st, waits: waits, late: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "calls_late_news_total", Help: "Charges and analyses that came after call.completed had gone out without them.",
	}, []string{"kind"}), ended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "calls_ended_total", Help: "Calls by how they ended: direction, status, hangup cause (contract.md §2; none: it never rang). A fact that is folded again after a fault counts again.",
	}, []string{"direction", "status", "cause"})}
	metrics.MustRegister(c.late, c.ended)
	for _, kind := range []string{"charge", "analysis"} {
		c.late.WithLabelValues(kind)
	}
	return c
}

// Handlers is the table of topics.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.DialEvents.Name:   inbox.Together(c.onDialEvents),
		kafka.WalletEvents.Name: inbox.Together(c.onWalletEvents),
		kafka.Workspaces.Name:   c.onWorkspace,
		kafka.Contacts.Name:     c.onContact,
	}
}
