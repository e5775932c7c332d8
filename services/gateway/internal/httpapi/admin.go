package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// Admin is the handler of the operator API.
type Admin struct {
	auth   *auth.Authenticator
	store  *store.Store
	peers  *proxy.Upstreams
	pepper secrets.Pepper
	ready  *Readiness
	table  proxy.Table
	audits auditor
	people directory
}

// NewAdmin returns the handler of the operator API (docs/reference/api/operator-api.md). In this
// package, the owner of a route is the service to which the gateway forwards the requests of the
// route. consoleURL is the public address of the console, for the links of invitations. It is nil
// if the address is not configured.
func NewAdmin(
	authenticator *auth.Authenticator, st *store.Store, peers *proxy.Upstreams, pepper secrets.Pepper, ready *Readiness,
	consoleURL *url.URL, docs *Docs, tel *telemetry.Telemetry,
) http.Handler {
	a := newAdmin(authenticator, st, peers, pepper, ready, consoleURL)
	router := httpserver.NewEdgeRouter(tel)
	router.Use(serveOperatorDocs(docs))
	// requireOperator must run before the router, so that an unknown path without a token returns 401
	router.Use(a.requireOperator, withStrictCheck(docs.operatorAPI))
	a.addRoutes(router)
	return router
}

func newAdmin(
	authenticator *auth.Authenticator, st *store.Store, peers *proxy.Upstreams, pepper secrets.Pepper, ready *Readiness,
	consoleURL *url.URL,
) *Admin {
	return &Admin{
		auth: authenticator, store: st, peers: peers, pepper: pepper, ready: ready, table: proxy.Admin(),
		audits: auditor{store: st, peers: peers}, people: directory{store: st, url: consoleURL},
	}
}

// addRoutes adds the routes of the operator API. The context of each request must contain the
// actor.
func (a *Admin) addRoutes(router chi.Router) {
	router.Route("/admin/v1", func(admin chi.Router) {
		admin.Use(validQuery)
		admin.Get("/workspaces", httpserver.Handle(a.listWorkspaces))
		admin.Post("/workspaces", httpserver.Handle(a.createWorkspace))
		admin.Get("/workspaces/{id}", httpserver.Handle(a.readWorkspace))
		admin.Patch("/workspaces/{id}", httpserver.Handle(a.changeWorkspace))
		admin.Get("/workspaces/{id}/api-keys", httpserver.Handle(a.listKeys))
		admin.Post("/workspaces/{id}/api-keys", httpserver.Handle(a.createKey))
		admin.Get("/workspaces/{id}/api-keys/{key_id}", httpserver.Handle(a.readKey))
		admin.Delete("/workspaces/{id}/api-keys/{key_id}", httpserver.Handle(a.revokeKey))
		admin.Get("/workspaces/{id}/call-requests/{request_id}/timeline", httpserver.Handle(a.readTimeline))
		admin.Get("/workspaces/{id}/audit", httpserver.Handle(a.listWorkspaceAudit))
		a.addPeopleRoutes(admin)
		admin.Get("/parked-records", httpserver.Handle(a.listParked))
		admin.Post("/parked-records/{event_id}/replay", httpserver.Handle(a.replayParked))
		admin.Get("/services", httpserver.Handle(a.ready.listServices))
		admin.Get("/audit", httpserver.Handle(a.listAudit))
		admin.Get("/audit/{entry_id}", httpserver.Handle(a.readAudit))
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			admin.Method(method, "/workspaces/{id}/{collection}", httpserver.Handle(a.proxied))
			admin.Method(method, "/workspaces/{id}/{collection}/*", httpserver.Handle(a.proxied))
			admin.Method(method, "/dialer", httpserver.Handle(a.proxiedForAll))
			admin.Method(method, "/dialing", httpserver.Handle(a.proxiedForAll))
			admin.Method(method, "/trunks", httpserver.Handle(a.proxiedForAll))
			admin.Method(method, "/trunks/*", httpserver.Handle(a.proxiedForAll))
		}
	})
}

// serveOperatorDocs serves the description of the operator API and the documentation, which need no
// token. It passes other requests to next.
func serveOperatorDocs(docs *Docs) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
			if redirectBrowser(w, r, "/docs") {
				return nil
			}
			_, found := docs.FindOperator(r.URL.Path)
			if found || strings.TrimSuffix(r.URL.Path, "/") == "/docs/guides" {
				return serveDocument(w, r, docs.FindOperator)
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

// actor is the API key, the operator or the person that sends a request.
type actor struct {
	audit.Actor
	// operator is the name that other services receive: the name of an operator, or "person:" with
	// the id of a person. It is empty for an API key.
	operator  string
	requestID uuid.UUID
	// reason is the reason that an operator gives for a change, or for reading a transcript or a
	// recording. It is empty for other actors.
	reason string
	// hidden is true if transcripts are removed from the stream that the person reads.
	hidden bool
}

// personName returns the name of a person. It is empty for other actors.
func (act actor) personName() string {
	if act.Type != audit.User {
		return ""
	}
	return act.Name
}

type actorKey struct{}

// requireOperator refuses requests without an operator token, on every path.
func (a *Admin) requireOperator(next http.Handler) http.Handler {
	return httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
		name, err := a.auth.Operator(r)
		if err != nil {
			return err
		}
		requestID, err := uuid.NewV7()
		if err != nil {
			return err
		}
		ctx := context.WithValue(r.Context(), actorKey{}, actor{
			Actor:    audit.Actor{Type: audit.Operator, ID: name, Name: name},
			operator: name, requestID: requestID,
		})
		telemetry.Annotate(ctx, "operator", name)
		telemetry.Annotate(ctx, "request_id", requestID.String())
		w.Header().Set("X-Request-Id", requestID.String())
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
}

// validQuery refuses a query that cannot be parsed. Otherwise a malformed filter would be ignored
// silently.
func validQuery(next http.Handler) http.Handler {
	return httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if err := checkQuery(r.URL); err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func actorOf(r *http.Request) actor {
	act, _ := r.Context().Value(actorKey{}).(actor)
	return act
}

// ownerCaller returns the identity that the gateway signs for the service that owns the route. It
// contains the operator and the workspace that the request is about.
func (act actor) ownerCaller(w workspaces.Workspace) serviceauth.Caller {
	return serviceauth.Caller{WorkspaceID: w.ID, RequestID: act.requestID, Access: serviceauth.Write,
		Webhooks: w.Webhooks(), Operator: act.operator, PersonName: act.personName()}
}

// pendingEntry returns the audit entry of a request without its outcome. workspaceID is nil if the
// request belongs to no workspace.
func (act actor) pendingEntry(r *http.Request, template string, workspaceID *uuid.UUID) (audit.PendingEntry, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return audit.PendingEntry{}, err
	}
	object, _ := audit.ObjectOf(r.Method, template, r.URL)
	reason := act.reason
	// other clients can give a reason only for certain actions
	reasonAllowed := audit.TakesReason(object.Action) || act.Type == audit.User && r.Method != http.MethodGet
	if reason == "" && r.Header.Get(reasonHeader) != "" && reasonAllowed {
		if err := checkReason(r); err != nil {
			return audit.PendingEntry{}, err
		}
		reason = strings.TrimSpace(r.Header.Get(reasonHeader))
	}
	return audit.PendingEntry{
		ID: id, Operator: act.operator, Actor: act.Actor, Object: object, WorkspaceID: workspaceID,
		RequestID: act.requestID, Method: r.Method, Route: template, Path: storablePath(r.URL), Reason: reason,
	}, nil
}

// storablePath returns the path in a form that Postgres can store. If the path is not valid UTF-8
// or contains a zero byte, storablePath returns the escaped path.
func storablePath(address *url.URL) string {
	if !utf8.ValidString(address.Path) || strings.ContainsRune(address.Path, 0) {
		return address.EscapedPath()
	}
	return address.Path
}

func doneEntry(pending audit.PendingEntry, status int) audit.Entry {
	code := int32(status)
	return audit.Entry{PendingEntry: pending, Status: &code, Outcome: audit.Done}
}

// workspaceOf returns the workspace in the path. The error is 404 if the workspace does not exist.
func (a *Admin) workspaceOf(r *http.Request) (workspaces.Workspace, error) {
	id, err := httpserver.PathID(r, "id", "workspace")
	if err != nil {
		return workspaces.Workspace{}, noWorkspace()
	}
	found, err := a.store.Workspace(r.Context(), id)
	if errors.Is(err, pg.ErrNotFound) {
		return found, noWorkspace()
	}
	telemetry.Annotate(r.Context(), "workspace_id", id.String())
	return found, err
}

func noWorkspace() error { return missing("workspace") }

func missing(thing string) error {
	return apierr.New(http.StatusNotFound, "not_found", "There is no such %s.", thing)
}

func template(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }
