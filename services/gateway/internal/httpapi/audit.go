package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/store"
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

// auditEntry is an entry in the response of GET /v1/audit.
type auditEntry struct {
	ID         uuid.UUID         `json:"id"`
	At         openapi.Timestamp `json:"at"`
	ActorType  audit.ActorType   `json:"actor_type"`
	ActorID    string            `json:"actor_id"`
	ActorName  string            `json:"actor_name"`
	Action     string            `json:"action"`
	ObjectType string            `json:"object_type"`
	ObjectID   string            `json:"object_id"`
	Before     json.RawMessage   `json:"before"`
	After      json.RawMessage   `json:"after"`
	RequestID  uuid.UUID         `json:"request_id"`
}

func viewAuditEntry(e audit.Entry) auditEntry {
	if e.Action == "" { // an earlier version of the gateway wrote this entry
		e.Object, _ = audit.ObjectOf(e.Method, e.Route, &url.URL{Path: e.Path})
		e = e.Complete()
	}
	return auditEntry{
		ID: e.ID, At: openapi.TimestampOf(page.TimeOf(e.ID)), ActorType: e.Actor.Type, ActorID: e.Actor.ID,
		ActorName: e.Actor.Name, Action: e.Action, ObjectType: e.Object.Type, ObjectID: e.Object.ID,
		Before: e.Before, After: e.After, RequestID: e.RequestID,
	}
}

// listWorkspaceAudit handles GET /admin/v1/workspaces/{id}/audit.
func (a *Admin) listWorkspaceAudit(w http.ResponseWriter, r *http.Request) error {
	workspace, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	return writeAudit(w, r, a.store, workspace.ID)
}

// writeAudit handles GET /v1/audit. It responds with a page of the audit log of a workspace.
func writeAudit(w http.ResponseWriter, r *http.Request, st *store.Store, workspaceID uuid.UUID) error {
	query := r.URL.Query()
	request, err := page.Parse(query)
	if err != nil {
		return err
	}
	var filter audit.Filter
	if filter.From, filter.Until, err = httpserver.QueryCreated(query); err != nil {
		return err
	}
	for _, parameter := range []struct {
		name  string
		value **string
	}{{"actor_id", &filter.ActorID}, {"object_type", &filter.ObjectType}, {"object_id", &filter.ObjectID}} {
		if *parameter.value, err = httpserver.QueryText(query, parameter.name); err != nil {
			return err
		}
	}
	if id := filter.ObjectID; id != nil && strings.HasPrefix(*id, " ") {
		// a plus sign that is not percent-encoded is decoded as a space
		*id = "+" + strings.TrimPrefix(*id, " ")
	}
	found, err := st.WorkspaceEntries(r.Context(), workspaceID, filter, request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewAuditEntry))
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
	// The error of PathID mentions a workspace. But an audit entry can belong to no workspace.
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
