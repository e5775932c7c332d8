package httpapi

import (
	"net/http"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

type rateBody struct {
	Prefix           *string `json:"prefix"`
	PerMinute        *string `json:"per_minute"`
	IncrementSeconds *int32  `json:"increment_seconds"`
}

// rateView has the same members as the request body, so that a client can send a response back as a
// request.
type rateView struct {
	Prefix           string `json:"prefix"`
	PerMinute        string `json:"per_minute"`
	IncrementSeconds int32  `json:"increment_seconds"`
}

func viewRate(r holds.Rate) rateView {
	return rateView{r.Prefix, r.PerMinute.String(), r.IncrementSeconds}
}

// rate returns the rate of the body. If the body has no increment, the default increment is used.
func (b rateBody) rate() (holds.Rate, error) {
	read := holds.Default()
	if b.Prefix == nil {
		return read, apierr.Validation("prefix", "is missing. Send the beginning of the numbers, such as +4420.")
	}
	if b.PerMinute == nil {
		return read, apierr.Validation("per_minute", `is missing. Send a decimal string such as "0.05".`)
	}
	perMinute, err := money.Parse(*b.PerMinute)
	if err != nil {
		return read, apierr.Validation("per_minute", `must be a decimal string with at most six places, such as "0.05".`)
	}
	read.Prefix, read.PerMinute = *b.Prefix, perMinute
	if b.IncrementSeconds != nil {
		read.IncrementSeconds = *b.IncrementSeconds
	}
	return read, nil
}

// putRates handles PUT /admin/v1/workspaces/{id}/rates. The list replaces all rates of the
// workspace. Existing holds keep their rates.
func (a *API) putRates(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	var body []rateBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if body == nil {
		return apierr.Validation("body", "must be a list of rates; an empty one removes them all.")
	}
	list := make([]holds.Rate, 0, len(body))
	for _, b := range body {
		read, err := b.rate()
		if err != nil {
			return err
		}
		list = append(list, read)
	}
	if err := holds.Check(list); err != nil {
		return err
	}
	if err := a.store.ReplaceRates(r.Context(), workspaceID, list); err != nil {
		return clientError(err)
	}
	return a.getRates(w, r)
}

// getRates handles GET /admin/v1/workspaces/{id}/rates. It returns all rates on one page, sorted by
// prefix.
func (a *API) getRates(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	list, err := a.store.Rates(r.Context(), workspaceID)
	if err != nil {
		return err
	}
	whole := page.Request{Limit: len(list)}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(whole, list, viewRate))
}
