package httpapi

import (
	"net/http"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// changeStatus handles PATCH in the operator API. It pauses or resumes a subscription, with the
// same effects and limits as the customer's PATCH.
func (a *API) changeStatus(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.applyChange(r, readStatus)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewForOperator(sub))
}

func readStatus(f *bodyReader) (store.Change, error) {
	raw, given := f.members["status"]
	if !given {
		return store.Change{}, apierr.Validation("status", "is required: active or paused.")
	}
	status, err := subscriptions.ParseStatus(raw)
	if err != nil {
		return store.Change{}, err
	}
	return store.Change{Status: &status}, nil
}
