package httpapi

import (
	"errors"
	"net/http"
	"regexp"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/billing-wallet/internal/store"
)

var currencyShape = regexp.MustCompile(`^[A-Z]{3}$`)

type currencyView struct {
	Currency string `json:"currency"`
}

// putCurrency answers PUT /internal/v1/workspaces/{id}/currency, with which the gateway opens a wallet. The same again
// changes nothing; another one is refused once there are transactions.
func (a *API) putCurrency(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := workspace(r)
	if err != nil {
		return err
	}
	var body struct {
		Currency *string `json:"currency"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if body.Currency == nil || !currencyShape.MatchString(*body.Currency) {
		return apierr.Validation("currency", "must be a three-letter ISO 4217 code such as USD.")
	}
	err = a.store.SetCurrency(r.Context(), workspaceID, *body.Currency)
	if errors.Is(err, store.ErrCurrencyFixed) {
		return apierr.Validation("currency", "can not change any more: the wallet has transactions. Make another workspace.")
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, currencyView{*body.Currency})
}
