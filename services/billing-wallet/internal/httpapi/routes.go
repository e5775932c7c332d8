package httpapi

import (
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/settingsv1"
)

// Routes returns the routes of the service. The gateway forwards requests of customers and
// operators, and calls ApplySetting. Only the service `calls` and the dialer can call Hold.
func (a *API) Routes(tel *telemetry.Telemetry, keys *serviceauth.Keys) (http.Handler, error) {
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics())
	if err != nil {
		return nil, fmt.Errorf("make the trace interceptor: %w", err)
	}
	router := httpserver.NewRouter(tel)
	router.Route("/v1", func(r chi.Router) {
		r.Use(keys.RequireCaller)
		r.Get("/wallet", httpserver.Handle(a.getWallet))
	})
	router.Route("/admin/v1/workspaces/{id}", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Get("/wallet", httpserver.Handle(a.getAccounts))
		r.Patch("/wallet", httpserver.Handle(a.changeWallet))
		r.Get("/wallet/reconcile", httpserver.Handle(a.reconcileWallet))
		r.Post("/wallet/transactions", httpserver.Handle(a.postTransaction))
		r.Get("/wallet/transactions", httpserver.Handle(a.listTransactions))
		r.Get("/wallet/transactions/{transaction_id}", httpserver.Handle(a.getTransaction))
		r.Put("/rates", httpserver.Handle(a.putRates))
		r.Get("/rates", httpserver.Handle(a.getRates))
	})
	path, questions := billingv1.NewHoldServiceHandler(a, connect.WithInterceptors(traces),
		keys.AllowServices("calls", "dialer"))
	router.Handle(path+"{procedure}", questions)
	path, setting := settingsv1.NewSettingServiceHandler(a, connect.WithInterceptors(traces),
		keys.AllowServices(serviceauth.Gateway))
	router.Handle(path+"{procedure}", setting)
	return router, nil
}
