package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

func lightView(c callstate.Call) openapi.CallListItem {
	return openapi.CallListItem{
		ID: c.ID, Direction: openapi.Direction(c.Direction), From: c.From, To: c.To, Status: openapi.CallStatus(c.Status), AgentID: c.AgentID,
		ContactID: c.ContactID, Outcome: c.Outcome, TalkSeconds: c.TalkSeconds,
		CreatedAt: openapi.TimestampOf(page.TimeOf(c.ID)), ExternalRef: c.ExternalRef,
	}
}

// listCalls handles GET /v1/calls.
func (a *API) listCalls(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	p, err := page.Parse(query)
	if err != nil {
		return err
	}
	filter, err := callFilter(query)
	if err != nil {
		return err
	}
	rows, err := a.store.Calls(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, p, filter)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(p, rows, lightView))
}

func callFilter(query url.Values) (f store.CallFilter, err error) {
	if f.Status, err = httpserver.QueryEnum(query, "status", callstate.Statuses()...); err != nil {
		return f, err
	}
	if f.Direction, err = httpserver.QueryEnum(query, "direction", callstate.Inbound, callstate.Outbound); err != nil {
		return f, err
	}
	if f.AgentID, err = httpserver.QueryUUID(query, "agent_id"); err != nil {
		return f, err
	}
	if f.ContactID, err = httpserver.QueryUUID(query, "contact_id"); err != nil {
		return f, err
	}
	if f.CallRequestID, err = httpserver.QueryUUID(query, "call_request_id"); err != nil {
		return f, err
	}
	if f.To, err = httpserver.QueryPhone(query, "to"); err != nil {
		return f, err
	}
	if f.Outcome, err = httpserver.QueryText(query, "outcome"); err != nil {
		return f, err
	}
	if f.ExternalRef, err = httpserver.QueryText(query, "external_ref"); err != nil {
		return f, err
	}
	f.From, f.Until, err = httpserver.QueryCreated(query)
	return f, err
}

func nextMillisecond(t time.Time) time.Time {
	return t.Truncate(time.Millisecond).Add(time.Millisecond)
}

func ceilMillisecond(t time.Time) time.Time {
	return t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
}

// readCall handles GET /v1/calls/{id}.
func (a *API) readCall(w http.ResponseWriter, r *http.Request) error {
	c, err := a.call(r)
	if err != nil {
		return err
	}
	if c.RecordingURL, err = a.recordingURL(r.Context(), c); err != nil {
		return err
	}
	if c.RecordingURL != "" {
		// the response contains a link that gives access to the recording
		w.Header().Set("Cache-Control", "no-store")
	}
	return httpserver.WriteJSON(w, http.StatusOK, c.Full())
}

// adminCall handles GET /admin/v1/workspaces/{workspace}/calls/{id}. The response contains the call
// without its transcript and its summary.
func (a *API) adminCall(w http.ResponseWriter, r *http.Request) error {
	c, err := a.call(r)
	if err != nil {
		return err
	}
	full := c.Full()
	full.Transcript, full.Summary = nil, nil
	return httpserver.WriteJSON(w, http.StatusOK, full)
}

// readTranscript handles GET /v1/calls/{id}/transcript.
func (a *API) readTranscript(w http.ResponseWriter, r *http.Request) error {
	c, err := a.call(r)
	if err != nil {
		return err
	}
	transcript := c.PublicTranscript()
	if transcript == nil {
		return apierr.New(http.StatusNotFound, "transcript_not_available", "No transcript is available for this call.")
	}
	return httpserver.WriteJSON(w, http.StatusOK, transcript)
}

// readRecording handles GET /v1/calls/{id}/recording.
func (a *API) readRecording(w http.ResponseWriter, r *http.Request) error {
	c, err := a.call(r)
	if err != nil {
		return err
	}
	link, err := a.recordingURL(r.Context(), c)
	if err != nil {
		return err
	}
	if link == "" {
		return apierr.New(http.StatusNotFound, "recording_not_available", "No recording is available for this call.")
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpserver.WriteJSON(w, http.StatusOK, openapi.Recording{URL: link, ExpiresIn: int32(recordingstore.LinkLife / time.Second)})
}

// recordingURL returns the URL of the call's recording. It returns "" if there is no recording.
func (a *API) recordingURL(ctx context.Context, c callstate.Call) (string, error) {
	if c.RecordingKey == nil || a.links == nil {
		return "", nil
	}
	key, err := a.store.Recording(ctx, c.WorkspaceID, c.ID)
	if errors.Is(err, pg.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return a.links.Link(ctx, key)
}

func (a *API) call(r *http.Request) (callstate.Call, error) {
	id, err := httpserver.PathID(r, "id", "call")
	if err != nil {
		return callstate.Call{}, err
	}
	telemetry.Annotate(r.Context(), "call_id", id.String())
	c, err := a.store.Call(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	return c, convertNotFound(err, "call")
}
