// Package httpapi contains the HTTP handlers of the service `calls`. The gateway has already
// authorized the caller. The handlers use packages callrequests and store.
package httpapi

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/recordings"
	"ringfence.dev/services/calls/internal/store"
)

// API is the HTTP API of the service `calls`.
type API struct {
	intake   *callrequests.Intake
	canceler *callrequests.Canceler
	store    *store.Store
	links    *recordings.Links
	peers    *peers.Clients
	wake     func()
	now      func() time.Time
}

// New returns the API. The API calls wake after each commit that wrote to the outbox. If links is
// nil, no call shows a recording.
func New(
	in *callrequests.Intake, canceler *callrequests.Canceler, st *store.Store, links *recordings.Links,
	peers *peers.Clients, wake func(),
) *API {
	return &API{intake: in, canceler: canceler, store: st, links: links, peers: peers, wake: wake, now: time.Now}
}

// Handler returns the routes of the service: /v1 for customers, /admin/v1 for operators, and
// ApplySetting for the gateway.
func (a *API) Handler(tel *telemetry.Telemetry, keys *serviceauth.Keys) http.Handler {
	router := httpserver.NewRouter(tel)
	router.Group(func(r chi.Router) {
		r.Use(keys.RequireCaller)
		r.Post("/v1/calls", httpserver.Handle(a.createCall))
		r.Get("/v1/calls", httpserver.Handle(a.listCalls))
		r.Get("/v1/calls/{id}", httpserver.Handle(a.readCall))
		r.Get("/v1/calls/{id}/transcript", httpserver.Handle(a.readTranscript))
		r.Get("/v1/calls/{id}/recording", httpserver.Handle(a.readRecording))
		r.Post("/v1/calls/{id}/hangup", httpserver.Handle(a.hangUpCall))
		r.Get("/v1/call-statistics", httpserver.Handle(a.readStatistics))
		r.Get("/v1/usage", httpserver.Handle(a.readUsage))
		r.Get("/v1/call-requests", httpserver.Handle(a.listRequests))
		r.Get("/v1/call-requests/{id}", httpserver.Handle(a.readRequest))
		r.Post("/v1/call-requests/{id}/cancel", httpserver.Handle(a.cancelRequest))
	})
	router.Group(func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Get("/admin/v1/workspaces/{workspace}/usage", httpserver.Handle(a.readUsage))
		r.Get("/admin/v1/workspaces/{workspace}/calls", httpserver.Handle(a.listCalls))
		r.Get("/admin/v1/workspaces/{workspace}/calls/{id}", httpserver.Handle(a.adminCall))
		r.Post("/admin/v1/workspaces/{workspace}/calls/{id}/hangup", httpserver.Handle(a.hangUpCall))
		r.Get("/admin/v1/workspaces/{workspace}/call-requests", httpserver.Handle(a.listRequests))
		r.Get("/admin/v1/workspaces/{workspace}/call-requests/{id}", httpserver.Handle(a.readRequest))
		r.Post("/admin/v1/workspaces/{workspace}/call-requests/{id}/cancel", httpserver.Handle(a.cancelRequest))
		r.Post("/admin/v1/workspaces/{id}/agents", httpserver.Handle(a.addAgent))
		r.Get("/admin/v1/workspaces/{id}/agents", httpserver.Handle(a.listAgents))
		r.Get("/admin/v1/workspaces/{id}/agents/{agent_id}", httpserver.Handle(a.readAgent))
		r.Patch("/admin/v1/workspaces/{id}/agents/{agent_id}", httpserver.Handle(a.changeAgent))
		r.Delete("/admin/v1/workspaces/{id}/agents/{agent_id}", httpserver.Handle(a.deleteAgent))
	})
	path, setting := settingsv1.NewSettingServiceHandler(a, keys.AllowServices(serviceauth.Gateway))
	router.Handle(path+"{procedure}", setting)
	return router
}
