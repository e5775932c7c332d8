// Package trust owns who is asking: the caller a gateway signs for, and the token one service shows
// another (contract.md §9). Ed25519 JWTs; public keys are given by configuration, two at a time for rotation.
package trust

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"github.com/google/uuid"
)

// Config is the key part of every service's environment.
type Config struct {
	// SigningKey is this service's own Ed25519 seed, base64 (32 bytes).
	SigningKey string `env:"SIGNING_KEY,required"`
	// TrustedKeys are the public keys of those who may ask: "gateway=<base64>,calls=<base64>"; a name may stand twice.
	TrustedKeys []string `env:"TRUSTED_KEYS" envSeparator:","`
}

// Keys signs as one service and verifies others.
type Keys struct{}

// New parses the keys; self is the service's name ("calls"), used as iss and expected as aud.
func New(self string, cfg Config) (*Keys, error) { panic("unwritten") }

// Access is what a key may do.
type Access string

const (
	Read  Access = "read"
	Write Access = "write"
)

// Caller is the customer or operator on whose behalf the gateway forwards a request.
type Caller struct {
	WorkspaceID uuid.UUID
	RequestID   uuid.UUID
	Access      Access
	// Webhooks says that the plan has the webhooks feature.
	Webhooks bool
	// Operator is the operator's name on /admin/v1 and internal routes, else empty.
	Operator string
}

// SignCaller makes the token for one forwarded request to the service aud, good for 60 s.
func (k *Keys) SignCaller(aud string, c Caller) (string, error) { panic("unwritten") }

// CallerHeader carries the token; gateways strip it from outside requests.
const CallerHeader = "X-Ringfence-Caller"

// RequireCaller lets only requests with a valid gateway-signed caller through (401 invalid_api_key otherwise)
// and puts the Caller into the context.
func (k *Keys) RequireCaller(next http.Handler) http.Handler { panic("unwritten") }

// RequireOperator additionally demands an operator's name; for /admin/v1 and /internal/v1 routes.
func (k *Keys) RequireOperator(next http.Handler) http.Handler { panic("unwritten") }

// CallerFrom is the caller RequireCaller found; it panics on a route without it (a wiring fault).
func CallerFrom(ctx context.Context) Caller { panic("unwritten") }

// WithCaller is for tests.
func WithCaller(ctx context.Context, c Caller) context.Context { panic("unwritten") }

// Ask is the client interceptor of questions 2 to 5: it adds a fresh token for the service aud.
func (k *Keys) Ask(aud string) connect.Interceptor { panic("unwritten") }

// Answer is the server interceptor: only the named services may call (CodeUnauthenticated, CodePermissionDenied).
func (k *Keys) Answer(askers ...string) connect.Interceptor { panic("unwritten") }
