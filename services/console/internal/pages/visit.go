package pages

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

// visit is one request of a person who is signed in.
type visit struct {
	*gateway.Session
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	me     gateway.Me
	// workspace is uuid.Nil if the page belongs to no workspace. role is the person's role in the
	// workspace.
	workspace uuid.UUID
	role      string
	settings  settings
	layout    *pageLayout
	stored    string // the new token that the browser has received
}

// view is the result of a page: a template with its data, or a redirect.
type view struct {
	// template is the name of the file in templates, without .html.
	template string
	// title is the key of a text in the catalogue. heading replaces this text, for example with a
	// number.
	title, heading string
	// nav is the key of the navigation entry that is marked as the current page.
	nav  string
	data any
	// redirect is the address to which the browser goes after an action. done is the key of the
	// message that the next page shows.
	redirect, done string
	status         int
	// written is true if the handler has written the response itself.
	written bool
}

var errNotFound = &gateway.Error{Status: http.StatusNotFound, Code: "not_found"}

// visit creates the visit of a person who is signed in. If the person must sign in first, it writes
// the response and returns false.
func (s *Server) visit(w http.ResponseWriter, r *http.Request) (*visit, bool) {
	v := &visit{server: s, w: w, r: r, settings: s.settingsOf(r), Session: s.session(r)}
	if text := r.PathValue("workspace"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil || len(text) != 36 {
			v.write(view{}, errNotFound)
			return nil, false
		}
		v.workspace, v.Workspace, v.Reason = id, id, s.cookies.reasonFor(r, v.Token, id)
	}
	if v.Token == "" {
		v.write(view{}, &gateway.Error{Status: http.StatusUnauthorized, Code: "invalid_session"})
		return nil, false
	}
	v.layout = readLayout(v)
	me, err := gateway.Get[gateway.Me](r.Context(), v.Session, "/console/v1/me", nil)
	v.keepToken() // set the cookie before the page's handler writes the response
	if err != nil {
		v.write(view{}, err)
		return nil, false
	}
	v.me = me
	if v.workspace != uuid.Nil {
		v.role = me.RoleIn(v.workspace)
	} else if me.Operator {
		v.role = gateway.Operator
	}
	v.layout.readPauses(v)
	return v, true
}

// session returns a Session with the token of the request's cookie.
func (s *Server) session(r *http.Request) *gateway.Session {
	session := s.Gateway.Session(valueOf(r, s.cookies.session))
	session.Forwarded = strings.Join(append(r.Header.Values("X-Forwarded-For"), remoteHost(r)), ", ")
	session.Background = r.Header.Get("RF-Background") != ""
	return session
}

func remoteHost(r *http.Request) string {
	host := r.RemoteAddr
	if at := strings.LastIndexByte(host, ':'); at > 0 {
		host = host[:at]
	}
	return strings.Trim(host, "[]")
}

// path returns an address of the workspace of the page.
func (v *visit) path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/w/" + v.workspace.String())
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

// pageLayout is the data that every page of a workspace shows around its content. It is read while
// the page's own data is read. If a read fails, its part is not shown.
type pageLayout struct {
	done      sync.WaitGroup
	workspace *gateway.Workspace
	// pauses are at most maxBanners pauses. morePauses is the number of the other pauses.
	pauses     []activePause
	morePauses int
}

// readPauses reads the pauses that the page shows: all pauses for an operator, and the pause of the
// workspace for a member.
func (l *pageLayout) readPauses(v *visit) {
	if v.r.Method != http.MethodGet || v.changedCalls() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), layoutTimeout)
	l.done.Go(func() {
		defer cancel()
		if v.me.Operator {
			if found, err := gateway.Get[gateway.Dialer](ctx, v.Session, "/admin/v1/dialer", nil); err == nil {
				l.setPauses(ctx, v, found.Pauses)
			}
			return
		}
		if v.role == "" {
			return
		}
		d, err := gateway.Get[openapi.Dialing](ctx, v.Session, "/v1/dialing", nil)
		if err == nil && d.State == openapi.DialingStatePaused {
			pause := gateway.Pause{Level: workspaceLevel, ID: &v.workspace, Dialing: d}
			l.pauses = []activePause{{Pause: pause, Name: v.membershipName()}}
		}
	})
}

// setPauses stores the pauses that the page shows, with the names of paused workspaces and trunks.
func (l *pageLayout) setPauses(ctx context.Context, v *visit, pauses []gateway.Pause) {
	l.morePauses = max(0, len(pauses)-maxBanners)
	for _, pause := range pauses[:len(pauses)-l.morePauses] {
		l.pauses = append(l.pauses, activePause{Pause: pause, Name: v.pausedName(ctx, pause)})
	}
}

// pausedName returns the name of a paused workspace or trunk. It returns "" if the pause is of
// another level, because the API returns the pause of an agent without the agent's workspace, or if
// the name cannot be read.
func (v *visit) pausedName(ctx context.Context, pause gateway.Pause) string {
	paths := map[string]string{workspaceLevel: "/admin/v1/workspaces/", trunkLevel: "/admin/v1/trunks/"}
	path := paths[pause.Level]
	if path == "" || pause.ID == nil {
		return ""
	}
	found, err := gateway.Get[struct{ Name string }](ctx, v.Session, path+pause.ID.String(), nil)
	if err != nil {
		return ""
	}
	return found.Name
}

const layoutTimeout = 3 * time.Second

func readLayout(v *visit) *pageLayout {
	l := &pageLayout{}
	if v.workspace == uuid.Nil || v.r.Method != http.MethodGet || v.Background {
		return l
	}
	l.readWorkspace(v)
	return l
}

// readWorkspace reads the workspace of the page. Responses to forms read it only if they contain a
// page, because most of them are redirects.
func (l *pageLayout) readWorkspace(v *visit) {
	ctx, cancel := context.WithTimeout(v.r.Context(), layoutTimeout)
	session := v.Beside()
	l.done.Go(func() {
		defer cancel()
		if w, err := gateway.Get[gateway.Workspace](ctx, session, v.admin(""), nil); err == nil {
			l.workspace = &w
		}
	})
}

// keepToken stores the new session token in the browser if the gateway has replaced the token.
func (v *visit) keepToken() {
	if token := v.NewToken(); token != "" && token != v.stored {
		v.server.cookies.set(v.w, v.server.cookies.session, token, sessionAge)
		v.stored = token
	}
}

// write writes the page, or the page that explains the error.
func (v *visit) write(result view, err error) {
	v.keepToken()
	if err != nil {
		if v.layout == nil {
			v.layout = &pageLayout{}
		}
		result = v.failure(err)
	}
	if result.written {
		return
	}
	if result.redirect != "" {
		v.redirect(result)
		return
	}
	v.render(result)
}

func (v *visit) redirect(result view) {
	target := result.redirect
	if result.done != "" {
		address, err := url.Parse(target)
		if err == nil {
			query := address.Query()
			query.Set("done", result.done)
			address.RawQuery = query.Encode()
			target = address.String()
		}
	}
	if v.r.Header.Get("HX-Request") != "" {
		v.w.Header().Set("HX-Redirect", target)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, target, http.StatusSeeOther)
}

// render writes a page. The page is complete before its first byte is written, so an error in a
// template gives the page that explains an error.
func (v *visit) render(result view) {
	if v.workspace != uuid.Nil && v.role != "" && v.r.Method != http.MethodGet &&
		result.status < http.StatusInternalServerError {
		v.layout.readWorkspace(v)
	}
	v.layout.done.Wait()
	var body bytes.Buffer
	if err := v.server.templates.execute(&body, v, result); err != nil {
		slog.ErrorContext(v.r.Context(), "page rendering failed", "page", result.template,
			"request_id", v.requestID(), "error", err)
		body.Reset()
		key := "error.internal"
		result = view{template: "failure", title: key + ".title", nav: result.nav,
			data: failureData{Key: key, RequestID: v.requestID()}, status: http.StatusInternalServerError}
		if err := v.server.templates.execute(&body, v, result); err != nil {
			slog.ErrorContext(v.r.Context(), "error page rendering failed", "error", err)
			http.Error(v.w, v.server.templates.text(v.settings.Language, key+".title"), result.status)
			return
		}
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("RF-Cost", strconv.FormatInt(v.Requests(), 10))
	if result.status != 0 {
		v.w.WriteHeader(result.status)
	}
	if _, err := body.WriteTo(v.w); err != nil {
		return // the browser has disconnected
	}
}

// failureData is the data of the page that explains an error.
type failureData struct {
	Key       string // the prefix of the texts in the catalogue
	Message   string // the message of the gateway
	RequestID string
	Next      string
	Retry     bool
}

// requestID returns the id that a proxy in front of the console gave the request, or "".
func (v *visit) requestID() string {
	if id := v.r.Header.Get("X-Request-Id"); len(id) <= maxRequestID {
		return id
	}
	return ""
}

// maxRequestID is the maximum length of a request id that an error page shows.
const maxRequestID = 128

// failure returns the page that explains an error and offers the next step.
func (v *visit) failure(err error) view {
	refused := gateway.AsError(err)
	data := failureData{Key: "error.internal", Next: v.returnPath(), RequestID: v.requestID()}
	status := http.StatusInternalServerError
	if refused == nil {
		if errors.Is(err, context.Canceled) {
			return view{written: true}
		}
		// The log contains the route instead of the path, because the path can contain the token of
		// an invitation.
		slog.ErrorContext(v.r.Context(), "request for a page failed", "route", v.r.Pattern,
			"request_id", v.requestID(), "error", err)
	} else {
		data.Message, status = refused.Message, refused.Status
		data.RequestID = cmp.Or(refused.RequestID, data.RequestID)
	}
	switch {
	case refused == nil:
	case refused.Status == http.StatusUnauthorized:
		return v.expired()
	case refused.Code == "recent_sign_in_required":
		data.Key = "error.recent"
	case refused.Code == "no_file":
		data.Key = "error.no_file"
	case refused.Status == http.StatusRequestEntityTooLarge:
		data.Key = "error.too_large"
	case refused.Field == "Ringfence-Reason" || strings.HasPrefix(refused.Message, "Ringfence-Reason"):
		return view{template: "reason", title: "reason.title", data: data, status: http.StatusForbidden}
	case refused.Status == http.StatusForbidden:
		data.Key = "error.forbidden"
	case refused.Status == http.StatusNotFound:
		data.Key = "error.not_found"
	case refused.Status == http.StatusTooManyRequests:
		data.Key, data.Retry = "error.limit", true
		v.w.Header().Set("Retry-After", refused.RetryAfter)
	case refused.Status == 0, refused.Status >= http.StatusInternalServerError:
		data.Key, data.Retry, status = "error.offline", true, http.StatusServiceUnavailable
	default:
		data.Key = "error.refused"
	}
	return view{template: "failure", title: data.Key + ".title", data: data, status: status}
}

// expired redirects a person without a session to the sign-in page. After the sign-in, the person
// returns to this page.
func (v *visit) expired() view {
	target := "/sign-in"
	if next := v.returnPath(); next != "/" {
		target += "?next=" + url.QueryEscape(next)
		if v.Token != "" {
			target += "&expired=1"
		}
	}
	if v.Background { // the browser can have received another token since it sent the request
		v.w.WriteHeader(http.StatusUnauthorized)
		return view{written: true}
	}
	if v.Token != "" {
		v.server.cookies.set(v.w, v.server.cookies.session, "", 0)
		v.server.cookies.set(v.w, v.server.cookies.reason, "", 0)
	}
	return view{redirect: target}
}

// returnPath is the page to which a person returns after a sign-in: this page, or the page with the
// form that the person submitted.
func (v *visit) returnPath() string {
	if v.r.Method == http.MethodGet {
		return localPath(v.r.URL.RequestURI())
	}
	if referer, err := url.Parse(v.r.Referer()); err == nil && referer.Host == v.r.Host {
		return localPath(referer.RequestURI())
	}
	return "/"
}

// cameFrom returns the console page that linked to this page, or fallback if that page is unknown.
func (v *visit) cameFrom(fallback string) string {
	referer, err := url.Parse(v.r.Referer())
	if err != nil || referer.Host != v.r.Host || referer.Path == v.r.URL.Path {
		return fallback
	}
	return localPath(referer.RequestURI())
}

// writeRefusal writes an error page for a request that was refused before its session was read.
func (s *Server) writeRefusal(w http.ResponseWriter, r *http.Request, status int, key string) {
	v := &visit{server: s, w: w, r: r, settings: s.settingsOf(r), Session: s.Gateway.Session(""), layout: &pageLayout{}}
	v.render(view{template: "failure", title: key + ".title", status: status,
		data: failureData{Key: key, RequestID: v.requestID()}})
}

// form returns a value of the submitted form, without space around it.
func (v *visit) form(name string) string { return strings.TrimSpace(v.r.PostFormValue(name)) }

// query returns a parameter of the address, without space around it.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }

// admin returns a path of the operator API in the workspace of the page.
func (v *visit) admin(format string, args ...any) string {
	return "/admin/v1/workspaces/" + v.workspace.String() + fmt.Sprintf(format, args...)
}
