// Package httpapi contains the HTTP routes of contacts-compliance. Customers use contacts, opt-outs
// and decisions. Operators use consent, decisions, imports and erasures. The services `calls`,
// dialer and gateway use the internal API.
package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/imports"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// API implements the routes.
type API struct {
	store    *store.Store
	checks   *checks.Checks
	importer *imports.Importer
	wake     func()
}

// New returns the routes of the service. Each route accepts only its own callers: customers and
// operators through the gateway, or one internal service. wake is called after each commit that
// wrote to the outbox.
func New(st *store.Store, g *checks.Checks, im *imports.Importer, wake func(), keys *serviceauth.Keys,
	tel *telemetry.Telemetry) (http.Handler, error) {
	api := &API{store: st, checks: g, importer: im, wake: wake}
	spans, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics())
	if err != nil {
		return nil, err
	}
	router := httpserver.NewRouter(tel)
	router.Group(func(r chi.Router) { r.Use(keys.RequireCaller); api.customerRoutes(r) })
	router.Group(func(r chi.Router) { r.Use(keys.RequireOperator); api.operatorRoutes(r) })
	path, handler := compliancev1.NewPreCheckServiceHandler(api, connect.WithInterceptors(spans), keys.AllowServices("calls"))
	router.Handle(path+"{procedure}", handler)
	path, handler = compliancev1.NewDialCheckServiceHandler(api, connect.WithInterceptors(spans), keys.AllowServices("dialer"))
	router.Handle(path+"{procedure}", handler)
	path, handler = settingsv1.NewSettingServiceHandler(api, connect.WithInterceptors(spans),
		keys.AllowServices(serviceauth.Gateway))
	router.Handle(path+"{procedure}", handler)
	path, handler = settingsv1.NewPolicyServiceHandler(api, connect.WithInterceptors(spans),
		keys.AllowServices(serviceauth.Gateway))
	router.Handle(path+"{procedure}", handler)
	return router, nil
}

func (a *API) customerRoutes(r chi.Router) {
	r.Get("/v1/contacts", httpserver.Handle(a.listContacts))
	r.Post("/v1/contacts", httpserver.Handle(a.createContact))
	r.Get("/v1/contacts/{id}", httpserver.Handle(a.readContact))
	r.Patch("/v1/contacts/{id}", httpserver.Handle(a.changeContact))
	r.Post("/v1/opt-outs", httpserver.Handle(a.optOut))
	r.Get("/v1/opt-outs/{phone}", httpserver.Handle(a.readOptOut))
	r.Delete("/v1/opt-outs/{phone}", httpserver.Handle(a.removeOptOut))
	r.Get("/v1/decisions", httpserver.Handle(a.listOwnDecisions))
	r.Post("/v1/decisions/preview", httpserver.Handle(a.previewDecision))
}

func (a *API) operatorRoutes(r chi.Router) {
	r.Delete("/admin/v1/workspaces/{workspace}/contacts/{phone}", httpserver.Handle(a.eraseContact))
	r.Get("/admin/v1/workspaces/{workspace}/contacts/{phone}/consent", httpserver.Handle(a.readConsent))
	r.Put("/admin/v1/workspaces/{workspace}/contacts/{phone}/consent", httpserver.Handle(a.setConsent))
	r.Get("/admin/v1/workspaces/{workspace}/contacts/{phone}/preview", httpserver.Handle(a.previewContact))
	r.Get("/admin/v1/workspaces/{workspace}/erasures", httpserver.Handle(a.listErasures))
	r.Get("/admin/v1/workspaces/{workspace}/erasures/{erasure}", httpserver.Handle(a.readErasure))
	r.Get("/admin/v1/workspaces/{workspace}/consent-records", httpserver.Handle(a.listRecords))
	r.Get("/admin/v1/workspaces/{workspace}/consent-records/{record}", httpserver.Handle(a.readRecord))
	r.Get("/admin/v1/workspaces/{workspace}/opt-out-imports", httpserver.Handle(a.listImports))
	r.Post("/admin/v1/workspaces/{workspace}/opt-out-imports", httpserver.Handle(a.openImport))
	r.Get("/admin/v1/workspaces/{workspace}/opt-out-imports/{import}", httpserver.Handle(a.readImport))
	r.Put("/admin/v1/workspaces/{workspace}/opt-out-imports/{import}/parts/{part}", httpserver.Handle(a.putPart))
	r.Post("/admin/v1/workspaces/{workspace}/opt-out-imports/{import}/start", httpserver.Handle(a.startImport))
	r.Get("/admin/v1/workspaces/{workspace}/decisions", httpserver.Handle(a.listDecisions))
	r.Get("/admin/v1/workspaces/{workspace}/decisions/{decision}", httpserver.Handle(a.readDecision))
}

// operatorCaller returns the caller of an operator's route. It returns an error unless the
// workspace in the path is the workspace in the caller's token.
func operatorCaller(r *http.Request) (serviceauth.Caller, error) {
	caller := serviceauth.CallerFrom(r.Context())
	id, err := httpserver.PathID(r, "workspace", "workspace")
	if err != nil {
		return caller, err
	}
	if id != caller.WorkspaceID || id == uuid.Nil {
		return caller, apierr.NotFound("workspace")
	}
	return caller, nil
}

func operatorPathID(r *http.Request, name, thing string) (caller serviceauth.Caller, id uuid.UUID, err error) {
	if caller, err = operatorCaller(r); err != nil {
		return caller, id, err
	}
	id, err = httpserver.PathID(r, name, thing)
	return caller, id, err
}

func operatorNumber(r *http.Request) (caller serviceauth.Caller, number phone.Number, err error) {
	if caller, err = operatorCaller(r); err != nil {
		return caller, number, err
	}
	number, err = pathNumber(r)
	return caller, number, err
}

func operatorPage(r *http.Request) (caller serviceauth.Caller, request page.Request, err error) {
	if caller, err = operatorCaller(r); err != nil {
		return caller, request, err
	}
	request, err = page.Parse(r.URL.Query())
	return caller, request, err
}

// pathNumber parses the number in the path. The plus sign can be escaped as %2B.
func pathNumber(r *http.Request) (phone.Number, error) {
	number, ok := phone.Parse(httpserver.PathText(r, "phone"))
	if !ok {
		return "", invalidPhone("The number in the path")
	}
	return number, nil
}

func invalidPhone(what string) error {
	return apierr.Unprocessable("invalid_phone", "%s must be E.164: a plus and 7 to 15 digits, such as +14155550123.",
		what)
}

// convertNotFound converts pg.ErrNotFound to a 404 error.
func convertNotFound(err error, thing string) error {
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound(thing)
	}
	return err
}

// maxText limits strings that have no other limit here, such as a number whose format is checked
// later.
const maxText = httpserver.MaxBody

// bodyFields is a request body that is decoded by top-level name. It distinguishes between absent
// fields, null, and values of a wrong type.
type bodyFields map[string]json.RawMessage

func decode(r *http.Request) (bodyFields, error) {
	var body bodyFields
	err := httpserver.DecodeJSON(r, &body)
	return body, err
}

// hasValue reports whether the field has a value other than null.
func (f bodyFields) hasValue(name string) bool {
	raw, ok := f[name]
	return ok && !isNull(raw)
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// optionalText returns a string of at most limit characters. It is nil if the field is absent or
// null.
func (f bodyFields) optionalText(name string, limit int) (*string, error) {
	if !f.hasValue(name) {
		return nil, nil //nolint:nilnil // the field is absent
	}
	var text string
	if err := json.Unmarshal(f[name], &text); err != nil {
		return nil, apierr.Validation(name, "must be a string.")
	}
	if utf8.RuneCountInString(text) > limit {
		return nil, apierr.Validation(name, "may be at most %d characters long.", limit)
	}
	return &text, nil
}

// requiredText returns a string of at most limit characters, or an error if the field is absent or
// null.
func (f bodyFields) requiredText(name string, limit int) (string, error) {
	text, err := f.optionalText(name, limit)
	if err != nil {
		return "", err
	}
	if text == nil {
		return "", apierr.Validation(name, "is required.")
	}
	return *text, nil
}
