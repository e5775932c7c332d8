package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) workspaceAdminRoutes() []route {
	return []route{
		{"GET /operator/workspaces", listWorkspaces},
		{"GET /operator/workspaces/new", showNewWorkspace},
		{"POST /operator/workspaces/new", createWorkspace},
		{"GET /operator/workspaces/{id}", showWorkspaceSettings},
		{"POST /operator/workspaces/{id}", changeWorkspaceSettings},
		{"POST /operator/workspaces/{id}/rates", changeRates},
		{"POST /operator/workspaces/{id}/threshold", changeThreshold},
		{"POST /operator/workspaces/{id}/suspend", suspendWorkspace},
		{"POST /operator/workspaces/{id}/activate", activateWorkspace},
	}
}

// workspaceDetail is a workspace with its settings, as the operator API returns it.
type workspaceDetail struct {
	gateway.Workspace
	CallingPolicy      json.RawMessage   `json:"calling_policy"`
	Features           map[string]*bool  `json:"features"`
	RateLimitPerMinute *int32            `json:"rate_limit_per_minute"`
	MaxLiveCalls       *int32            `json:"max_live_calls"`
	CallsPerSecond     *int32            `json:"calls_per_second"`
	Destinations       []string          `json:"destinations"`
	Retention          map[string]*int32 `json:"retention"`
	Inbound            inboundSettings   `json:"inbound"`
	CreatedAt          openapi.Timestamp `json:"created_at"`
	UpdatedAt          openapi.Timestamp `json:"updated_at"`
}

// inboundSettings are the price and the limits of inbound calls.
type inboundSettings struct {
	PerMinute        string `json:"per_minute"`
	IncrementSeconds *int32 `json:"increment_seconds"`
	MaxConcurrent    *int32 `json:"max_concurrent"`
	MaxCallSeconds   *int32 `json:"max_call_seconds"`
}

// rate is a rate of a workspace.
type rate struct {
	Prefix           string `json:"prefix"`
	PerMinute        string `json:"per_minute"`
	IncrementSeconds *int32 `json:"increment_seconds,omitempty"`
}

var (
	plans    = []string{"starter", "growth", "scale"}
	features = []string{"api", "webhooks", "transcripts", "recordings"}
	periods  = []string{"calls_days", "transcripts_days", "recordings_days", "webhooks_days"}
	limits   = []string{"rate_limit_per_minute", "max_live_calls", "calls_per_second"}
	// inboundLimits are the integer fields of the JSON object "inbound".
	inboundLimits = []string{"increment_seconds", "max_concurrent", "max_call_seconds"}
)

func listWorkspaces(v *visit) (view, error) {
	var data struct {
		gateway.Page[workspaceDetail]
		Last string
	}
	err := concurrently(read(v, &data.Page, "/admin/v1/workspaces", v.listQuery()))
	data.Last = lastID(data.Page, func(w workspaceDetail) uuid.UUID { return w.ID })
	return view{template: "operator_workspaces", title: "opworkspaces.title", nav: "workspaces", data: data}, err
}

// workspaceForm contains the values of the form of a workspace, by the names of the API's fields.
type workspaceForm struct {
	Values map[string]string
	Fault  *fault
}

func (f workspaceForm) Value(name string) string { return f.Values[name] }

func formOf(w workspaceDetail) workspaceForm {
	values := map[string]string{
		"name": w.Name, "plan": w.Plan, "destinations": strings.Join(w.Destinations, "\n"),
		"calling_policy": indented(w.CallingPolicy), "rate_limit_per_minute": textOf(w.RateLimitPerMinute),
		"max_live_calls": textOf(w.MaxLiveCalls), "calls_per_second": textOf(w.CallsPerSecond),
		"per_minute": w.Inbound.PerMinute, "increment_seconds": textOf(w.Inbound.IncrementSeconds),
		"max_concurrent": textOf(w.Inbound.MaxConcurrent), "max_call_seconds": textOf(w.Inbound.MaxCallSeconds),
	}
	for _, name := range features {
		if set := w.Features[name]; set != nil {
			values[name] = strconv.FormatBool(*set)
		}
	}
	for _, name := range periods {
		values[name] = textOf(w.Retention[name])
	}
	return workspaceForm{Values: values}
}

// indented returns JSON on several lines. It is empty for null.
func indented(raw json.RawMessage) string {
	var text bytes.Buffer
	if !isObject(raw) || json.Indent(&text, raw, "", "  ") != nil {
		return ""
	}
	return text.String()
}

// equalJSON reports whether two JSON texts have the same value. An empty text equals null.
func equalJSON(a, b json.RawMessage) bool {
	var first, second any
	if len(a) > 0 && json.Unmarshal(a, &first) != nil || len(b) > 0 && json.Unmarshal(b, &second) != nil {
		return false
	}
	return reflect.DeepEqual(first, second)
}

// readForm returns the submitted values, and the body for the API. If a value cannot be sent, the
// form has a fault.
func (v *visit) readForm() (form workspaceForm, body map[string]any) {
	body = map[string]any{"name": v.form("name"), "plan": v.form("plan")}
	form.Values = map[string]string{}
	for name := range v.r.PostForm {
		form.Values[name] = v.form(name)
	}
	refuse := func(field, key string) {
		if form.Fault == nil {
			form.Fault = v.refusedField(field, key)
		}
	}
	number := func(name string) any {
		text := v.form(name)
		if text == "" {
			return nil
		}
		count, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			refuse(name, "form.number")
		}
		return count
	}
	for _, name := range limits {
		body[name] = number(name)
	}
	retention, overrides := map[string]any{}, map[string]any{}
	for _, name := range periods {
		retention[name] = number(name)
	}
	for _, name := range features {
		overrides[name] = nil
		if set, err := strconv.ParseBool(v.form(name)); err == nil {
			overrides[name] = set
		}
	}
	inbound := map[string]any{"per_minute": nil}
	if price := v.form("per_minute"); price != "" {
		inbound["per_minute"] = price
	}
	for _, name := range inboundLimits {
		inbound[name] = number(name)
	}
	body["retention"], body["features"], body["inbound"] = retention, overrides, inbound
	body["destinations"] = strings.Fields(strings.ReplaceAll(v.form("destinations"), ",", " "))
	if policy := v.form("calling_policy"); policy == "" {
		body["calling_policy"] = nil
	} else if !json.Valid([]byte(policy)) {
		refuse("calling_policy", "form.json")
	} else {
		body["calling_policy"] = json.RawMessage(policy)
	}
	return form, body
}

// refusedField returns a fault that the console finds without the gateway.
func (v *visit) refusedField(field, key string, args ...any) *fault {
	return &fault{http.StatusUnprocessableEntity, field, v.server.templates.text(v.settings.Language, key, args...)}
}

type workspaceFormData struct {
	Form                     workspaceForm
	Plans, Features, Periods []string
	// InboundLimits are the integer fields of the JSON object "inbound".
	InboundLimits []string
	// New is true if the workspace does not exist yet.
	New       bool
	Workspace workspaceDetail
	Wallet    *walletBalance
	Rates     string
	// RatesFault and ThresholdFault are the refusals of the forms for the rates and for the
	// threshold.
	RatesFault, ThresholdFault *fault
}

func workspaceFormView(data workspaceFormData) view {
	data.Plans, data.Features, data.Periods, data.InboundLimits = plans, features, periods, inboundLimits
	result := view{template: "operator_workspace", title: "opworkspaces.new", nav: "workspaces"}
	if !data.New {
		result.heading = data.Workspace.Name
	}
	for _, refused := range []*fault{data.Form.Fault, data.RatesFault, data.ThresholdFault} {
		if refused != nil {
			result.status = refused.Status
		}
	}
	result.data = data
	return result
}

func showNewWorkspace(v *visit) (view, error) {
	if !v.can("operate") {
		return view{}, errForbidden
	}
	return workspaceFormView(workspaceFormData{New: true, Form: workspaceForm{Values: map[string]string{
		"plan": "growth", "currency": "USD", "mode": "live"}}}), nil
}

func createWorkspace(v *visit) (view, error) {
	form, body := v.readForm()
	body["currency"], body["mode"] = strings.ToUpper(v.form("currency")), v.form("mode")
	if form.Fault != nil {
		return workspaceFormView(workspaceFormData{New: true, Form: form}), nil
	}
	made, err := gateway.Post[workspaceDetail](v.r.Context(), v.Session, "/admin/v1/workspaces", body)
	if form.Fault = faultOf(err); form.Fault != nil {
		return workspaceFormView(workspaceFormData{New: true, Form: form}), nil
	}
	return view{redirect: "/operator/workspaces/" + made.ID.String(), done: "workspace_created"}, err
}

// workspaceSettings contains the address of the settings page and the path of its workspace in the
// API.
type workspaceSettings struct {
	page, path string
}

func (v *visit) workspaceSettings() (workspaceSettings, error) {
	id, err := uuid.Parse(v.r.PathValue("id"))
	if err != nil {
		return workspaceSettings{}, errNotFound
	}
	return workspaceSettings{"/operator/workspaces/" + id.String(), "/admin/v1/workspaces/" + id.String()}, nil
}

func (v *visit) patch(path string, body any) error {
	_, err := gateway.Do[map[string]any](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPatch, Path: path, Body: body})
	return err
}

// patchVersion changes an object unless it was changed after the person read the version.
func (v *visit) patchVersion(path, version string, body any) error {
	_, err := gateway.Do[map[string]any](v.r.Context(), v.Session, gateway.Request{Method: http.MethodPatch, Path: path,
		Header: http.Header{"If-Match": {version}}, Body: body})
	return err
}

// faultOf converts an error to a fault of the form. If another person changed the object, the
// message says so.
func (v *visit) faultOf(err error) *fault {
	if gateway.Is(err, "precondition_failed") {
		return &fault{Status: http.StatusPreconditionFailed,
			Message: v.server.templates.text(v.settings.Language, "form.changed")}
	}
	return faultOf(err)
}

func showWorkspaceSettings(v *visit) (view, error) {
	return v.showSettings(func(data *workspaceFormData) { data.Form = formOf(data.Workspace) })
}

// showSettings shows the settings of a workspace. fillForm sets the values of the form. If fillForm
// sets no version, showSettings sets the current version.
func (v *visit) showSettings(fillForm func(*workspaceFormData)) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	var data workspaceFormData
	var rates gateway.Page[rate]
	var version string
	err = concurrently(
		readTagged(v, &data.Workspace, &version, settings.path),
		readOptional(v, &data.Wallet, settings.path+"/wallet", nil),
		readOptional(v, &rates, settings.path+"/rates", nil),
	)
	if err != nil {
		return view{}, err
	}
	for _, r := range rates.Data {
		data.Rates += strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Prefix, r.PerMinute, textOf(r.IncrementSeconds))) + "\n"
	}
	data.Form = formOf(data.Workspace)
	fillForm(&data)
	if data.Form.Values["version"] == "" {
		data.Form.Values["version"] = version
	}
	return workspaceFormView(data), nil
}

// changeWorkspaceSettings stores the form. If another person changed the workspace since the form
// was shown, nothing is stored.
func changeWorkspaceSettings(v *visit) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	before, err := gateway.Get[workspaceDetail](v.r.Context(), v.Session, settings.path, nil)
	if err != nil {
		return view{}, err
	}
	form, body := v.readForm()
	if policy, _ := body["calling_policy"].(json.RawMessage); equalJSON(policy, before.CallingPolicy) {
		// the API records this person as the author of a policy in the body, so an unchanged policy
		// is not sent
		delete(body, "calling_policy")
	}
	if form.Fault == nil {
		v.giveReason() // the reason is optional
		err = v.patchVersion(settings.path, v.form("version"), body)
		form.Fault = v.faultOf(err)
	}
	if form.Fault != nil {
		if form.Fault.Status == http.StatusPreconditionFailed {
			delete(form.Values, "version") // the next submission overwrites the other person's change
		}
		return v.showSettings(func(data *workspaceFormData) { data.Form = form })
	}
	return view{redirect: settings.page, done: "workspace_changed"}, err
}

// parseRates reads one rate per line: the prefix, the price per minute and the increment. If a line
// is invalid, line is its number, otherwise 0.
func parseRates(text string) (rates []rate, line int) {
	rates = []rate{}
	for i, row := range strings.Split(text, "\n") {
		cells := strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(row))
		if len(cells) == 0 {
			continue
		}
		if len(cells) != 2 && len(cells) != 3 {
			return nil, i + 1
		}
		parsed := rate{Prefix: cells[0], PerMinute: cells[1]}
		if len(cells) == 3 {
			seconds, err := strconv.ParseInt(cells[2], 10, 32)
			if err != nil {
				return nil, i + 1
			}
			increment := int32(seconds)
			parsed.IncrementSeconds = &increment
		}
		rates = append(rates, parsed)
	}
	return rates, 0
}

func changeRates(v *visit) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	rates, line := parseRates(v.form("rates"))
	var refused *fault
	if line > 0 {
		refused = v.refusedField("rates", "opworkspaces.rates.line", line)
	} else {
		v.giveReason() // the reason is optional
		_, err = gateway.Do[map[string]any](v.r.Context(), v.Session,
			gateway.Request{Method: http.MethodPut, Path: settings.path + "/rates", Body: rates})
		refused = faultOf(err)
	}
	if refused != nil {
		return v.showSettings(func(data *workspaceFormData) { data.Rates, data.RatesFault = v.form("rates"), refused })
	}
	return view{redirect: settings.page, done: "rates_changed"}, err
}

// changeThreshold sets the balance below which the event wallet.low_balance is sent.
func changeThreshold(v *visit) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	var threshold *string
	if text := v.form("low_balance_threshold"); text != "" {
		threshold = &text
	}
	err = v.patch(settings.path+"/wallet", map[string]any{"low_balance_threshold": threshold})
	if refused := faultOf(err); refused != nil {
		return v.showSettings(func(data *workspaceFormData) { data.ThresholdFault = refused })
	}
	return view{redirect: settings.page, done: "threshold_changed"}, err
}

// suspendWorkspace suspends a workspace whose name the person typed. It first pauses dialing,
// because the reason of a pause is shown on every page.
func suspendWorkspace(v *visit) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[workspaceDetail](v.r.Context(), v.Session, settings.path, nil)
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(found.Name) {
		return view{redirect: settings.page, done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[openapi.Dialing](v.r.Context(), v.Session, gateway.Request{Method: http.MethodPut,
		Path: settings.path + "/dialing", Body: map[string]string{"state": "paused", "reason": v.Reason}})
	if err == nil {
		err = v.patch(settings.path, map[string]string{"status": "suspended"})
	}
	return view{redirect: settings.page, done: "workspace_suspended"}, err
}

// activateWorkspace ends a suspension. If the person selected it, dialing is resumed, too.
func activateWorkspace(v *visit) (view, error) {
	settings, err := v.workspaceSettings()
	if err != nil {
		return view{}, err
	}
	if !v.giveReason() {
		return view{redirect: settings.page, done: "not_confirmed"}, nil
	}
	err = v.patch(settings.path, map[string]string{"status": "active"})
	if err == nil && v.form("resume") != "" {
		_, err = gateway.Do[openapi.Dialing](v.r.Context(), v.Session, gateway.Request{Method: http.MethodPut,
			Path: settings.path + "/dialing", Body: map[string]string{"state": "active"}})
	}
	return view{redirect: settings.page, done: "workspace_activated"}, err
}
