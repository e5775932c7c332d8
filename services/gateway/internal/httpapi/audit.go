package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/audit"
)

type entryView struct {
	ID          uuid.UUID         `json:"id"`
	Operator    string            `json:"operator"`
	WorkspaceID *uuid.UUID        `json:"workspace_id"`
	RequestID   uuid.UUID         `json:"request_id"`
	Method      string            `json:"method"`
	Route       string            `json:"route"`
	Path        string            `json:"path"`
	Status      *int32            `json:"status"`
	Outcome     audit.Outcome     `json:"outcome"`
	Before      json.RawMessage   `json:"before"`
	After       json.RawMessage   `json:"after"`
	OccurredAt  openapi.Timestamp `json:"occurred_at"`
}

func viewEntry(e audit.Entry) entryView {
	return entryView{ID: e.ID, Operator: e.Operator, WorkspaceID: e.WorkspaceID, RequestID: e.RequestID, Method: e.Method, Route: e.Route,
		Path: e.Path, Status: e.Status, Outcome: e.Outcome, Before: e.Before, After: e.After,
		OccurredAt: openapi.TimestampOf(e.OccurredAt)}
}

// listAudit handles GET /admin/v1/audit. The query parameter workspace_id restricts the list to one
// workspace.
func (a *Admin) listAudit(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	request, err := page.Parse(query)
	if err != nil {
		return err
	}
	workspaceID, err := httpserver.QueryUUID(query, "workspace_id")
	if err != nil {
		return err
	}
	found, err := a.store.Entries(r.Context(), workspaceID, request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewEntry))
}

func (a *Admin) readAudit(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "entry_id", "audit entry")
	// The error of PathID would name a workspace, but an audit entry can belong to no workspace.
	if err != nil {
		return missing("audit entry")
	}
	found, err := a.store.Entry(r.Context(), id)
	if errors.Is(err, pg.ErrNotFound) {
		return missing("audit entry")
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewEntry(found))
}
