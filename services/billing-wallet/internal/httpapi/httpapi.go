// Package httpapi implements the routes about money: the customer's wallet, the operator's
// transactions and rates, the gateway's ApplySetting, and Hold for the calls service.
package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// API answers billing-wallet's routes.
type API struct {
	store *store.Store
	desk  *store.HoldBatcher
}

// New makes the API.
func New(st *store.Store, desk *store.HoldBatcher) *API { return &API{store: st, desk: desk} }

// workspace is the {id} of an operator's path; the gateway has checked that it exists.
func workspace(r *http.Request) (uuid.UUID, error) { return httpserver.PathID(r, "id", "workspace") }

// shown turns what the store says into what the client may see.
func shown(err error) error {
	if errors.Is(err, store.ErrNoWallet) {
		return apierr.NotFound("wallet")
	}
	return err
}
