package httpapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/proxy"
)

// erasureRoute is the route that erases a person. The audit entry of an erasure must not contain
// the erased data.
const erasureRoute = "/admin/v1/workspaces/{id}/contacts/{phone_e164}"

func (a *Admin) proxied(w http.ResponseWriter, r *http.Request) error {
	if _, ok := a.table.Find(r.URL); !ok {
		return httpserver.NoRoute()
	}
	workspace, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	return a.forwardRequest(w, r, actorOf(r).ownerCaller(workspace))
}

// proxiedForAll forwards requests that belong to no workspace. These are the requests about trunks
// and about the dialer.
func (a *Admin) proxiedForAll(w http.ResponseWriter, r *http.Request) error {
	return a.forwardRequest(w, r, actorOf(r).systemCaller())
}

// forwardRequest sends the request to the service that owns the route. For a change, it stores a
// pending audit entry before it sends the request, and the audit entry after the response.
func (a *Admin) forwardRequest(w http.ResponseWriter, r *http.Request, caller serviceauth.Caller) error {
	match, ok := a.table.Find(r.URL)
	if !ok {
		return httpserver.NoRoute()
	}
	telemetry.Route(r.Context(), match.Template)
	body, err := httpserver.ReadBody(r)
	if err != nil {
		return err
	}
	request := proxy.OwnerRequest{Owner: match.Owner, Method: r.Method, Path: match.Path, Query: r.URL.RawQuery,
		Header: r.Header, Body: body, Caller: caller}
	var response proxy.OwnerResponse
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		response, err = a.peers.Do(r.Context(), request)
	} else {
		response, err = a.tryChange(r, match, request)
	}
	if err != nil {
		return err
	}
	response.LogCode(r.Context())
	writeResponse(w, response)
	return nil
}

// tryChange sends one change to the service that owns the route, and writes the audit entry.
func (a *Admin) tryChange(r *http.Request, match proxy.Match, request proxy.OwnerRequest) (proxy.OwnerResponse, error) {
	ctx := context.WithoutCancel(r.Context()) // a disconnect of the client must not interrupt a change
	return a.auditChange(r, match, request, func() (proxy.OwnerResponse, error) { return a.peers.Do(ctx, request) })
}

// auditChange calls send, which sends the change, and writes the audit entry. If the response has
// the header Idempotency-Replayed, the entry records that nothing was changed.
func (a *Admin) auditChange(
	r *http.Request, match proxy.Match, request proxy.OwnerRequest, send func() (proxy.OwnerResponse, error),
) (proxy.OwnerResponse, error) {
	ctx := context.WithoutCancel(r.Context())
	var workspaceID *uuid.UUID
	if request.Caller.WorkspaceID != uuid.Nil {
		workspaceID = &request.Caller.WorkspaceID
	}
	pending, err := actorOf(r).pendingEntry(r, match.Template, workspaceID)
	if err != nil {
		return proxy.OwnerResponse{}, err
	}
	if pending.Before, err = a.audits.previousState(ctx, match, request); err != nil {
		return proxy.OwnerResponse{}, err
	}
	if err := a.store.AddPending(ctx, pending); err != nil {
		return proxy.OwnerResponse{}, err
	}
	response, err := send()
	if err != nil {
		a.audits.closePending(ctx, pending, err)
		return response, err
	}
	if !response.OK() {
		a.audits.closePending(ctx, pending, response.Refusal(request.Owner))
		return response, nil
	}
	entry := doneEntry(pending, response.Status)
	if response.Header.Get(replayedHeader) != "" {
		entry.Outcome = audit.Unchanged
	}
	entry.After = audit.State(pending.Object.Type, response.Body)
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	if err := a.store.Conclude(ctx, entry); err != nil {
		// The change was made, so the client gets the success response. The auth.ExpiryJob later
		// writes the audit entry with the outcome unknown.
		slog.ErrorContext(ctx, "audit entry of a completed change not written", "entry_id", pending.ID, "error", err)
	}
	return response, nil
}

const replayedHeader = "Idempotency-Replayed"

func writeResponse(w http.ResponseWriter, response proxy.OwnerResponse) {
	for _, name := range []string{"Content-Type", "Cache-Control", "Retry-After", "Allow", "ETag", replayedHeader} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.Status)
	_, _ = w.Write(response.Body) // an error means that the client disconnected
}
