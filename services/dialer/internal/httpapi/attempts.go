package httpapi

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/store"
)

type attemptView struct {
	ID            uuid.UUID          `json:"id"`
	CallID        uuid.UUID          `json:"call_id"`
	CallRequestID *uuid.UUID         `json:"call_request_id"`
	Direction     string             `json:"direction"`
	Attempt       *int32             `json:"attempt"`
	TrunkID       uuid.UUID          `json:"trunk_id"`
	Trunk         string             `json:"trunk"`
	SIPCallID     string             `json:"sip_call_id"`
	SIPStatus     *int32             `json:"sip_status"`
	SIPReason     *string            `json:"sip_reason"`
	HangupCause   *string            `json:"hangup_cause"`
	HungUpByUs    *bool              `json:"hung_up_by_us"`
	Error         *string            `json:"error"`
	StartedAt     openapi.Timestamp  `json:"started_at"`
	EndedAt       *openapi.Timestamp `json:"ended_at"`
}

func viewAttempt(a store.Attempt) attemptView {
	view := attemptView{
		ID: a.AttemptID, CallID: a.CallID, CallRequestID: a.CallRequestID, Direction: a.Direction, Attempt: a.Fence,
		TrunkID: a.TrunkID, Trunk: a.Trunk, SIPCallID: a.SIPCallID, SIPStatus: a.SIPStatus,
		SIPReason: nilIfEmpty(a.SIPReason), HangupCause: nilIfEmpty(a.Cause), Error: nilIfEmpty(a.Error),
		StartedAt: openapi.TimestampOf(a.StartedAt), EndedAt: openapi.TimestampOrNull(a.EndedAt),
	}
	if a.EndedAt != nil {
		view.HungUpByUs = &a.ByUs
	}
	return view
}

// listAttempts handles GET /admin/v1/workspaces/{id}/attempts?of=. It returns the attempts of a
// call or a call request, newest first. The parameter `of` is the id of the call or the request.
func (a *API) listAttempts(w http.ResponseWriter, r *http.Request) error {
	query, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	of, err := httpserver.QueryUUID(r.URL.Query(), "of")
	if err != nil {
		return err
	}
	if of == nil {
		return apierr.Validation("of", "must be the id of a call or of a call request.")
	}
	found, err := a.store.Attempts(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, *of, query)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(query, found, viewAttempt))
}
