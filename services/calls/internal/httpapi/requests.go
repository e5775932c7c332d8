package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

func requestView(r callstate.Request) openapi.CallRequest { return r.View() }

// createCall handles POST /v1/calls. It responds 202 with a new call request, or 200 with the
// original one and the header Idempotency-Replayed if the idempotency key was used before.
func (a *API) createCall(w http.ResponseWriter, r *http.Request) error {
	var body map[string]json.RawMessage
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	req, replayed, err := a.intake.Create(r.Context(), workspaceID, body, r.Header.Values("Idempotency-Key"))
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
		status = http.StatusOK
	}
	return httpserver.WriteJSON(w, status, requestView(req))
}

// listRequests handles GET /v1/call-requests.
func (a *API) listRequests(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	p, err := page.Parse(query)
	if err != nil {
		return err
	}
	var filter store.RequestFilter
	if filter.Status, err = httpserver.QueryEnum(query, "status", callstate.RequestStatuses()...); err != nil {
		return err
	}
	if filter.To, err = httpserver.QueryPhone(query, "to"); err != nil {
		return err
	}
	if filter.ExternalRef, err = httpserver.QueryText(query, "external_ref"); err != nil {
		return err
	}
	if filter.From, filter.Until, err = httpserver.QueryCreated(query); err != nil {
		return err
	}
	rows, err := a.store.Requests(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, p, filter)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(p, rows, requestView))
}

// readRequest handles GET /v1/call-requests/{id}.
func (a *API) readRequest(w http.ResponseWriter, r *http.Request) error {
	id, err := requestID(r)
	if err != nil {
		return err
	}
	req, err := a.store.Request(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "call request")
	}
	return httpserver.WriteJSON(w, http.StatusOK, requestView(req))
}

// cancelRequest handles POST /v1/call-requests/{id}/cancel.
func (a *API) cancelRequest(w http.ResponseWriter, r *http.Request) error {
	id, err := requestID(r)
	if err != nil {
		return err
	}
	req, err := a.canceler.Cancel(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, requestView(req))
}

func requestID(r *http.Request) (uuid.UUID, error) {
	id, err := httpserver.PathID(r, "id", "call request")
	if err == nil {
		telemetry.Annotate(r.Context(), "call_request_id", id.String())
	}
	return id, err
}

// convertNotFound converts pg.ErrNotFound to a 404 error. The response is the same if the row does
// not exist and if it belongs to another workspace.
func convertNotFound(err error, thing string) error {
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound(thing)
	}
	return err
}
