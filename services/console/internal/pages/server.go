// Package pages renders the pages of the console. A page shows only what the gateway returns for
// the session of the person. The package stores nothing.
package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/console/internal/gateway"
)

// Config contains the clients and the addresses that the pages need.
type Config struct {
	Gateway *gateway.Client
	Hub     *gateway.Hub
	// URL is the address of the console in the browser. Hosts are the accepted Host headers.
	URL   *url.URL
	Hosts []string
}

// Server is the HTTP handler of the console.
type Server struct {
	Config
	cookies   cookies
	templates *templates
	assets    *assets
	handler   http.Handler
}

// route is an address of the console. Handlers of routes below /w/{workspace} get a visit with this
// workspace.
type route struct {
	pattern string
	handler pageHandler
}

// pageHandler reads what a page shows, or carries out an action.
type pageHandler func(v *visit) (view, error)

// routes lists all pages for people who are signed in. Each group of pages has its own file.
func (s *Server) routes() []route {
	return slices.Concat(
		s.homeRoutes(),
		s.overviewRoutes(),
		s.liveRoutes(),
		s.callRoutes(),
		s.requestRoutes(),
		s.storyRoutes(),
		s.emergencyRoutes(),
		s.operatorRoutes(),
		s.trunkRoutes(),
		s.workspaceAdminRoutes(),
		s.peopleRoutes(),
		s.parkedRoutes(),
		s.agentRoutes(),
		s.numberRoutes(),
		s.whyRoutes(),
		s.webhookRoutes(),
		s.walletRoutes(),
		s.keyRoutes(),
		s.memberRoutes(),
		s.auditRoutes(),
		s.contactRoutes(),
		s.optOutRoutes(),
		s.hourRoutes(),
	)
}

// New returns the handler of the console.
func New(config Config) (*Server, error) {
	s := &Server{Config: config, cookies: newCookies(config.URL)}
	var err error
	if s.assets, err = newAssets(); err != nil {
		return nil, err
	}
	if s.templates, err = parseTemplates(s.assets); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", s.assets)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.addSignInRoutes(mux)
	for _, r := range s.routes() {
		mux.Handle(r.pattern, s.page(r))
	}
	mux.HandleFunc("GET /w/{workspace}/stream", s.stream)
	mux.HandleFunc("GET /w/{workspace}/turns", s.turns)
	mux.Handle("/", s.page(route{pattern: "/", handler: notFound}))
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.writeRefusal(w, r, http.StatusForbidden, "error.cross_origin")
	}))
	s.handler = s.checkAddress(protection.Handler(mux))
	return s, nil
}

// ServeHTTP checks the address of the request, sets the security headers and serves the page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"font-src 'self'; connect-src 'self'; media-src 'self' blob:; form-action 'self'; base-uri 'none'; "+
		"frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()")
	h.Set("Cache-Control", "no-store")
	if s.URL.Scheme == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	s.handler.ServeHTTP(w, r)
}

// checkAddress refuses a request if its Host header is not in Hosts. A page of another site can
// send such a request after DNS rebinding. If the address of the console is https, checkAddress
// also refuses requests that no proxy received over TLS.
func (s *Server) checkAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(s.Hosts, strings.ToLower(r.Host)) {
			s.writeRefusal(w, r, http.StatusMisdirectedRequest, "error.host")
			return
		}
		if s.URL.Scheme == "https" && r.TLS == nil && r.Header.Get("X-Forwarded-Proto") != "https" {
			s.writeRefusal(w, r, http.StatusForbidden, "error.plain_http")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// page serves a page for a person who is signed in.
func (s *Server) page(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		telemetry.Route(r.Context(), rt.pattern)
		limit := int64(maxForm)
		if rt.pattern == uploadImport {
			limit = maxUpload
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		v, ok := s.visit(w, r)
		if !ok {
			return
		}
		result, err := rt.handler(v)
		v.write(result, err)
	})
}

// maxForm is the maximum size of a submitted form.
const maxForm = 1 << 20

func notFound(*visit) (view, error) { return view{}, errNotFound }
