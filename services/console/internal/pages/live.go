package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) liveRoutes() []route {
	return []route{{livePattern, showLive}}
}

const livePattern = "GET /w/{workspace}/live"

type liveData struct {
	Calls  []openapi.CallListItem
	Ended  []openapi.CallListItem
	Queued openapi.CallRequestPage
	Agents agentNames
	// MoreCalls is true if more calls run than are shown.
	MoreCalls bool
}

// MostEnded is the number of ended calls that the page shows.
func (liveData) MostEnded() int { return 10 }

// add adds a call to the calls that run, or to those that have ended.
func (d *liveData) add(call openapi.CallListItem) {
	switch {
	case slices.Contains(liveStatuses, string(call.Status)):
		d.Calls = append(d.Calls, call)
	case len(d.Ended) < d.MostEnded():
		d.Ended = append(d.Ended, call)
	}
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
		// A call whose status changes between two reads can be in both results. The sort puts the
		// newer status first, and the duplicate is removed.
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
// contains the number and a reason. If the number is withheld, OptOutPath returns "".
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
	if ids := v.changedCalls(); ids != nil {
		return v.showChangedCalls(ids)
	}
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
		if !slices.Contains(liveStatuses, string(call.Status)) {
			data.add(call)
		}
	}
	return view{template: "live", title: "live.title", nav: "live", data: data}, err
}

const (
	// callsHeader is the header in which a script of the page Live lists the calls that changed. The
	// console then reads only these calls, so that an event costs few requests.
	callsHeader = "RF-Calls"
	// The script sets namesHeader if the page does not show all changed calls yet. The response
	// must then contain the names of the agents.
	namesHeader = "RF-Names"
	// mostChanged is the maximum number of calls that callsHeader can list.
	mostChanged = 10
)

// changedCalls returns the ids of the calls that a script requests, or nil if the request is for
// the whole page.
func (v *visit) changedCalls() (ids []uuid.UUID) {
	if !v.Background || v.r.Pattern != livePattern {
		return nil
	}
	for text := range strings.SplitSeq(v.r.Header.Get(callsHeader), ",") {
		id, err := uuid.Parse(text)
		if err != nil || len(ids) == mostChanged {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// showChangedCalls shows the page with the given calls only. A call that does not exist is not
// shown.
func (v *visit) showChangedCalls(ids []uuid.UUID) (view, error) {
	var data liveData
	var agents gateway.Page[gateway.Agent]
	calls := make([]*openapi.Call, len(ids))
	var reads []func() error
	if v.r.Header.Get(namesHeader) != "" {
		reads = append(reads, v.readAgents(&agents))
	}
	for i, id := range ids {
		reads = append(reads, func() error {
			// This route returns no transcript, so the read has no entry in the audit log.
			call, err := gateway.Get[openapi.Call](v.r.Context(), v.Session, v.admin("/calls/%s", id), nil)
			if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusNotFound {
				return nil
			}
			calls[i] = &call
			return err
		})
	}
	err := concurrently(reads...)
	data.Agents = agents.Data
	for _, call := range calls {
		if call != nil {
			data.add(listItemOf(*call))
		}
	}
	return view{template: "live", title: "live.title", nav: "live", data: data}, err
}

// listItemOf converts a call to an item of a list.
func listItemOf(call openapi.Call) openapi.CallListItem {
	return openapi.CallListItem{
		ID: call.CallID, Direction: call.Direction, From: call.From, To: call.To, Status: call.Status,
		AgentID: call.AgentID, ContactID: call.ContactID, Outcome: call.Outcome, TalkSeconds: call.Timings.TalkSeconds,
		CreatedAt: openapi.TimestampOf(page.TimeOf(call.CallID)), ExternalRef: call.ExternalRef,
	}
}
