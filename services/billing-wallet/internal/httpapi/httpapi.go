// Package httpapi contains the HTTP handlers of billing-wallet: the wallet for customers, the
// transactions and rates for operators, ApplySetting for the gateway, and Hold for the service
// `calls`.
package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// API is the HTTP API of billing-wallet.
type API struct {
	store *store.Store
	holds *store.HoldBatcher
}

// New returns the API.
func New(st *store.Store, batcher *store.HoldBatcher) *API { return &API{store: st, holds: batcher} }

// pathWorkspaceID returns the workspace id in the path. The gateway has already checked that this
// workspace exists.
func pathWorkspaceID(r *http.Request) (uuid.UUID, error) {
	return httpserver.PathID(r, "id", "workspace")
}

// clientError returns 404 if the workspace has no wallet. Other errors are returned unchanged.
func clientError(err error) error {
	if errors.Is(err, store.ErrNoWallet) {
		return apierr.NotFound("wallet")
	}
	return err
}
