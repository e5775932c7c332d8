package pages

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) liveRoutes() []route {
	return []route{{"GET /w/{workspace}/live", showLive}}
}

type liveData struct {
	Calls  []openapi.CallListItem
	Ended  []openapi.CallListItem
	Queued openapi.CallRequestPage
	Agents agentNames
	// MoreCalls is true if more calls run than are shown.
	MoreCalls bool
}

// liveStatuses are the states of a call that has not ended.
var liveStatuses = []string{"in_progress", "ringing", "initiated"}

// readLive reads the calls that have not ended, newest first.
func (v *visit) readLive(calls *[]openapi.CallListItem, more *bool, limit string) func() error {
	return func() error {
		var mu sync.Mutex
		var reads []func() error
		for _, status := range liveStatuses {
			reads = append(reads, func() error {
				page, err := gateway.Get[openapi.CallPage](v.r.Context(), v.Session, "/v1/calls",
					url.Values{"status": {status}, "limit": {limit}})
				mu.Lock()
				defer mu.Unlock()
				*calls = append(*calls, page.Data...)
				*more = *more || page.HasMore
				return err
			})
		}
		err := concurrently(reads...)
		// A call that changes its state between two reads is in both.
		slices.SortFunc(*calls, func(a, b openapi.CallListItem) int {
			if c := b.CreatedAt.Compare(a.CreatedAt.Time); c != 0 {
				return c
			}
			return slices.Index(liveStatuses, string(a.Status)) - slices.Index(liveStatuses, string(b.Status))
		})
		*calls = slices.CompactFunc(*calls, func(a, b openapi.CallListItem) bool { return a.ID == b.ID })
		return err
	}
}

// OptOutPath returns the address of the form that opts out the person of a call. The form already
// contains the number and a reason. It is "" if the number is withheld.
func (p *pageData) OptOutPath(call openapi.CallListItem) string {
	number := call.To
	if string(call.Direction) == "inbound" {
		number = call.From
	}
	if !strings.HasPrefix(number, "+") {
		return ""
	}
	reason := p.visit.server.templates.text(p.Language, "live.opt_out.reason", call.ID)
	return p.Path("opt-outs") + "?" + url.Values{"new": {number}, "reason": {reason}}.Encode() + "#new"
}

func showLive(v *visit) (view, error) {
	var data liveData
	var recent openapi.CallPage
	var agents gateway.Page[gateway.Agent]
	err := concurrently(
		v.readLive(&data.Calls, &data.MoreCalls, "60"),
		read(v, &recent, "/v1/calls", url.Values{"limit": {"40"},
			"created_after": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}}),
		read(v, &data.Queued, "/v1/call-requests", url.Values{"status": {"queued"}, "limit": {"10"}}),
		v.readAgents(&agents),
	)
	data.Agents = agents.Data
	for _, call := range recent.Data {
		if !slices.Contains(liveStatuses, string(call.Status)) && len(data.Ended) < 10 {
			data.Ended = append(data.Ended, call)
		}
	}
	return view{template: "live", title: "live.title", nav: "live", data: data}, err
}
