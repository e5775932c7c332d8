package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// consolePath is the prefix of the routes that only the console listener serves.
const consolePath = "/console/v1"

// These are the headers of requests and responses of the console listener.
const (
	workspaceHeader = "Ringfence-Workspace"
	reasonHeader    = "Ringfence-Reason"
	// redactedHeader requests that the gateway removes transcripts from the response. A request
	// with this header is not recorded as a read.
	redactedHeader = "Ringfence-Redacted"
	// sessionHeader contains the new token in the response that replaces the token of a session.
	sessionHeader = "Ringfence-Session"
)

const (
	// consoleTimeout limits the duration of a request that the gateway itself handles.
	consoleTimeout = 30 * time.Second
	// recheckInterval is the time between two checks of the session while a request is running.
	// After a revocation, an open stream must be closed within 5 s.
	recheckInterval = 2 * time.Second
	maxReason       = 500
)

// ConsoleConfig contains the dependencies and the settings of the console listener.
type ConsoleConfig struct {
	Auth   *auth.Authenticator
	Store  *store.Store
	Peers  *proxy.Upstreams
	Pepper secrets.Pepper
	Ready  *Readiness
	Docs   *Docs
	// Codes is true if the one-time codes of the local stack are accepted.
	Codes bool
	// OIDC is nil if no OpenID provider is configured.
	OIDC *people.OIDC
	// URL is the public address of the console, and Passkeys are the passkeys for this address. Both
	// are nil if the address is not configured.
	URL      *url.URL
	Passkeys *people.Passkeys
}

// Console is the handler of the console listener. It serves the routes of the public API, of the
// operator API and of the console, for people with a session.
type Console struct {
	directory
	auth   *auth.Authenticator
	public *Public
	roles  roleTable
	// router has the routes that the gateway handles, and the routes of the operator API.
	router *chi.Mux
	// open has the routes that need no session.
	open     *chi.Mux
	codes    bool
	oidc     *people.OIDC
	passkeys *people.Passkeys
}

// NewConsole returns the handler of the console listener.
func NewConsole(config ConsoleConfig, tel *telemetry.Telemetry) http.Handler {
	c := newConsole(config)
	return tel.Edge(httpserver.Recover(httpserver.Handle(c.answer)))
}

func newConsole(config ConsoleConfig) *Console {
	c := &Console{
		directory: directory{store: config.Store, url: config.URL},
		auth:      config.Auth, codes: config.Codes, roles: newRoleTable(),
		public: newPublic(config.Auth, config.Store, config.Peers, config.Ready, config.Docs),
		router: newConsoleRouter(), open: newConsoleRouter(), oidc: config.OIDC, passkeys: config.Passkeys,
	}
	newAdmin(config.Auth, config.Store, config.Peers, config.Pepper, config.Ready, config.URL).addRoutes(c.router)
	c.router.Route(consolePath, c.addRoutes)
	c.open.Use(withStrictCheck(config.Docs.consoleAPI))
	c.open.Get("/readyz", httpserver.Handle(config.Ready.answer))
	c.open.Route(consolePath+"/sign-in", c.addSignInRoutes)
	return c
}

func newConsoleRouter() *chi.Mux {
	router := chi.NewRouter()
	router.Use(httpserver.LimitBody, middleware.GetHead)
	router.NotFound(httpserver.Handle(func(http.ResponseWriter, *http.Request) error { return httpserver.NoRoute() }))
	router.MethodNotAllowed(httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return httpserver.WrongMethod(w, r.Method, allowedMethods(router, r.URL.Path)...)
	}))
	return router
}

func allowedMethods(router *chi.Mux, path string) (methods []string) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if router.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
		}
	}
	return methods
}

func (c *Console) addRoutes(router chi.Router) {
	router.Use(validQuery)
	router.Get("/openapi.json", httpserver.Handle(c.readDescription))
	router.Get("/me", httpserver.Handle(c.readMe))
	router.Get("/sessions", httpserver.Handle(c.listSessions))
	router.Delete("/sessions", httpserver.Handle(c.revokeSessions))
	router.Delete("/sessions/{session_id}", httpserver.Handle(c.revokeSession))
	router.Get("/passkeys", httpserver.Handle(c.listPasskeys))
	router.Post("/passkeys/start", httpserver.Handle(c.startNewPasskey))
	router.Post("/passkeys/finish", httpserver.Handle(c.finishNewPasskey))
	router.Delete("/passkeys/{passkey_id}", httpserver.Handle(c.deletePasskey))
	router.Get("/invitations", httpserver.Handle(c.listInvitations))
	router.Post("/invitations", httpserver.Handle(c.createInvitation))
	router.Post("/invitations/accept", httpserver.Handle(c.acceptInvitation))
	router.Get("/invitations/{invitation_id}", httpserver.Handle(c.readInvitationOf))
	router.Delete("/invitations/{invitation_id}", httpserver.Handle(c.deleteInvitation))
	router.Get("/operator-invitations", httpserver.Handle(c.listInvitations))
	router.Post("/operator-invitations", httpserver.Handle(c.inviteOperator))
	router.Get("/operator-invitations/{invitation_id}", httpserver.Handle(c.readInvitationOf))
	router.Delete("/operator-invitations/{invitation_id}", httpserver.Handle(c.deleteInvitation))
	router.Post("/people/{person_id}/recovery", httpserver.Handle(c.createRecovery))
	router.Get("/members", httpserver.Handle(c.listMembers))
	router.Get("/members/{person_id}", httpserver.Handle(c.readMember))
	router.Patch("/members/{person_id}", httpserver.Handle(c.changeMember))
	router.Delete("/members/{person_id}", httpserver.Handle(c.removeMember))
	router.Get("/people", httpserver.Handle(c.listPeople))
	router.Get("/people/{person_id}", httpserver.Handle(c.readPerson))
	router.Delete("/people/{person_id}/sessions", httpserver.Handle(c.revokePersonSessions))
	router.Delete("/people/{person_id}/operator", httpserver.Handle(c.removeOperator))
}

// readDescription handles GET /console/v1/openapi.json.
func (c *Console) readDescription(w http.ResponseWriter, r *http.Request) error {
	return serveDocument(w, r, func(string) (Document, bool) { return c.public.docs.console, true })
}

func (c *Console) addSignInRoutes(router chi.Router) {
	router.Get("/methods", httpserver.Handle(c.readSignIn))
	router.Post("/code", httpserver.Handle(c.signInWithCode))
	router.Post("/oidc/start", httpserver.Handle(c.startOIDC))
	router.Post("/oidc/finish", httpserver.Handle(c.finishOIDC))
	router.Post("/passkey/start", httpserver.Handle(c.startPasskey))
	router.Post("/passkey/finish", httpserver.Handle(c.finishPasskey))
	router.Post("/registration/start", httpserver.Handle(c.startRegistration))
	router.Post("/registration/finish", httpserver.Handle(c.finishRegistration))
	router.Post("/invitation", httpserver.Handle(c.readInvitation))
}

// visitor is the person of a request: the session, and the role in the workspace of the request.
type visitor struct {
	session auth.Session
	// workspaceID is uuid.Nil if the route belongs to no workspace.
	workspaceID uuid.UUID
	role        people.Role
}

type visitorKey struct{}

func visitorOf(r *http.Request) visitor {
	v, _ := r.Context().Value(visitorKey{}).(visitor)
	return v
}

func (c *Console) answer(w http.ResponseWriter, r *http.Request) error {
	requestID, err := uuid.NewV7()
	if err != nil {
		return err
	}
	ctx := r.Context()
	telemetry.Annotate(ctx, "request_id", requestID.String())
	w.Header().Set("X-Request-Id", requestID.String())
	w.Header().Set("Cache-Control", "no-store")
	httpserver.Hurry(w, r, refusedBodyTimeout)
	if r.URL.Path == "/readyz" {
		telemetry.Route(ctx, "/readyz")
		c.open.ServeHTTP(w, r)
		return nil
	}
	if strings.HasPrefix(r.URL.Path, consolePath+"/sign-in/") {
		// The list of sign-in methods has no rate limit. Otherwise visits of the sign-in page could use
		// up the limit of an address.
		if r.URL.Path != consolePath+"/sign-in/methods" {
			status, err := c.auth.LimitAnonymous(r)
			status.Write(w.Header())
			if err != nil {
				return err
			}
		}
		// a path of a sign-in route has no parameters, so it equals its route template
		if c.open.Match(chi.NewRouteContext(), r.Method, r.URL.Path) {
			telemetry.Route(ctx, r.URL.Path)
		}
		ctx = context.WithValue(ctx, actorKey{}, actor{requestID: requestID})
		return c.serveRouter(c.open, w, r.WithContext(ctx))
	}
	session, status, err := c.auth.Session(r)
	status.Write(w.Header())
	if err != nil {
		return err
	}
	telemetry.Annotate(ctx, "person_id", session.PersonID.String())
	if session.NewToken != "" {
		w.Header().Set(sessionHeader, session.NewToken)
	}
	rule, match, found := c.roles.find(r.Method, r.URL)
	if !found {
		return forbidden("This route is not open to people. It is not in the table of routes and roles.")
	}
	telemetry.Route(ctx, match.Template)
	person, err := c.authorize(r, session, rule, match)
	if err != nil {
		return err
	}
	act := actor{
		Actor:    audit.Actor{Type: audit.User, ID: session.PersonID.String(), Name: session.PersonName},
		operator: session.Actor(), requestID: requestID,
	}
	if person.role == people.Operator {
		act.reason = strings.TrimSpace(r.Header.Get(reasonHeader))
		telemetry.Annotate(ctx, "reason", act.reason)
	}
	act.hidden = rule.hides && (person.role == people.Viewer || r.Header.Get(redactedHeader) != "" ||
		(person.role == people.Operator && act.reason == ""))
	if person.workspaceID != uuid.Nil {
		telemetry.Annotate(ctx, "workspace_id", person.workspaceID.String())
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, visitorKey{}, person))
	defer cancel()
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		go c.recheck(ctx, cancel, r, person, rule, match)
	}
	r = r.WithContext(context.WithValue(ctx, actorKey{}, act))
	r.URL = &url.URL{Path: match.Path.Path, RawPath: match.Path.RawPath, RawQuery: r.URL.RawQuery}
	return c.dispatch(w, r, match, person)
}

// dispatch serves a request that the role table has permitted.
func (c *Console) dispatch(w http.ResponseWriter, r *http.Request, rule proxy.Match, person visitor) error {
	requestID := actorOf(r).requestID
	if match, ok := c.public.table.Find(r.URL); ok {
		caller := serviceauth.Caller{
			WorkspaceID: person.workspaceID, RequestID: requestID, Access: person.role.Access(), Webhooks: true,
			Operator: person.session.Actor(), PersonName: person.session.PersonName,
		}
		var err error
		if caller.Turns, err = c.mayReadTurns(r.Context(), match, person.workspaceID); err != nil {
			return err
		}
		return c.public.serve(w, r, match, caller, func(ctx context.Context) error {
			return c.recheckTranscripts(ctx, match, caller, person)
		})
	}
	if open, ok := c.public.openRoute(r.URL); ok {
		if open.Owner == proxy.Dialer {
			caller := serviceauth.Caller{RequestID: requestID, Access: serviceauth.Read}
			return c.public.peers.Fetch(w, r, open.Owner, open.Path, caller)
		}
		return serveDocument(w, r, c.public.docs.Find)
	}
	described := c.public.docs.operatorAPI
	if strings.HasPrefix(rule.Template, consolePath) {
		described = c.public.docs.consoleAPI
	}
	// checkStrictPath runs first, so that a refused request has no audit entry
	w, err := described.checkStrictPath(w, r)
	if err != nil {
		return err
	}
	return c.serveAudited(w, r, rule, person)
}

// mayReadTurns reports whether the event stream of the person contains the turns of calls in
// progress. It is true only if the person may read transcripts and the workspace has the
// transcripts feature.
func (c *Console) mayReadTurns(ctx context.Context, match proxy.Match, workspaceID uuid.UUID) (bool, error) {
	act, _ := ctx.Value(actorKey{}).(actor)
	if !match.Stream || act.hidden {
		return false, nil
	}
	workspace, err := c.store.Workspace(ctx, workspaceID)
	return workspace.Transcripts(), err
}

// recheckTranscripts returns an error if an open stream may no longer contain transcripts or turns,
// because the role of the person or the workspace has changed. If the database is not available,
// the stream stays open. Console.recheck cancels the stream when the session ends.
func (c *Console) recheckTranscripts(
	ctx context.Context, match proxy.Match, caller serviceauth.Caller, person visitor,
) error {
	grant, err := c.store.GrantOf(ctx, person.session.PersonID, person.workspaceID)
	if err == nil && grant.Role != person.role {
		return forbidden("The role of the person has changed.")
	}
	if may, err := c.mayReadTurns(ctx, match, person.workspaceID); err == nil && caller.Turns && !may {
		return forbidden("The transcripts of the workspace were switched off.")
	}
	return nil
}

func (c *Console) serveRouter(router *chi.Mux, w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), consoleTimeout)
	defer cancel()
	httpserver.Hurry(w, r, consoleTimeout)
	router.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// authorize decides whether a session may use a route. It returns 404 if the person is not a member
// of the workspace, and 403 if the role does not permit the route or the sign-in is too old.
func (c *Console) authorize(r *http.Request, session auth.Session, u rule, match proxy.Match) (visitor, error) {
	person := visitor{session: session}
	switch u.scope {
	case ofPerson:
		// every person with a session may use this route
	case ofSystem:
		if !session.Operator {
			return person, forbidden("Only operators may use this route.")
		}
		person.role = people.Operator
	case inHeader, inPath:
		var err error
		if person.workspaceID, err = workspaceOfRequest(r, u, match); err != nil {
			return person, err
		}
		grant, err := c.store.GrantOf(r.Context(), session.PersonID, person.workspaceID)
		if errors.Is(err, pg.ErrNotFound) {
			return person, noWorkspace()
		}
		if err != nil {
			return person, err
		}
		person.role = grant.Role
		if err := checkGrant(r, u, grant); err != nil {
			return person, err
		}
	}
	if u.recent && !session.IsRecent(time.Now()) {
		return person, apierr.New(http.StatusForbidden, "recent_sign_in_required",
			"This action needs a sign-in within the last 15 minutes. Sign in again.")
	}
	if person.role == people.Operator && (u.reason || r.Header.Get(reasonHeader) != "") {
		return person, checkReason(r)
	}
	return person, nil
}

func checkGrant(r *http.Request, u rule, grant people.Grant) error {
	if !u.permits(grant.Role) {
		return forbidden("The role " + string(grant.Role) + " does not permit this action.")
	}
	if grant.Status == workspaces.Suspended && grant.Role != people.Operator &&
		r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierr.New(http.StatusForbidden, "api_not_enabled",
			"This workspace is suspended. Ask the operator of the service.")
	}
	return nil
}

// workspaceOfRequest returns the workspace that the path or the header of a request names. If they
// name different workspaces, the request is refused.
func workspaceOfRequest(r *http.Request, u rule, match proxy.Match) (uuid.UUID, error) {
	named := r.Header.Values(workspaceHeader)
	if len(named) > 1 {
		return uuid.Nil, apierr.Validation(workspaceHeader, "must be sent once.")
	}
	if u.scope == inPath {
		id, err := uuid.Parse(match.Values["id"])
		if err != nil {
			return uuid.Nil, noWorkspace()
		}
		if len(named) == 1 && named[0] != match.Values["id"] {
			return uuid.Nil, apierr.Validation(workspaceHeader, "must be the id of the workspace in the path.")
		}
		return id, nil
	}
	if len(named) == 0 {
		return uuid.Nil, apierr.Validation(workspaceHeader, "is required: send the id of a workspace.")
	}
	id, err := uuid.Parse(named[0])
	if err != nil {
		return uuid.Nil, noWorkspace()
	}
	return id, nil
}

// checkReason returns 422 if an operator gives no reason, or a reason that cannot be stored.
func checkReason(r *http.Request) error {
	reason := strings.TrimSpace(r.Header.Get(reasonHeader))
	if reason == "" || !utf8.ValidString(reason) || utf8.RuneCountInString(reason) > maxReason {
		return apierr.Validation(reasonHeader, "must be a reason of 1 to %d characters.", maxReason)
	}
	return nil
}

// recheck cancels a running request when its session ends or when the person may no longer use the
// route. It also cancels the request when the role changes, because the role determines the content
// of the response. An open stream does not count as a use of the session.
func (c *Console) recheck(
	ctx context.Context, cancel context.CancelFunc, r *http.Request, person visitor, u rule, match proxy.Match,
) {
	u.recent = false // the age of the sign-in was checked when the request began
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var now visitor
		current, err := c.store.Session(ctx, person.session.ID)
		if err == nil {
			now, err = c.authorize(r.WithContext(ctx), auth.Session{Session: current}, u, match)
		}
		_, refused := errors.AsType[*apierr.Error](err)
		if refused || errors.Is(err, pg.ErrNotFound) || (err == nil && now.role != person.role) {
			cancel()
			return
		}
	}
}

func forbidden(sentence string) error {
	return apierr.New(http.StatusForbidden, "forbidden", "%s", sentence)
}
