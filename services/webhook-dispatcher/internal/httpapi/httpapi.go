// Package httpapi listens to customers and operators: it decodes, asks the store and encodes. The gateway has checked
// key, plan and access before.
package httpapi

import (
	"errors"
	"net/netip"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// API answers the dispatcher's routes.
type API struct {
	store     *store.Store
	reachable func(netip.Addr) bool
	// queued and deleted wake who acts on what a request left behind; they never block.
	wakeDispatcher func()
	wakeRetention  func()
}

// New makes an API. reachable says which literal addresses a url may name; queued is called when work may have become
// due, deleted when history waits to be erased.
func New(st *store.Store, reachable func(netip.Addr) bool, queued, deleted func()) *API {
	return &API{store: st, reachable: reachable, wakeDispatcher: queued, wakeRetention: deleted}
}

const (
	subscriptionResource = "webhook subscription"
	deliveryResource     = "delivery"
)

// notFound gives what the store does not find its 404.
func notFound(err error, thing string) error {
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound(thing)
	}
	return err
}
