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
		{"GET /w/{workspace}/call-totals", showCallTotals},
		{"GET /w/{workspace}/calls/{call}/hangup", permitted("listen", showHangUp)},
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

// localTime converts the text of a form field to RFC 3339. The field has no time zone, so the time
// zone of the person applies.
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

// callTotals are the numbers of ended calls that match the filters of the list of calls.
type callTotals struct {
	// Since and Until limit the time at which the calls were created.
	Since, Until openapi.Timestamp
	Calls        int64
	// All contains the totals over all statuses. It is nil if the filters select one status or
	// outcome.
	All *openapi.CallStatisticsTotal
	// Unknown is true if the API cannot count with these filters or over this period.
	Unknown bool
}

// totalsPeriod is the period of the totals if the filters give no start.
const totalsPeriod = 30 * 24 * time.Hour

// showCallTotals counts the calls of a list. It is a separate page, which the list loads after its
// own content, because counting takes longer than reading a page of calls.
func showCallTotals(v *visit) (view, error) {
	query := v.listQuery(callFilters()...)
	status, outcome := query.Get("status"), query.Get("outcome")
	unknown := query.Has("to") || query.Has("external_ref") || status != "" && outcome != ""
	for _, name := range []string{"limit", "starting_after", "status", "outcome"} {
		query.Del(name)
	}
	query.Set("interval", "day")
	if !query.Has("created_after") {
		query.Set("created_after", startOfTotals(query.Get("created_before")))
	}
	result := view{template: "call_totals", title: "calls.totals", nav: "calls", data: callTotals{Unknown: true}}
	if unknown {
		return result, nil
	}
	found, err := gateway.Get[openapi.CallStatistics](v.r.Context(), v.Session, "/v1/call-statistics", query)
	if faultOf(err) != nil {
		return result, nil
	}
	data := callTotals{Since: found.CreatedAfter, Until: found.CreatedBefore, Calls: found.Total.Calls}
	switch {
	case status != "":
		data.Calls = found.Total.Statuses[status]
	case outcome != "":
		data.Calls = found.Total.Outcomes[outcome]
	default:
		data.All = &found.Total
	}
	result.data = data
	return result, err
}

// startOfTotals returns the start of the period that ends at the time end. If end is not a time,
// the period ends now.
func startOfTotals(end string) string {
	at, err := time.Parse(time.RFC3339, end)
	if err != nil {
		at = time.Now()
	}
	return at.Add(-totalsPeriod).UTC().Format(time.RFC3339)
}

// hangUp ends a call. If the call has already ended, this is not an error: the page shows the ended
// call.
func hangUp(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("call"))
	if err != nil {
		return view{}, errNotFound
	}
	if !v.giveReason() {
		return view{redirect: v.path("calls", id.String(), "hangup"), done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[openapi.Call](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPost, Path: "/v1/calls/" + id.String() + "/hangup"})
	if gateway.Is(err, "invalid_state") {
		return view{redirect: v.nextPath(v.path("live")), done: "call_ended"}, nil
	}
	return view{redirect: v.nextPath(v.path("live")), done: "hung_up"}, err
}
