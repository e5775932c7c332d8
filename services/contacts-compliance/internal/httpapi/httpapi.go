// Package httpapi listens: the customer's contacts and opt-outs, the operator's consent and policies, and the
// questions of calls and dialer. It decodes, asks and encodes; rules and SQL are elsewhere.
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

// API answers over one store.
type API struct {
	store     *store.Store
	gating    *checks.Checks
	importing *imports.Importer
	wake      func()
}

// New returns the routes of the service. It fixes who may call what: customers and operators through
// the gateway, the gateway itself for settings, calls for the pre-check, and the dialer for the gate.
// wake is called after a commit that wrote to the outbox.
func New(st *store.Store, g *checks.Checks, im *imports.Importer, wake func(), keys *serviceauth.Keys, tel *telemetry.Telemetry) (http.Handler, error) {
	api := &API{store: st, gating: g, importing: im, wake: wake}
	spans, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics())
	if err != nil {
		return nil, err
	}
	router := httpserver.NewRouter(tel)
	router.Group(func(r chi.Router) { r.Use(keys.RequireCaller); api.customerRoutes(r) })
	router.Group(func(r chi.Router) { r.Use(keys.RequireOperator); api.operatorRoutes(r) })
	path, handler := compliancev1.NewPreCheckServiceHandler(api, connect.WithInterceptors(spans), keys.Answer("calls"))
	router.Handle(path+"{procedure}", handler)
	path, handler = compliancev1.NewDialCheckServiceHandler(api, connect.WithInterceptors(spans), keys.Answer("dialer"))
	router.Handle(path+"{procedure}", handler)
	path, handler = settingsv1.NewSettingServiceHandler(api, connect.WithInterceptors(spans),
		keys.Answer(serviceauth.Gateway))
	router.Handle(path+"{procedure}", handler)
	path, handler = settingsv1.NewPolicyServiceHandler(api, connect.WithInterceptors(spans),
		keys.Answer(serviceauth.Gateway))
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
}

func (a *API) operatorRoutes(r chi.Router) {
	r.Delete("/admin/v1/workspaces/{workspace}/contacts/{phone}", httpserver.Handle(a.eraseContact))
	r.Get("/admin/v1/workspaces/{workspace}/contacts/{phone}/consent", httpserver.Handle(a.readConsent))
	r.Put("/admin/v1/workspaces/{workspace}/contacts/{phone}/consent", httpserver.Handle(a.setConsent))
	r.Get("/admin/v1/workspaces/{workspace}/contacts/{phone}/preview", httpserver.Handle(a.preview))
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

// operated is the caller of an operator's route. The path and the signed caller must name the same workspace.
func operated(r *http.Request) (serviceauth.Caller, error) {
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

// operatedMember is operated with the member that the path names.
func operatedMember(r *http.Request, name, thing string) (caller serviceauth.Caller, id uuid.UUID, err error) {
	if caller, err = operated(r); err != nil {
		return caller, id, err
	}
	id, err = httpserver.PathID(r, name, thing)
	return caller, id, err
}

// operatedNumber is operated with the number in the path.
func operatedNumber(r *http.Request) (caller serviceauth.Caller, number phone.Number, err error) {
	if caller, err = operated(r); err != nil {
		return caller, number, err
	}
	number, err = pathNumber(r)
	return caller, number, err
}

// operatedPage is operated with the page that is asked for.
func operatedPage(r *http.Request) (caller serviceauth.Caller, asked page.Request, err error) {
	if caller, err = operated(r); err != nil {
		return caller, asked, err
	}
	asked, err = page.Parse(r.URL.Query())
	return caller, asked, err
}

// pathNumber reads a number in a path, its plus raw or as %2B.
func pathNumber(r *http.Request) (phone.Number, error) {
	number, ok := phone.Parse(httpserver.PathText(r, "phone"))
	if !ok {
		return "", invalidPhone("The number in the path")
	}
	return number, nil
}

func invalidPhone(what string) error {
	return apierr.Unprocessable("invalid_phone", "%s must be E.164: a plus and 7 to 15 digits, such as +14155550123.", what)
}

// found turns the store's "no such row" into the customer's 404.
func found(err error, thing string) error {
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound(thing)
	}
	return err
}

// maxText bounds strings whose own rule is stricter, such as a number.
const maxText = httpserver.MaxBody

// fields is a request body by its top-level names, so that absent, null and wrong can be told apart.
type fields map[string]json.RawMessage

func decode(r *http.Request) (fields, error) {
	var body fields
	err := httpserver.DecodeJSON(r, &body)
	return body, err
}

// has says whether the field stands in the body with a value other than null.
func (f fields) has(name string) bool {
	raw, ok := f[name]
	return ok && !isNull(raw)
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// text reads an optional string of at most most characters; nil when absent or null.
func (f fields) text(name string, most int) (*string, error) {
	if !f.has(name) {
		return nil, nil //nolint:nilnil // absent
	}
	var text string
	if err := json.Unmarshal(f[name], &text); err != nil {
		return nil, apierr.Validation(name, "must be a string.")
	}
	if utf8.RuneCountInString(text) > most {
		return nil, apierr.Validation(name, "may be at most %d characters long.", most)
	}
	return &text, nil
}

// required reads a string that must be there.
func (f fields) required(name string, most int) (string, error) {
	text, err := f.text(name, most)
	if err != nil {
		return "", err
	}
	if text == nil {
		return "", apierr.Validation(name, "is required.")
	}
	return *text, nil
}
