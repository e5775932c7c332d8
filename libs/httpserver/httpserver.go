// Package httpserver owns how an HTTP answer is made: the error body, JSON in and out, limits, and
// the server's timeouts and drain. It knows no route.
package httpserver

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/telemetry"
)

// Version is sent as Service-Version on every response (specification part 9).
const Version = "2026-06-04"

// MaxBody bounds a request body in bytes; over it 413 request_too_large.
const MaxBody = 256 << 10

// Handler answers a request or returns an error; WriteError renders it.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle adapts a Handler to chi.
func Handle(h Handler) http.HandlerFunc { panic("unwritten") }

// NewRouter is a chi router with the error body for unknown routes (404), methods (405), panics (500), the body limit, Service-Version and telemetry.
func NewRouter(tel *telemetry.Telemetry) *chi.Mux { panic("unwritten") }

// DecodeJSON reads the body into v: 422 validation_error naming the field for what does not parse, a wrong type,
// invalid UTF-8 or a NUL byte. Unknown fields are ignored. An empty body is an error unless v is optional.
func DecodeJSON(r *http.Request, v any) error { panic("unwritten") }

// WriteJSON answers with status and body.
func WriteJSON(w http.ResponseWriter, status int, body any) error { panic("unwritten") }

// WriteError answers with the error body: an *apierr.Error as it is, a database that is down as 503 unavailable, anything
// else as 500 internal_error, logged.
func WriteError(w http.ResponseWriter, r *http.Request, err error) { panic("unwritten") }

// PathID is the path parameter as a UUID; a malformed one is 404 not_found for the thing.
func PathID(r *http.Request, name, thing string) (uuid.UUID, error) { panic("unwritten") }

// QueryEnum is an optional query parameter limited to the allowed values; "" when absent; 422 otherwise. QueryUUID, QueryTime and
// QueryText read the others: nil or "" when absent, 422 naming the parameter when malformed.
func QueryEnum(q url.Values, name string, allowed ...string) (string, error) { panic("unwritten") }

// Server serves a handler with timeouts (header 10 s, idle 2 min) until its context ends, then drains.
type Server struct {
	Addr    string
	Handler http.Handler
	// ReusePort lets replicas share Addr (SO_REUSEPORT).
	ReusePort bool
}

// Run serves until ctx ends, then waits up to 15 s for open requests.
func (s *Server) Run(ctx context.Context) error               { panic("unwritten") }
func QueryUUID(q url.Values, name string) (*uuid.UUID, error) { panic("unwritten") }

// QueryTime takes a raw plus (decoded to a space) as a plus.
func QueryTime(q url.Values, name string) (*time.Time, error) { panic("unwritten") }

// QueryText refuses NUL bytes and invalid UTF-8.
func QueryText(q url.Values, name string) (string, error) { panic("unwritten") }

// Config is the listening part of every service's environment.
type Config struct {
	Addr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:0"`
	// ReusePort lets replicas on one machine share Addr.
	ReusePort bool `env:"HTTP_REUSE_PORT" envDefault:"false"`
}
