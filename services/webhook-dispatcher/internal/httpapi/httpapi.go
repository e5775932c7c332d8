// Package httpapi serves the HTTP routes for customers and operators. Before the gateway forwards a
// request, it checks the API key, the features and the access of the caller.
package httpapi

import (
	"errors"
	"net/netip"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/eventstream"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// API handles the HTTP requests. It is safe for concurrent use.
type API struct {
	store     *store.Store
	streams   *eventstream.Hub
	reachable func(netip.Addr) bool
	// wakeDispatcher and wakeRetention start a background job. They do not block.
	wakeDispatcher func()
	wakeRetention  func()
}

// New returns an API. The hub serves the event streams. isReachable reports whether deliveries may
// be sent to an IP address. wakeDispatcher is called when deliveries may have become due.
// wakeRetention is called when a subscription was deleted. Neither function may block.
func New(
	st *store.Store,
	hub *eventstream.Hub,
	isReachable func(netip.Addr) bool,
	wakeDispatcher, wakeRetention func(),
) *API {
	return &API{
		store:          st,
		streams:        hub,
		reachable:      isReachable,
		wakeDispatcher: wakeDispatcher,
		wakeRetention:  wakeRetention,
	}
}

const (
	subscriptionResource = "webhook subscription"
	deliveryResource     = "delivery"
)

// notFound converts pg.ErrNotFound into the 404 error that names the resource.
func notFound(err error, resource string) error {
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound(resource)
	}
	return err
}
