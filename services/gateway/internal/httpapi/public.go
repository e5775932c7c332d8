// Package httpapi listens: the customer's address and the operator's. It judges in the order of contract.md §1
// and hands each request to its owner; it decides nothing about calls.
package httpapi

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/workspaces"
)

// refusedBody is how long the body of a request that is refused may keep its answer waiting.
const refusedBody = time.Second

// Public is the customer's address.
type Public struct {
	door  *auth.Authenticator
	peers *proxy.Upstreams
	ready *Readiness
	shelf *Docs
	table proxy.Table
	open  proxy.Table
}

// NewPublic is the handler of the customer's address. It routes by itself: the path is judged as it was sent.
func NewPublic(door *auth.Authenticator, peers *proxy.Upstreams, ready *Readiness, shelf *Docs, tel *telemetry.Telemetry) http.Handler {
	p := &Public{door: door, peers: peers, ready: ready, shelf: shelf, table: proxy.Public(), open: proxy.Open()}
	return tel.Edge(httpserver.Recover(httpserver.Handle(p.answer)))
}

func (p *Public) answer(w http.ResponseWriter, r *http.Request) error {
	requestID, err := uuid.NewV7()
	if err != nil {
		return err
	}
	ctx := r.Context()
	telemetry.Annotate(ctx, "request_id", requestID.String())
	w.Header().Set("X-Request-Id", requestID.String())
	if open, ok := p.openRoute(r.URL); ok {
		telemetry.Route(ctx, open.Template)
		if open.Owner == proxy.Dialer {
			return p.recording(w, r, open, requestID)
		}
		maps.Copy(w.Header(), Uncounted())
		if open.Template == "/readyz" {
			return p.ready.answer(w, r)
		}
		return p.reference(w, r)
	}
	match, found := p.table.Find(r.URL)
	if found {
		telemetry.Route(ctx, match.Template)
	}

	httpserver.Hurry(w, r, refusedBody)
	holder, standing, err := p.door.Authenticate(r) // 401, 429
	standing.Write(w.Header())
	if err != nil {
		return err
	}
	telemetry.Annotate(ctx, "workspace_id", holder.WorkspaceID.String())
	if err := included(holder.Workspace(), r.URL); err != nil {
		return err
	}
	if holder.Access != serviceauth.Write && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierr.New(http.StatusForbidden, "missing_scope", "This key may only read. Use a key with write access.")
	}
	if !found {
		return httpserver.NoRoute()
	}
	if !match.Allows(r.Method) {
		return httpserver.WrongMethod(w, r.Method, match.Allow()...)
	}
	if err := readable(r.URL); err != nil {
		return err
	}
	return p.peers.Forward(w, r, match.Owner, match.Path, serviceauth.Caller{
		WorkspaceID: holder.WorkspaceID, RequestID: requestID, Access: holder.Access, Webhooks: holder.Workspace().Webhooks(),
	})
}

// recording hands a link to the dialer, which has signed nothing less than this recording for this hour. Whoever has no key counts by address.
func (p *Public) recording(w http.ResponseWriter, r *http.Request, open proxy.Match, requestID uuid.UUID) error {
	httpserver.Hurry(w, r, refusedBody)
	standing, err := p.door.LimitAnonymous(r)
	standing.Write(w.Header())
	if err != nil {
		return err
	}
	if !open.Allows(r.Method) {
		return httpserver.WrongMethod(w, r.Method, open.Allow()...)
	}
	return p.peers.Fetch(w, r, open.Owner, open.Path, serviceauth.Caller{RequestID: requestID, Access: serviceauth.Read})
}

// readable answers 422 for a query that url.Values would read in part.
func readable(address *url.URL) error {
	if _, err := url.ParseQuery(address.RawQuery); err != nil {
		return apierr.Validation("query", "is malformed: encode each parameter as name=value.")
	}
	return nil
}

// Uncounted are the rate-limit headers of answers that do not count.
func Uncounted() http.Header {
	header := http.Header{}
	ratelimit.Anonymous.Status(true, 0).Write(header)
	return header
}

// openRoute finds the paths that need no key. The two folders may end with a slash.
func (p *Public) openRoute(path *url.URL) (proxy.Match, bool) {
	if path.Path == "/docs/" || path.Path == "/docs/guides/" {
		path = &url.URL{Path: strings.TrimSuffix(path.Path, "/")}
	}
	return p.open.Find(path)
}

// included answers 403 for what the plan does not include.
func included(w workspaces.Workspace, path *url.URL) error {
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
