package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/store"
)

// directory serves people, members, invitations and sessions. The console and the operator API use
// the same handlers below different paths.
type directory struct {
	store *store.Store
	// url is the public address of the console. It is nil if the address is not configured.
	url *url.URL
}

// addPeopleRoutes adds the routes of the operator API for people.
func (a *Admin) addPeopleRoutes(admin chi.Router) {
	d := a.people
	read := func(path string, serve httpserver.Handler) { admin.Get(path, httpserver.Handle(a.inWorkspace(serve))) }
	// before is the handler that returns the state before the change, or nil if there is none
	change := func(method, path string, serve, before httpserver.Handler) {
		admin.Method(method, path, httpserver.Handle(a.inWorkspace(a.changePeople(serve, before))))
	}
	read("/workspaces/{id}/members", d.listMembers)
	read("/workspaces/{id}/members/{person_id}", d.readMember)
	change(http.MethodPatch, "/workspaces/{id}/members/{person_id}", d.changeMember, d.readMember)
	change(http.MethodDelete, "/workspaces/{id}/members/{person_id}", d.removeMember, d.readMember)
	read("/workspaces/{id}/invitations", d.listInvitations)
	change(http.MethodPost, "/workspaces/{id}/invitations", d.createInvitation, nil)
	read("/workspaces/{id}/invitations/{invitation_id}", d.readInvitationOf)
	change(http.MethodDelete, "/workspaces/{id}/invitations/{invitation_id}", d.deleteInvitation, d.readInvitationOf)
	read("/operator-invitations", d.listInvitations)
	change(http.MethodPost, "/operator-invitations", d.inviteOperator, nil)
	read("/operator-invitations/{invitation_id}", d.readInvitationOf)
	change(http.MethodDelete, "/operator-invitations/{invitation_id}", d.deleteInvitation, d.readInvitationOf)
	read("/people", d.listPeople)
	read("/people/{person_id}", d.readPerson)
	read("/people/{person_id}/sessions", d.listPersonSessions)
	change(http.MethodDelete, "/people/{person_id}/sessions", d.revokePersonSessions, d.listPersonSessions)
	change(http.MethodDelete, "/people/{person_id}/operator", d.removeOperator, d.readPerson)
	change(http.MethodPost, "/people/{person_id}/recovery", d.createRecovery, nil)
}

// inWorkspace serves a request about the workspace in its path. If the path names no workspace, the
// request is about people of all workspaces.
func (a *Admin) inWorkspace(serve httpserver.Handler) httpserver.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		person := visitorOf(r)
		person.workspaceID = uuid.Nil
		if chi.URLParam(r, "id") != "" {
			workspace, err := a.workspaceOf(r)
			if err != nil {
				return err
			}
			person.workspaceID = workspace.ID
		}
		return serve(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, person)))
	}
}

// changePeople serves a change and writes its audit entry.
func (a *Admin) changePeople(serve, before httpserver.Handler) httpserver.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := proxy.BufferBody(w, r); err != nil {
			return err
		}
		pending, err := actorOf(r).pendingEntry(r, template(r), scopeOfVisitor(r))
		if err != nil {
			return err
		}
		if before != nil {
			response := capture(before, r) //nolint:bodyclose // the body is in memory
			if response.StatusCode == http.StatusOK {
				pending.Before = audit.State(pending.Object.Type, peekBody(response, audit.MaxState))
			}
		}
		ctx := context.WithoutCancel(r.Context()) // a disconnect of the client must not interrupt a change
		if err := a.store.AddPending(ctx, pending); err != nil {
			return err
		}
		response := capture(serve, r.WithContext(ctx)) //nolint:bodyclose // the body is in memory
		a.audits.conclude(ctx, pending, response, nil)
		if response.StatusCode == http.StatusNoContent {
			return writeDeleted(w, pending.Object.ID)
		}
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body) // an error means that the client disconnected
		return nil
	}
}

// capture calls the handler and returns its response.
func capture(serve httpserver.Handler, r *http.Request) *http.Response {
	captured := &capturedResponse{header: http.Header{}, status: http.StatusOK}
	ctx, cancel := context.WithTimeout(r.Context(), consoleTimeout)
	defer cancel()
	httpserver.Handle(serve)(captured, r.WithContext(ctx))
	return &http.Response{StatusCode: captured.status, Header: captured.header, Body: io.NopCloser(&captured.body)}
}

// writeDeleted writes the response of the operator API to a deletion. The console responds with
// 204 to the same request.
func writeDeleted(w http.ResponseWriter, id string) error {
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Deleted bool   `json:"deleted"`
		ID      string `json:"id"`
	}{true, strings.ToLower(id)})
}

// listPersonSessions handles GET /admin/v1/people/{person_id}/sessions.
func (d directory) listPersonSessions(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	if _, err := d.store.Person(r.Context(), id); err != nil {
		return memberError(err)
	}
	found, err := d.store.Sessions(r.Context(), id)
	if err != nil {
		return err
	}
	views := []sessionView{}
	for _, s := range found {
		views = append(views, viewSession(s, visitorOf(r).session.ID))
	}
	return httpserver.WriteJSON(w, http.StatusOK, sessionList{Data: views})
}
