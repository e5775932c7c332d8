package serviceauth

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/telemetry"
)

// Access is what a key may do.
type Access string

const (
	Read  Access = "read"
	Write Access = "write"
)

// webhooks is the feature's name in the token.
const webhooks = "webhooks"

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

// CallerHeader carries the token; gateways strip it from outside requests.
const CallerHeader = "X-Ringfence-Caller"

// SignCaller makes the token for one forwarded request to the service aud, good for 60 s.
func (k *Keys) SignCaller(aud string, c Caller) (string, error) {
	signed := claims{Use: forCaller, RequestID: c.RequestID, Workspace: c.WorkspaceID, Access: c.Access, Operator: c.Operator}
	if c.Webhooks {
		signed.Features = []string{webhooks}
	}
	return k.sign(aud, signed, time.Now())
}

type callerKey struct{}

// RequireCaller lets only requests with a valid gateway-signed caller through (401 invalid_api_key otherwise)
// and puts the Caller into the context. The request's span and log line get its workspace and request id.
func (k *Keys) RequireCaller(next http.Handler) http.Handler {
	return k.require(next, func(Caller) bool { return true })
}

// RequireOperator additionally demands an operator's name; for /admin/v1 and /internal/v1 routes.
func (k *Keys) RequireOperator(next http.Handler) http.Handler {
	return k.require(next, func(c Caller) bool { return c.Operator != "" })
}

func (k *Keys) require(next http.Handler, may func(Caller) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		signed, err := k.verify(r.Header.Get(CallerHeader), forCaller, time.Now())
		caller := signed.caller()
		if err != nil || signed.Issuer != Gateway || !may(caller) {
			slog.WarnContext(ctx, "a request without a good caller was refused", "issuer", signed.Issuer, "error", err)
			httpserver.WriteError(w, r, apierr.New(http.StatusUnauthorized, "invalid_api_key",
				"This request does not come through the gateway. Send it to the public address with an API key."))
			return
		}
		telemetry.Annotate(ctx, "workspace_id", caller.WorkspaceID.String())
		telemetry.Annotate(ctx, "request_id", caller.RequestID.String())
		next.ServeHTTP(w, r.WithContext(WithCaller(ctx, caller)))
	})
}

func (c claims) caller() Caller {
	return Caller{WorkspaceID: c.Workspace, RequestID: c.RequestID, Access: c.Access,
		Webhooks: slices.Contains(c.Features, webhooks), Operator: c.Operator}
}

// CallerFrom is the caller RequireCaller found; it panics on a route without it (a wiring fault).
func CallerFrom(ctx context.Context) Caller {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		panic("trust: this route is not behind RequireCaller")
	}
	return caller
}

// WithCaller is for tests.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}
