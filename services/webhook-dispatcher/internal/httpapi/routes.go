package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/settingsv1"
)

// Routes returns the handler of all routes. The customer and operator routes require a caller token
// that the gateway signed. The routes under /admin/v1 also require that this token names an
// operator. ApplySetting requires the gateway's service token.
func (a *API) Routes(keys *serviceauth.Keys, tel *telemetry.Telemetry) http.Handler {
	router := httpserver.NewRouter(tel)
	router.Group(func(r chi.Router) {
		r.Use(keys.RequireCaller)
		r.Get("/v1/events", httpserver.Handle(a.streamEvents))
		r.Get("/v1/webhook-subscriptions", httpserver.Handle(a.listSubscriptions))
		r.Post("/v1/webhook-subscriptions", httpserver.Handle(a.createSubscription))
		r.Get("/v1/webhook-subscriptions/{id}", httpserver.Handle(a.readSubscription))
		r.Patch("/v1/webhook-subscriptions/{id}", httpserver.Handle(a.changeSubscription))
		r.Delete("/v1/webhook-subscriptions/{id}", httpserver.Handle(a.deleteSubscription))
		r.Post("/v1/webhook-subscriptions/{id}/rotate-secret", httpserver.Handle(a.rotateSecret))
		r.Post("/v1/webhook-subscriptions/{id}/test", httpserver.Handle(a.testSubscription))
		r.Get("/v1/webhook-subscriptions/{id}/deliveries", httpserver.Handle(a.listForCustomer))
		r.Post("/v1/webhook-subscriptions/{id}/replay", httpserver.Handle(a.replayPeriod))
		r.Get("/v1/webhook-deliveries/{id}", httpserver.Handle(a.readForCustomer))
		r.Post("/v1/webhook-deliveries/{id}/resend", httpserver.Handle(a.resend))
	})
	router.With(keys.RequireCaller).Get("/internal/v1/calls/{call_id}/deliveries", httpserver.Handle(a.listCallDeliveries))
	router.Route("/admin/v1/workspaces/{workspace_id}/webhook-subscriptions", func(r chi.Router) {
		r.Use(keys.RequireOperator)
		r.Get("/", httpserver.Handle(a.listFlagged))
		r.Get("/{id}", httpserver.Handle(a.readFlagged))
		r.Patch("/{id}", httpserver.Handle(a.changeStatus))
		r.Delete("/{id}", httpserver.Handle(a.deleteSubscription))
		r.Get("/{id}/deliveries", httpserver.Handle(a.listDeliveries))
		r.Post("/{id}/replay", httpserver.Handle(a.replayPeriod))
		r.Post("/{id}/deliveries/replay", httpserver.Handle(a.replayMany))
		r.Get("/{id}/deliveries/{delivery_id}", httpserver.Handle(a.readDelivery))
		r.Post("/{id}/deliveries/{delivery_id}/replay", httpserver.Handle(a.replayOne))
		r.Post("/{id}/deliveries/{delivery_id}/resend", httpserver.Handle(a.resendForOperator))
	})
	path, setting := settingsv1.NewSettingServiceHandler(a, keys.AllowServices(serviceauth.Gateway))
	router.Handle(path+"{procedure}", setting)
	return router
}
