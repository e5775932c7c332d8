package pages

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) callRoutes() []route {
	return []route{
		{"GET /w/{workspace}/calls", showCalls},
		{"GET /w/{workspace}/calls.csv", exportCalls},
		{"POST /w/{workspace}/calls/{call}/hangup", hangUp},
	}
}

type callsData struct {
	openapi.CallPage
	Agents   agentNames
	Statuses []string
	Outcomes []string
	Filtered bool
	Last     string // the id of the last item, if there are more
}

// localTime returns a time of a form field in RFC 3339. The field has no time zone.
func (v *visit) localTime(text string) (string, bool) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, v.settings.Zone); err == nil {
			return at.UTC().Format(time.RFC3339), true
		}
	}
	return "", false
}

// callStatuses and callOutcomes are the choices of the filters.
var (
	callStatuses = strings.Fields("initiated ringing in_progress completed no_answer busy failed canceled")
	callOutcomes = strings.Fields("interested not_interested callback_requested appointment_booked qualified " +
		"not_qualified transferred information_given opted_out wrong_number no_conversation unknown")
)

// callFilters are the parameters that the list of calls passes to the API.
func callFilters() []string {
	return []string{"status", "to", "direction", "outcome", "agent_id", "external_ref", "created_after",
		"created_before"}
}

func showCalls(v *visit) (view, error) {
	query := v.listQuery(callFilters()...)
	data := callsData{Statuses: callStatuses, Outcomes: callOutcomes, Filtered: len(query) > 1}
	var agents gateway.Page[gateway.Agent]
	err := concurrently(read(v, &data.CallPage, "/v1/calls", query), v.readAgents(&agents))
	data.Agents = agents.Data
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	return view{template: "calls", title: "calls.title", nav: "calls", data: data}, err
}

// hangUp ends a call. A call that has ended meanwhile is no error: the page then shows it.
func hangUp(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("call"))
	if err != nil {
		return view{}, errNotFound
	}
	_, err = gateway.Do[openapi.Call](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPost, Path: "/v1/calls/" + id.String() + "/hangup"})
	if gateway.Is(err, "invalid_state") {
		return view{redirect: v.returnPath(), done: "call_ended"}, nil
	}
	return view{redirect: v.returnPath(), done: "hung_up"}, err
}
