package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) overviewRoutes() []route {
	return []route{{"GET /w/{workspace}", showOverview}}
}

type overviewData struct {
	Live          []openapi.CallListItem
	MoreLive      bool
	Agents        agentNames
	Wallet        *openapi.Wallet
	Subscriptions openapi.WebhookSubscriptionPage
	Blocked       openapi.CallRequestPage
	Queued        openapi.CallRequestPage
	Day           daySummary
}

// daySummary counts the calls of the last 24 hours.
type daySummary struct {
	Calls, Answered, OptOuts, Failed int
	Talk                             int // seconds
	// Truncated is true if the day has more calls than were read.
	Truncated bool
	Hours     []hourSummary
	Outcomes  []outcomeCount
}

type hourSummary struct {
	Start                    time.Time
	Answered, Missed, Failed int
}

type outcomeCount struct {
	Outcome string
	Count   int
}

// AnswerRate is the share of ended calls that were answered, in percent. It is "" without calls.
func (d daySummary) AnswerRate() string {
	if d.Calls == 0 {
		return ""
	}
	return strconv.Itoa((100*d.Answered + d.Calls/2) / d.Calls)
}

// maxDayPages limits the pages of calls that the overview reads.
const maxDayPages = 10

func (v *visit) readDay(into *daySummary) func() error {
	return func() error {
		now := time.Now()
		query := url.Values{"limit": {"100"}, "created_after": {now.Add(-24 * time.Hour).UTC().Format(time.RFC3339)}}
		var calls []openapi.CallListItem
		for range maxDayPages {
			page, err := gateway.Get[openapi.CallPage](v.r.Context(), v.Session, "/v1/calls", query)
			if err != nil {
				return err
			}
			calls = append(calls, page.Data...)
			if into.Truncated = page.HasMore; !page.HasMore {
				break
			}
			query.Set("starting_after", page.Data[len(page.Data)-1].ID.String())
		}
		into.add(calls, now)
		return nil
	}
}

func (d *daySummary) add(calls []openapi.CallListItem, now time.Time) {
	first := now.Truncate(time.Hour).Add(-23 * time.Hour)
	for i := range 24 {
		d.Hours = append(d.Hours, hourSummary{Start: first.Add(time.Duration(i) * time.Hour)})
	}
	outcomes := map[string]int{}
	for _, call := range calls {
		if slices.Contains(liveStatuses, string(call.Status)) {
			continue
		}
		d.Calls++
		hour := &d.Hours[min(max(0, int(call.CreatedAt.Sub(first)/time.Hour)), 23)]
		switch {
		case call.Status == openapi.CallStatusCompleted:
			d.Answered++
			hour.Answered++
		case call.Status == openapi.CallStatusFailed:
			d.Failed++
			hour.Failed++
		default:
			hour.Missed++
		}
		if call.TalkSeconds != nil {
			d.Talk += int(*call.TalkSeconds)
		}
		if call.Outcome != nil {
			outcomes[*call.Outcome]++
		}
	}
	d.OptOuts = outcomes["opted_out"]
	for outcome, count := range outcomes {
		d.Outcomes = append(d.Outcomes, outcomeCount{outcome, count})
	}
	slices.SortFunc(d.Outcomes, func(a, b outcomeCount) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Outcome, b.Outcome))
	})
}

func showOverview(v *visit) (view, error) {
	var data overviewData
	var agents gateway.Page[gateway.Agent]
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	err := concurrently(
		v.readLive(&data.Live, &data.MoreLive, "20"),
		v.readDay(&data.Day),
		read(
			v,
			&data.Blocked,
			"/v1/call-requests",
			url.Values{"status": {"blocked"}, "limit": {"5"}, "created_after": {since}},
		),
		read(v, &data.Queued, "/v1/call-requests", url.Values{"status": {"queued"}, "limit": {"100"}}),
		optional(v, &data.Wallet, "/v1/wallet", nil),
		optional(v, &data.Subscriptions, "/v1/webhook-subscriptions", url.Values{"limit": {"100"}}),
		v.readAgents(&agents),
	)
	data.Agents = agents.Data
	return view{template: "overview", title: "overview.title", nav: "overview", data: data}, err
}

// FailedSubscriptions are the subscriptions that receive no events, or whose last attempts failed.
func (d overviewData) FailedSubscriptions() (found []openapi.WebhookSubscription) {
	for _, s := range d.Subscriptions.Data {
		if s.Status == openapi.WebhookSubscriptionStatusFailed || s.ConsecutiveFailures > 0 {
			found = append(found, s)
		}
	}
	return found
}

// Quiet reports whether nothing needs attention.
func (d overviewData) Quiet() bool {
	return len(d.FailedSubscriptions()) == 0 && len(d.Blocked.Data) == 0 && !d.LowCredit()
}

// LowCredit reports whether the balance is below one unit of the currency.
func (d overviewData) LowCredit() bool {
	if d.Wallet == nil {
		return false
	}
	balance, err := d.Wallet.Balance.Float64()
	return err == nil && balance < 1
}
