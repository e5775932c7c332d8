package pages

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) requestRoutes() []route {
	return []route{
		{"GET /w/{workspace}/call-requests", showRequests},
		{"GET /w/{workspace}/call-requests.csv", exportRequests},
		{"GET /w/{workspace}/call-requests/{request}/cancel", permitted("listen", showCancel)},
		{"POST /w/{workspace}/call-requests/{request}/cancel", cancelRequest},
		{"GET /w/{workspace}/call-requests/new", showPlaceCall},
		{"POST /w/{workspace}/call-requests/new", placeCall},
	}
}

type requestsData struct {
	openapi.CallRequestPage
	Agents   agentNames
	Statuses []string
	Filtered bool
	Last     string
}

// requestFilters are the parameters that the list of call requests passes to the API.
func requestFilters() []string {
	return []string{"status", "to", "external_ref", "created_after", "created_before"}
}

func showRequests(v *visit) (view, error) {
	query := v.listQuery(requestFilters()...)
	data := requestsData{
		Statuses: []string{"queued", "dialing", "completed", "failed", "blocked", "canceled"}, Filtered: len(query) > 1,
	}
	var agents gateway.Page[gateway.Agent]
	err := concurrently(read(v, &data.CallRequestPage, "/v1/call-requests", query), v.readAgents(&agents))
	data.Agents = agents.Data
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	return view{template: "requests", title: "requests.title", nav: "requests", data: data}, err
}

func cancelRequest(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("request"))
	if err != nil {
		return view{}, errNotFound
	}
	if !v.giveReason() {
		return view{redirect: v.path("call-requests", id.String(), "cancel"), done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[openapi.CallRequest](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPost, Path: "/v1/call-requests/" + id.String() + "/cancel"})
	return view{redirect: v.nextPath(v.path("call-requests")), done: "request_canceled"}, err
}

type placeCallData struct {
	Agents  agentNames
	To      string
	AgentID string
	At      string // the value of the form field
	// Key is the idempotency key of the form: a form that is submitted twice places only one call.
	Key     string
	Preview *openapi.DecisionPreview
	Error   *gateway.Error
}

func showPlaceCall(v *visit) (view, error) {
	data := placeCallData{To: v.query("to"), AgentID: v.query("agent_id"), At: v.query("at"), Key: uuid.NewString()}
	var agents gateway.Page[gateway.Agent]
	reads := []func() error{v.readAgents(&agents)}
	if data.To != "" {
		data.To = phoneOf(data.To)
		reads = append(reads, func() error { return v.preview(&data) })
	}
	err := concurrently(reads...)
	data.Agents = agents.Data
	return view{template: "place_call", title: "place.title", nav: "requests", data: data}, err
}

// preview requests the results of the gates for the call. If the number is not valid, the error is
// shown beside its field.
func (v *visit) preview(data *placeCallData) error {
	body := map[string]any{"to": data.To}
	if at, ok := v.localTime(data.At); ok {
		body["scheduled_for"] = at
	}
	found, err := gateway.Post[openapi.DecisionPreview](v.r.Context(), v.Session, "/v1/decisions/preview", body)
	if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusUnprocessableEntity {
		data.Error = refused
		return nil
	}
	if err == nil {
		data.Preview = &found
	}
	return err
}

func placeCall(v *visit) (view, error) {
	data := placeCallData{To: phoneOf(v.form("to")), AgentID: v.form("agent_id"), At: v.form("at"), Key: v.form("key")}
	body := map[string]any{
		"to":                        data.To,
		"agent_id":                  data.AgentID,
		"schedule_if_outside_hours": v.form("later") != "",
		"idempotency_key":           "console-" + data.Key,
	}
	if at, ok := v.localTime(data.At); ok {
		body["scheduled_for"] = at
	}
	placed, err := gateway.Post[openapi.CallRequest](v.r.Context(), v.Session, "/v1/calls", body)
	refused := gateway.AsError(err)
	if refused != nil &&
		(refused.Status == http.StatusUnprocessableEntity || refused.Status == http.StatusPaymentRequired) &&
		refused.Field != "Ringfence-Reason" {
		var agents gateway.Page[gateway.Agent]
		_ = concurrently(v.readAgents(&agents)) // the read is optional and returns no error
		data.Agents, data.Error = agents.Data, refused
		return view{template: "place_call", title: "place.title", nav: "requests", data: data, status: refused.Status}, nil
	}
	if err != nil {
		return view{}, err
	}
	return view{redirect: v.path("call-requests", placed.ID.String()), done: "call_placed"}, nil
}
