package httpapi

import (
	"net/http"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/dialerv1"
)

// hangUpCall handles POST /v1/calls/{id}/hangup and POST
// /admin/v1/workspaces/{workspace}/calls/{id}/hangup. It responds 202 after the dialer has stored
// the request to hang up. The dialer then hangs up, and the call ends with its usual event. The
// response shows the call before the hang-up.
func (a *API) hangUpCall(w http.ResponseWriter, r *http.Request) error {
	c, err := a.call(r)
	if err != nil {
		return err
	}
	if c.Status.Terminal() {
		return hasEnded()
	}
	caller := serviceauth.CallerFrom(r.Context())
	response, err := a.peers.RequestHangup(r.Context(), &dialerv1.RequestHangupRequest{
		CallId: c.ID.String(), WorkspaceId: caller.WorkspaceID.String(), Operator: caller.Operator,
	})
	if err != nil {
		return err
	}
	if !response.GetLive() {
		return hasEnded()
	}
	full := c.Full()
	full.Transcript, full.Summary = nil, nil
	return httpserver.WriteJSON(w, http.StatusAccepted, full)
}

func hasEnded() error {
	return apierr.Conflict("invalid_state", "The call has ended. Only a call that has not ended can be hung up.")
}
