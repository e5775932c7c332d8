// Package httpserver contains what all HTTP APIs share: the error body, decoding and encoding of
// JSON, parameters, limits, and a server with timeouts and graceful shutdown.
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

// Version is the value of the header Service-Version of every response
// (docs/reference/api/README.md#conventions).
const Version = "2026-06-04"

// handlerTimeout limits the time of a handler. If the database hangs, requests end with 503 and do
// not accumulate.
const handlerTimeout = 30 * time.Second

// MaxBody is the maximum size of a request body in bytes. A larger one is 413 request_too_large.
const MaxBody = 256 << 10

// Config contains the address of the HTTP server.
type Config struct {
	Addr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:0" help:"Address host:port at which the service accepts HTTP requests. Port 0 means any free port."`
}

// Handler responds to a request or returns an error, which WriteError sends.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle converts a Handler for chi.
func Handle(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			WriteError(w, r, err)
		}
	}
}

// NewRouter returns a chi router with the error body for unknown routes (404), unknown methods
// (405) and panics (500). It limits the body and gives each request 30 s. Every route for GET also
// accepts HEAD. In tests metrics can be nil.
func NewRouter(metrics *telemetry.Telemetry) *chi.Mux { return newRouter(metrics.Middleware) }

// NewEdgeRouter returns a router like NewRouter, for a service that external clients reach. Each
// request starts a new trace, which is linked to the client's trace.
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

// Recover sets the header Service-Version and converts a panic to 500 internal_error. NewRouter
// already includes Recover.
func Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Service-Version", Version)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		recorder := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer respondToPanic(recorder, r)
		next.ServeHTTP(recorder, r)
	})
}

type clientKey struct{}

func limitTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), clientKey{}, r.Context()), handlerTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Untimed returns a context with the values of ctx, but without the time limit of NewRouter. The
// context ends when the client disconnects or when stop is called. Use it for a response that has
// no end.
func Untimed(ctx context.Context) (untimed context.Context, stop context.CancelFunc) {
	client, limited := ctx.Value(clientKey{}).(context.Context)
	if !limited {
		return context.WithCancel(ctx)
	}
	untimed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(client, cancel)
	return untimed, func() { detach(); cancel() }
}

// LimitBody responds 413 if Content-Length exceeds MaxBody. A body without Content-Length is read
// up to MaxBody.
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

// BoundBody stops reading the body at MaxBody. If the body is larger, the connection is closed.
// Otherwise net/http would read the rest of the body before it sends the 413.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = wrapped.Unwrap() // only the writer of net/http can close the connection
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
}

// Hurry sets a deadline for reading the rest of the body, because net/http reads the whole body
// before it responds. Without the deadline, a refused client could keep the connection open for the
// whole ReadTimeout.
func Hurry(w http.ResponseWriter, r *http.Request, within time.Duration) {
	if r.ContentLength == 0 {
		return // there is no body, and net/http would treat a read deadline as a disconnect of the client
	}
	// The error is ignored. Only the writers of tests do not support deadlines, because they have no
	// connection.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
}

// respondToPanic responds 500 to a panic. If the response has begun, it closes the connection.
func respondToPanic(w middleware.WrapResponseWriter, r *http.Request) {
	fault := recover()
	if fault == nil {
		return
	}
	if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(fault)
	}
	slog.ErrorContext(r.Context(), "handler panicked", "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if w.Status() != 0 {
		panic(http.ErrAbortHandler)
	}
	writeRefusal(w, r, internal())
}

// NoRoute is the 404 for an unknown path.
func NoRoute() error {
	return apierr.New(http.StatusNotFound, "not_found", "There is nothing at this path. Check the path and its version prefix /v1.")
}

// TooLarge is the 413 for a body over MaxBody.
func TooLarge() error {
	return apierr.New(http.StatusRequestEntityTooLarge, "request_too_large", "The request body is larger than %d KiB. Send less.", MaxBody>>10)
}

// WrongMethod returns the 405 error and sets the header Allow.
func WrongMethod(w http.ResponseWriter, method string, allow ...string) error {
	w.Header().Set("Allow", strings.Join(allow, ", "))
	if len(method) > 16 {
		method = method[:16]
	}
	return apierr.New(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not allowed here. Use %s.", method, strings.Join(allow, ", "))
}

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
