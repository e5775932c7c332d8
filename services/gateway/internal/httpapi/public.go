// Package httpapi serves the public API, the operator API and the console. It runs the checks in
// their documented order (docs/reference/api/README.md#order-of-checks) and forwards each request
// to the service that owns the route.
package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// refusedBodyTimeout limits how long the gateway reads the body of a refused request before it
// responds.
const refusedBodyTimeout = time.Second

// Public is the handler of the public API.
type Public struct {
	auth   *auth.Authenticator
	store  *store.Store
	peers  *proxy.Upstreams
	ready  *Readiness
	docs   *Docs
	table  proxy.Table
	open   proxy.Table
	audits auditor
}

// NewPublic returns the handler of the public API. The handler finds routes with proxy.Table
// instead of a router, because the table reads the path exactly as the client sent it.
func NewPublic(
	authenticator *auth.Authenticator,
	st *store.Store,
	peers *proxy.Upstreams,
	ready *Readiness,
	shelf *Docs,
	tel *telemetry.Telemetry,
) http.Handler {
	p := newPublic(authenticator, st, peers, ready, shelf)
	return tel.Edge(httpserver.Recover(httpserver.Handle(p.answer)))
}

func newPublic(
	authenticator *auth.Authenticator, st *store.Store, peers *proxy.Upstreams, ready *Readiness, shelf *Docs,
) *Public {
	return &Public{
		auth: authenticator, store: st, peers: peers, ready: ready, docs: shelf, table: proxy.Public(), open: proxy.Open(),
		audits: auditor{store: st, peers: peers},
	}
}

func (p *Public) answer(w http.ResponseWriter, r *http.Request) error {
	requestID, err := uuid.NewV7()
	if err != nil {
		return err
	}
	ctx := r.Context()
	telemetry.Annotate(ctx, "request_id", requestID.String())
	w.Header().Set("X-Request-Id", requestID.String())
	if r.URL.Path == "/" && redirectBrowser(w, r, "/docs/guides/index.html") {
		maps.Copy(w.Header(), Uncounted())
		return nil
	}
	if open, ok := p.openRoute(r.URL); ok {
		telemetry.Route(ctx, open.Template)
		if open.Owner == proxy.Dialer {
			return p.forwardRecording(w, r, open, requestID)
		}
		maps.Copy(w.Header(), Uncounted())
		if open.Template == "/readyz" {
			return p.ready.answer(w, r)
		}
		return serveDocument(w, r, p.docs.Find)
	}
	match, found := p.table.Find(r.URL)
	if found {
		telemetry.Route(ctx, match.Template)
	}

	httpserver.Hurry(w, r, refusedBodyTimeout)
	holder, status, err := p.auth.Authenticate(r) // err can be 401, 429 or 503
	status.Write(w.Header())
	if err != nil {
		return err
	}
	telemetry.Annotate(ctx, "workspace_id", holder.WorkspaceID.String())
	if err := checkPlan(holder.Workspace(), r.URL); err != nil {
		return err
	}
	if holder.Access != serviceauth.Write && needsWrite(match, r.Method) {
		return apierr.New(http.StatusForbidden, "missing_scope", "This key may only read. Use a key with write access.")
	}
	if !found {
		return httpserver.NoRoute()
	}
	caller := serviceauth.Caller{
		WorkspaceID: holder.WorkspaceID, RequestID: requestID, Access: holder.Access, Webhooks: holder.Workspace().Webhooks(),
		KeyID: holder.KeyID,
	}
	r = r.WithContext(context.WithValue(ctx, actorKey{}, actor{
		Actor:     audit.Actor{Type: audit.APIKey, ID: holder.KeyID.String(), Name: holder.KeyName},
		requestID: requestID,
	}))
	return p.serve(w, r, match, caller, func(ctx context.Context) error { return p.recheck(ctx, r) })
}

// needsWrite reports whether a request needs write access.
func needsWrite(match proxy.Match, method string) bool {
	if method == http.MethodGet || method == http.MethodHead {
		return match.WriteAccess
	}
	return !match.ReadAccess || !match.Allows(method)
}

// serve checks the method, the query and the body of an authorized request. Then it forwards the
// request to the service that owns the route. recheck returns an error if an open stream must end.
// The context of the request must contain the actor.
func (p *Public) serve(
	w http.ResponseWriter, r *http.Request, match proxy.Match, caller serviceauth.Caller,
	recheck func(context.Context) error,
) error {
	if !match.Allows(r.Method) {
		return httpserver.WrongMethod(w, r.Method, match.Allow()...)
	}
	if err := checkQuery(r.URL); err != nil {
		return err
	}
	w, err := p.docs.api.checkStrict(w, r, match.Template)
	if err != nil {
		return err
	}
	switch {
	case match.Template == proxy.Audit:
		return writeAudit(w, r, p.store, caller.WorkspaceID)
	// besides the audit log, the timeline is the only route that the gateway serves itself
	case match.Owner == proxy.Gateway:
		return writeTimeline(w, r, p.peers, caller, match.Values["id"])
	}
	if match.Template == proxy.DecisionPreview {
		workspace, err := p.store.Workspace(r.Context(), caller.WorkspaceID)
		if err != nil {
			return err
		}
		caller.Destinations = &workspace.Destinations
	}
	observe, err := p.audits.begin(w, r, match, caller)
	if err != nil {
		return err
	}
	if match.Stream {
		return p.peers.Stream(w, r, match.Owner, match.Path, caller, recheck, observe)
	}
	return p.peers.Forward(w, r, match.Owner, match.Path, caller, observe)
}

// recheck returns an error if the key of an open stream was revoked, or if the plan of the
// workspace no longer includes the path. If the database is not available, recheck returns nil.
func (p *Public) recheck(ctx context.Context, r *http.Request) error {
	holder, err := p.auth.Holder(ctx, r)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return err
	case err != nil:
		return nil //nolint:nilerr // the next check reads the key again
	}
	return checkPlan(holder.Workspace(), r.URL)
}

// forwardRecording forwards a request for a recording to the dialer, which checks the signature of
// the link. The request needs no API key and is counted by the client's address.
func (p *Public) forwardRecording(w http.ResponseWriter, r *http.Request, open proxy.Match, requestID uuid.UUID) error {
	httpserver.Hurry(w, r, refusedBodyTimeout)
	status, err := p.auth.LimitAnonymous(r)
	status.Write(w.Header())
	if err != nil {
		return err
	}
	if !open.Allows(r.Method) {
		return httpserver.WrongMethod(w, r.Method, open.Allow()...)
	}
	return p.peers.Fetch(w, r, open.Owner, open.Path, serviceauth.Caller{RequestID: requestID, Access: serviceauth.Read})
}

// checkQuery returns 422 if url.Values would ignore a part of the query.
func checkQuery(address *url.URL) error {
	if _, err := url.ParseQuery(address.RawQuery); err != nil {
		return apierr.Validation("query", "is malformed: encode each parameter as name=value.")
	}
	return nil
}

// Uncounted returns the rate-limit headers for responses to requests that are not counted.
func Uncounted() http.Header {
	header := http.Header{}
	ratelimit.Anonymous.Status(true, 0).Write(header)
	return header
}

// openRoute finds the route of a path that needs no key. /docs and /docs/guides can end with a
// slash.
func (p *Public) openRoute(path *url.URL) (proxy.Match, bool) {
	if path.Path == "/docs/" || path.Path == "/docs/guides/" {
		path = &url.URL{Path: strings.TrimSuffix(path.Path, "/")}
	}
	return p.open.Find(path)
}

// checkPlan returns 403 if the workspace is suspended, or if its plan does not include the path.
func checkPlan(w workspaces.Workspace, path *url.URL) error {
	switch {
	case w.Status == workspaces.Suspended:
		return apierr.New(http.StatusForbidden, "api_not_enabled", "This workspace is suspended. Ask the operator of the service.")
	case !w.API():
		return apierr.New(http.StatusForbidden, "api_not_enabled", "The plan %s does not include API access. Change to growth or scale.", w.Plan)
	case !w.Webhooks() && proxy.InWebhooks(path):
		return apierr.New(http.StatusForbidden, "webhooks_not_enabled", "The plan %s does not include webhooks. Change to growth or scale.", w.Plan)
	}
	return nil
}
