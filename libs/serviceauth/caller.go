package serviceauth

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/telemetry"
)

// Access is what an API key permits.
type Access string

const (
	Read  Access = "read"
	Write Access = "write"
)

// The features in a caller's token. A service ignores a feature that it does not know.
const webhooks, turns = "webhooks", "turns"

// Caller is the client or operator whose request the gateway forwards.
type Caller struct {
	WorkspaceID uuid.UUID
	RequestID   uuid.UUID
	Access      Access
	// Webhooks is true if the workspace's plan includes webhooks.
	Webhooks bool
	// Turns is true if the caller may read the turns of calls in progress in the event stream.
	Turns bool
	// KeyID is the id of the client's API key. It is the zero UUID on routes without a key.
	KeyID uuid.UUID
	// Operator is the name of the operator on /admin/v1 and internal routes. If a person sends the
	// request with a session of the console, Operator is "person:" and the person's id, on every
	// route. Otherwise it is empty.
	Operator string
	// PersonName is the name of the person whose id Operator contains. Otherwise it is empty.
	PersonName string
	// Destinations are the only number prefixes that the workspace may call. An empty list means no
	// restriction. The gateway sets the list only on the route that needs it. Otherwise it is nil.
	Destinations *[]string
}

// CallerHeader is the header that contains the caller's token. Gateways remove it from requests of
// clients.
const CallerHeader = "X-Ringfence-Caller"

// SignCaller returns the token for a request that the gateway forwards to the service aud. The
// token is valid for 60 s.
func (k *Keys) SignCaller(aud string, c Caller) (string, error) {
	signed := claims{
		Use:          forCaller,
		RequestID:    c.RequestID,
		Workspace:    c.WorkspaceID,
		Access:       c.Access,
		Key:          c.KeyID,
		Operator:     c.Operator,
		PersonName:   c.PersonName,
		Destinations: c.Destinations,
	}
	if c.Webhooks {
		signed.Features = append(signed.Features, webhooks)
	}
	if c.Turns {
		signed.Features = append(signed.Features, turns)
	}
	return k.sign(aud, signed, time.Now())
}

type callerKey struct{}

// RequireCaller rejects a request without a valid token of the gateway with 401 invalid_api_key. It
// adds the Caller to the context, and the workspace and the request id to the span and the log
// line.
func (k *Keys) RequireCaller(next http.Handler) http.Handler {
	return k.require(next, func(Caller) bool { return true })
}

// RequireOperator does what RequireCaller does, and also requires the name of an operator. It is
// for /admin/v1 and /internal/v1.
func (k *Keys) RequireOperator(next http.Handler) http.Handler {
	return k.require(next, func(c Caller) bool { return c.Operator != "" })
}

func (k *Keys) require(next http.Handler, may func(Caller) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		signed, err := k.verify(r.Header.Get(CallerHeader), forCaller, time.Now())
		caller := signed.caller()
		if err != nil || signed.Issuer != Gateway || !may(caller) {
			slog.WarnContext(ctx, "HTTP request without a valid caller token refused", "issuer", signed.Issuer, "error", err)
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
	return Caller{WorkspaceID: c.Workspace, RequestID: c.RequestID, Access: c.Access, KeyID: c.Key,
		Webhooks: slices.Contains(c.Features, webhooks), Turns: slices.Contains(c.Features, turns), Operator: c.Operator,
		PersonName: c.PersonName, Destinations: c.Destinations}
}

// personPrefix is the start of Caller.Operator if the caller is a person.
const personPrefix = "person:"

// Person returns the id of the person who sends the request with a session of the console. It
// returns false for other callers.
func (c Caller) Person() (uuid.UUID, bool) {
	text, isPerson := strings.CutPrefix(c.Operator, personPrefix)
	if !isPerson {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}

// CallerFrom returns the caller of a request. It panics on a route without RequireCaller.
func CallerFrom(ctx context.Context) Caller {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		panic("serviceauth: this route is not behind RequireCaller")
	}
	return caller
}

// WithCaller returns a context with a caller, for tests.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}
