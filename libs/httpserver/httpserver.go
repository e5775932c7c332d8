// Package httpserver owns how an HTTP answer is made: the error body, JSON in and out, limits, and
// the server's timeouts and drain. It knows no route.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/telemetry"
)

// Version is sent as Service-Version on every response (specification part 9).
const Version = "2026-06-04"

// limit is how long a handler may take: with a database that hangs, requests end with 503 instead of piling up.
const limit = 30 * time.Second

// MaxBody bounds a request body in bytes; over it 413 request_too_large.
const MaxBody = 256 << 10

// Config is the listening part of every service's environment.
type Config struct {
	Addr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:0" help:"address the service listens on"`
}

// Handler answers a request or returns an error; WriteError renders it.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle adapts a Handler to chi.
func Handle(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			WriteError(w, r, err)
		}
	}
}

// NewRouter is a chi router with the error body for unknown routes (404), methods (405), panics (500), the body limit,
// Service-Version, telemetry and a deadline of 30 s. HEAD is answered wherever GET is. tel may be nil in tests.
func NewRouter(tel *telemetry.Telemetry) *chi.Mux { return newRouter(tel.Middleware) }

// NewEdgeRouter is NewRouter for requests from outside the house: the client's trace is linked, not continued.
func NewEdgeRouter(tel *telemetry.Telemetry) *chi.Mux { return newRouter(tel.Edge) }

func newRouter(observe func(http.Handler) http.Handler) *chi.Mux {
	router := chi.NewRouter()
	router.Use(observe, Recover, limitTime, LimitBody, middleware.GetHead)
	router.NotFound(Handle(func(http.ResponseWriter, *http.Request) error { return NoRoute() }))
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, WrongMethod(w, r.Method, allowed(r)...))
	})
	return router
}

// Recover sets Service-Version and answers a panic with 500 internal_error. NewRouter has it; it stands alone for a handler
// that routes by itself.
func Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Service-Version", Version)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		recorder := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer recoverTo(recorder, r)
		next.ServeHTTP(recorder, r)
	})
}

func limitTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// LimitBody answers 413 for a body that says it is over MaxBody, and ends the reading of one that turns out to be.
func LimitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > MaxBody {
			WriteError(w, r, TooLarge())
			return
		}
		BoundBody(w, r)
		next.ServeHTTP(w, r)
	})
}

// BoundBody ends the reading of a body at MaxBody. The connection closes behind a larger one: net/http would otherwise wait for its
// rest before it lets the 413 go.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = wrapped.Unwrap() // only net/http's own writer hears of it
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
}

// Hurry bounds from now on how long the rest of a body may take to arrive. net/http waits for one that nobody read before it
// answers: whoever is refused unread must not hold a connection for the whole of the server's patience.
func Hurry(w http.ResponseWriter, r *http.Request, within time.Duration) {
	if r.ContentLength == 0 {
		return // nothing to wait for; a deadline would look like the client's going away
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // a writer that cannot has no connection
}

// recoverTo turns a panic into 500, or cuts the connection when the answer had begun.
func recoverTo(w middleware.WrapResponseWriter, r *http.Request) {
	fault := recover()
	if fault == nil {
		return
	}
	if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(fault)
	}
	slog.ErrorContext(r.Context(), "a handler panicked", "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if w.Status() != 0 {
		panic(http.ErrAbortHandler)
	}
	writeRefusal(w, r, internal())
}

// NoRoute is the 404 for a path that names no route.
func NoRoute() error {
	return apierr.New(http.StatusNotFound, "not_found", "There is nothing at this path. Check the path and its version prefix /v1.")
}

// TooLarge is the 413 for a body over MaxBody.
func TooLarge() error {
	return apierr.New(http.StatusRequestEntityTooLarge, "request_too_large", "The request body is larger than %d KiB. Send less.", MaxBody>>10)
}

// WrongMethod is the 405; it sets the Allow header.
func WrongMethod(w http.ResponseWriter, method string, allow ...string) error {
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if len(method) > 16 {
		method = method[:16]
	}
	return apierr.New(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not allowed here. Use %s.", method, strings.Join(allow, ", "))
}

// allowed lists the methods that the request's path knows.
func allowed(r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	routes := chi.RouteContext(r.Context()).Routes
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !routes.Match(chi.NewRouteContext(), method, path) {
			continue
		}
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return methods
}
