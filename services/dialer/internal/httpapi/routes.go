// Package httpapi contains the operators' routes for numbers, attempts, agent keys and trunks. It
// also serves the recordings of a local directory, and the internal APIs for the service `calls`
// and the gateway.
package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// API contains the handlers of the routes.
type API struct {
	store      *store.Store
	trunks     *store.Trunks
	replicas   *store.ReplicaReports
	keys       *store.AgentKeys
	recordings Recordings
	traces     *store.Traces
	relay      *outbox.Relay
	check      Check
	hangUp     func()
}

// Check tests a trunk in several steps, without a call. Check is nil if the carrier is simulated.
type Check func(context.Context, trunks.Trunk) []trunks.CheckStep

// New returns the handler of all routes. Operators use /admin/v1/workspaces/{id}, /admin/v1/dialer,
// /admin/v1/dialing and /admin/v1/trunks. Clients use /v1/dialing, and read recordings with a link.
// The service `calls` withdraws requests and hangs up calls. The service `calls` and the gateway
// store settings. The handler calls hangUp after it has marked calls to be hung up.
func New(
	st *store.Store,
	trunkStore *store.Trunks,
	replicaReports *store.ReplicaReports,
	traces *store.Traces,
	agentKeys *store.AgentKeys,
	recordings Recordings,
	check Check,
	hangUp func(),
	relay *outbox.Relay,
	keys *serviceauth.Keys,
	tel *telemetry.Telemetry,
) (http.Handler, error) {
	traced, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("trace requests: %w", err)
	}
	api := &API{
		store: st, trunks: trunkStore, replicas: replicaReports, traces: traces, keys: agentKeys, recordings: recordings,
		relay: relay, check: check, hangUp: hangUp,
	}
	router := httpserver.NewRouter(tel)
	api.routeDialing(router, keys)
	router.Route("/admin/v1/workspaces/{id}/numbers", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Post("/", httpserver.Handle(api.addNumber))
		r.Get("/", httpserver.Handle(api.listNumbers))
		r.Get("/{number_id}", httpserver.Handle(api.readNumber))
		r.Delete("/{number_id}", httpserver.Handle(api.removeNumber))
	})
	router.Route("/admin/v1/workspaces/{id}/attempts", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Get("/", httpserver.Handle(api.listAttempts))
	})
	// The gateway needs the attempts for the timeline of a call request.
	router.With(keys.RequireCaller).Get("/internal/v1/attempts", httpserver.Handle(api.listAttempts))
	router.Route("/admin/v1/workspaces/{id}/agent-keys/{agent_id}", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Put("/", httpserver.Handle(api.putAgentKey))
		r.Get("/", httpserver.Handle(api.readAgentKey))
		r.Delete("/", httpserver.Handle(api.removeAgentKey))
	})
	router.With(keys.RequireOperator).Get("/admin/v1/workspaces/{id}/agents/{agent_id}/opening",
		httpserver.Handle(api.readOpening))
	router.With(keys.RequireOperator).Get("/admin/v1/dialer", httpserver.Handle(api.readDialer))
	router.Route("/admin/v1/trunks", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Post("/", httpserver.Handle(api.addTrunk))
		r.Get("/", httpserver.Handle(api.listTrunks))
		r.Get("/rejected-calls", httpserver.Handle(api.listRejectedCalls))
		r.Get("/{trunk_id}", httpserver.Handle(api.readTrunk))
		r.Get("/{trunk_id}/trace", httpserver.Handle(api.readTrace))
		r.Patch("/{trunk_id}", httpserver.Handle(api.changeTrunk))
		r.Delete("/{trunk_id}", httpserver.Handle(api.removeTrunk))
		r.Post("/{trunk_id}/check", httpserver.Handle(api.checkTrunk))
	})
	router.Route(recordingstore.Path, func(r chi.Router) {
		r.Use(keys.RequireCaller)
		r.Get("/*", httpserver.Handle(api.readRecording))
	})
	path, withdrawHandler := dialerv1.NewWithdrawServiceHandler(
		api,
		connect.WithInterceptors(traced),
		keys.AllowServices("calls"),
	)
	router.Handle(path+"{procedure}", withdrawHandler)
	path, hangupHandler := dialerv1.NewHangupServiceHandler(
		api,
		connect.WithInterceptors(traced),
		keys.AllowServices("calls"),
	)
	router.Handle(path+"{procedure}", hangupHandler)
	path, settingHandler := settingsv1.NewSettingServiceHandler(api, connect.WithInterceptors(traced),
		keys.AllowServices(serviceauth.Gateway, "calls"))
	router.Handle(path+"{procedure}", settingHandler)
	return router, nil
}

func (a *API) routeDialing(router chi.Router, keys *serviceauth.Keys) {
	for pattern, scope := range map[string]scopeOf{
		"/admin/v1/dialing":                                   everythingScope,
		"/admin/v1/workspaces/{id}/dialing":                   workspaceScope,
		"/admin/v1/workspaces/{id}/agents/{agent_id}/dialing": a.agentScope,
		"/admin/v1/trunks/{trunk_id}/dialing":                 a.trunkScope,
	} {
		router.With(keys.RequireOperator).Get(pattern, httpserver.Handle(a.readDialing(scope)))
		router.With(keys.RequireOperator).Put(pattern, httpserver.Handle(a.putDialing(scope)))
	}
	router.With(keys.RequireCaller).Get("/v1/dialing", httpserver.Handle(a.readDialing(workspaceScope)))
	router.With(keys.RequireCaller).Put("/v1/dialing", httpserver.Handle(a.putDialing(workspaceScope)))
	router.With(keys.RequireOperator).Post("/admin/v1/workspaces/{id}/hangup", httpserver.Handle(a.hangUpWorkspace))
}
