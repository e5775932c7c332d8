package httpapi

import (
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/contacts-compliance/internal/policy"
)

type policyView struct {
	CallingPolicy policy.Policy `json:"calling_policy"`
	Version       int           `json:"version"`
}

// setPolicy answers PUT /internal/v1/workspaces/{id}/policy, which the gateway asks before it answers a POST or PATCH of
// the workspace: when this has answered, the next question is judged by the new policy.
func (a *API) setPolicy(w http.ResponseWriter, r *http.Request) error {
	caller, err := operated(r)
	if err != nil {
		return err
	}
	body, err := decode(r)
	if err != nil {
		return err
	}
	p, err := policy.Parse(body["calling_policy"], a.gating.Packs())
	if err != nil {
		return err
	}
	p = p.By(caller.Operator)
	version, err := a.store.SetPolicy(r.Context(), caller.WorkspaceID, p, caller.Operator)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, policyView{CallingPolicy: p, Version: version})
}
