package httpapi

import (
	"net/http"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// changeStatus handles PATCH of the operator's route. It pauses or resumes a subscription, with the
// same effects and limits as the customer's PATCH, and responds with the operator's view of it.
func (a *API) changeStatus(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionThing)
	if err != nil {
		return err
	}
	workspaceID := trust.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.Subscription(r.Context(), workspaceID, id); err != nil {
		return found(err, subscriptionThing) // 404 takes precedence over faults in the body
	}
	body, err := decodeFields(r)
	if err != nil {
		return err
	}
	raw, given := body.members["status"]
	if !given {
		return apierr.Validation("status", "is required: active or paused.")
	}
	status, err := subscription.ParseStatus(raw)
	if err != nil {
		return err
	}
	sub, err := a.store.Change(r.Context(), workspaceID, id, store.Change{Status: &status})
	if err != nil {
		return found(err, subscriptionThing)
	}
	a.queued()
	return httpserver.WriteJSON(w, http.StatusOK, viewFlagged(sub))
}
